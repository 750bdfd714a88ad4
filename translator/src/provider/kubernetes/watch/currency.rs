//! Whether the provider has sent every object of a protecting kind.
//!
//! A watch ends after a while. It was current until then, and stays so until the next request fails. From then on there
//! may be unknown objects, until a list is complete or is found to have no others.

use super::super::protection::Message;
use super::{KindWatch, Next};

impl KindWatch {
    pub(super) async fn current(&mut self) {
        if self.kind.is_protecting() && !std::mem::replace(&mut self.is_current, true) {
            self.send(Message::Current(self.kind, self.choice)).await;
        }
    }

    pub(super) async fn stale(&mut self) {
        if std::mem::take(&mut self.is_current) {
            self.send(Message::Stale(self.kind)).await;
        }
    }

    /// The kind can be watched again, from where it was watched last. Missed changes come with the next event, which may
    /// be far away: so the known objects are compared with a list instead.
    pub(super) async fn catch_up(&mut self) -> Next {
        while self.kind.is_protecting() && !self.is_current && !self.cache.is_listing() {
            match self.is_as_listed().await {
                Ok(true) => self.current().await,
                Ok(false) => return Next::ListAgain,
                Err(failure) => {
                    if self.wait_until_listable(failure).await == Next::ListAgain {
                        return Next::ListAgain;
                    }
                }
            }
        }
        Next::GoOn
    }
}
