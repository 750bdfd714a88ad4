use std::collections::BTreeMap;
use tokio::sync::watch;

/// Whether a program can do its work: once every [`ReadinessToken`] is done, for good.
///
/// Take the tokens before the admin port is served; a program that awaits nothing is ready.
#[derive(Clone, Debug, Default)]
pub struct Readiness {
    /// How many tokens of each name are left.
    awaited: watch::Sender<BTreeMap<&'static str, usize>>,
}

/// Something the program must do first. One that is dropped and not [`ReadinessToken::done`] stays awaited: its holder
/// has failed, and a program that fails must not look ready while it ends.
#[derive(Debug)]
#[must_use = "a token that is dropped is awaited for ever"]
pub struct ReadinessToken {
    name: &'static str,
    awaited: watch::Sender<BTreeMap<&'static str, usize>>,
}

impl Readiness {
    pub fn new() -> Self {
        Self::default()
    }

    /// Delays readiness until the token is done. `name` tells operators what is awaited.
    pub fn token(&self, name: &'static str) -> ReadinessToken {
        self.awaited.send_modify(|awaited| *awaited.entry(name).or_default() += 1);
        ReadinessToken { name, awaited: self.awaited.clone() }
    }

    /// The names of what is still awaited, in order. Empty means ready.
    pub fn awaited(&self) -> Vec<&'static str> {
        self.awaited.borrow().keys().copied().collect()
    }

    pub fn is_ready(&self) -> bool {
        self.awaited.borrow().is_empty()
    }

    /// Resolves once the program is ready.
    pub async fn ready(&self) {
        // The sender is our own, so the wait cannot end because it is gone.
        let _ = self.awaited.subscribe().wait_for(BTreeMap::is_empty).await;
    }
}

impl ReadinessToken {
    pub fn done(self) {
        self.awaited.send_modify(|awaited| {
            if let Some(left) = awaited.get_mut(self.name) {
                *left -= 1;
                if *left == 0 {
                    awaited.remove(self.name);
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    #[test]
    fn ready_once_every_token_is_done() {
        let readiness = Readiness::new();
        let (feed, first, second) =
            (readiness.token("feed"), readiness.token("xds"), readiness.token("xds"));
        assert_eq!(readiness.awaited(), ["feed", "xds"]);
        first.done();
        assert_eq!(readiness.awaited(), ["feed", "xds"], "one of two tokens is left");
        second.done();
        assert_eq!(readiness.awaited(), ["feed"]);
        assert!(!readiness.is_ready());
        feed.done();
        assert!(readiness.is_ready());
    }

    #[test]
    fn a_token_whose_holder_failed_stays_awaited() {
        let readiness = Readiness::new();
        drop(readiness.token("feed"));
        assert_eq!(readiness.awaited(), ["feed"]);
    }

    #[tokio::test]
    async fn readiness_can_be_waited_for() {
        let readiness = Readiness::new();
        let token = readiness.token("feed");
        let mut wait = Box::pin(readiness.ready());
        assert!((&mut wait).now_or_never().is_none());
        tokio::spawn(async move { token.done() });
        tokio::time::timeout(std::time::Duration::from_secs(10), wait).await.unwrap();
    }
}
