use anyhow::{Context, anyhow};
use std::collections::HashMap;
use std::time::Duration;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// How long the end of the program may take unless a task has work to finish. The slowest of the others, an Envoy that must
/// be killed, takes half of it.
const LONGEST_END: Duration = Duration::from_secs(10);

/// The tasks that make up the program. None of them ends before it is stopped; if one does, all do.
pub struct Tasks {
    set: JoinSet<anyhow::Result<()>>,
    names: HashMap<Id, &'static str>,
    stop: CancellationToken,
    longest_end: Duration,
}

impl Tasks {
    /// `stop` is what ends every task.
    pub fn new(stop: CancellationToken) -> Self {
        Self { set: JoinSet::new(), names: HashMap::new(), stop, longest_end: LONGEST_END }
    }

    /// Gives the tasks so much more time to end, because one of them finishes something first.
    #[must_use]
    pub fn with_longer_end(mut self, more: Duration) -> Self {
        self.longest_end += more;
        self
    }

    /// `name` tells operators which task ended.
    pub fn spawn<E>(
        &mut self,
        name: &'static str,
        task: impl Future<Output = Result<(), E>> + Send + 'static,
    ) where
        E: Into<anyhow::Error> + 'static,
    {
        let task = self.set.spawn(async move { task.await.map_err(Into::into) });
        self.names.insert(task.id(), name);
    }

    /// Runs until `signal` resolves or a task ends, then stops the others.
    pub async fn run(mut self, signal: impl Future<Output = ()>) -> anyhow::Result<()> {
        let outcome = tokio::select! {
            () = signal => Ok(()),
            Some(ended) = self.set.join_next_with_id() => {
                let (name, outcome) = self.identify(ended);
                Err(outcome.err().unwrap_or_else(|| anyhow!("ended without a reason")))
                    .with_context(|| name)
            }
        };
        self.stop.cancel();
        let longest_end = self.longest_end;
        let rest = async {
            let mut outcome = Ok(());
            while let Some(ended) = self.set.join_next_with_id().await {
                let (name, ended) = self.identify(ended);
                outcome = outcome.and(ended.context(name));
            }
            outcome
        };
        match timeout(longest_end, rest).await {
            // What ended first is the cause; the others may have failed because of it.
            Ok(rest) => outcome.and(rest),
            Err(_) => {
                let mut late: Vec<&str> = self.names.values().copied().collect();
                late.sort_unstable();
                tracing::warn!("these tasks did not end in time: {}", late.join(", "));
                outcome
            }
        }
    }

    fn identify(
        &mut self,
        ended: Result<(Id, anyhow::Result<()>), JoinError>,
    ) -> (&'static str, anyhow::Result<()>) {
        let (id, outcome) = match ended {
            Ok(ended) => ended,
            Err(error) => (error.id(), Err(error.into())),
        };
        (self.names.remove(&id).unwrap_or("a task"), outcome)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::pending;

    fn patient(stop: &CancellationToken) -> impl Future<Output = anyhow::Result<()>> + use<> {
        let stop = stop.clone();
        async move {
            stop.cancelled().await;
            Ok(())
        }
    }

    async fn outcome(
        first: impl Future<Output = anyhow::Result<()>> + Send + 'static,
        signal: impl Future<Output = ()>,
    ) -> Result<(), String> {
        let stop = CancellationToken::new();
        let mut tasks = Tasks::new(stop.clone());
        tasks.spawn("patient", patient(&stop));
        tasks.spawn("first", first);
        tasks.run(signal).await.map_err(|error| format!("{error:#}"))
    }

    #[tokio::test]
    async fn a_task_that_ends_ends_the_program_and_says_why() {
        let failed = outcome(async { Err(anyhow!("out of luck")) }, pending()).await;
        assert_eq!(failed, Err("first: out of luck".to_owned()));
        let ended = outcome(async { Ok(()) }, pending()).await;
        assert_eq!(ended, Err("first: ended without a reason".to_owned()));
        let panicked = outcome(async { panic!("oh") }, pending()).await.unwrap_err();
        assert!(panicked.starts_with("first: ") && panicked.contains("oh"), "{panicked}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_may_take_longer_to_end_if_that_was_said() {
        for (more, finished) in [(Duration::ZERO, false), (LONGEST_END, true)] {
            let stop = CancellationToken::new();
            let mut tasks = Tasks::new(stop.clone()).with_longer_end(more);
            let (done, is_done) = tokio::sync::oneshot::channel();
            tasks.spawn("slow", async move {
                stop.cancelled().await;
                tokio::time::advance(LONGEST_END + Duration::from_secs(1)).await;
                tokio::task::yield_now().await;
                done.send(()).map_err(|()| anyhow!("nobody waits"))
            });
            tasks.run(std::future::ready(())).await.unwrap();
            assert_eq!(is_done.await.is_ok(), finished, "with {more:?} more");
        }
    }

    #[tokio::test]
    async fn a_signal_is_a_good_end() {
        let stop = CancellationToken::new();
        let mut tasks = Tasks::new(stop.clone());
        tasks.spawn("patient", patient(&stop));
        tasks.run(std::future::ready(())).await.unwrap();
        assert!(stop.is_cancelled());
    }
}
