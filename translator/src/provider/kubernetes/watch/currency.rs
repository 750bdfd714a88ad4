//! Whether everything was sent that there is of a protecting kind.
//!
//! A watch that ends, as each does after a while, was current until then, and is until the next request fails. From then on
//! until a list is complete, or is found to be what is known, there may be objects that nobody here knows of.

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

    /// The kind can be watched again, from where it was watched last. What was missed, if anything, comes with
    /// the next event, which may be far away: instead what is known is compared with a list.
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
