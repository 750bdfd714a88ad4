//! Queries the admin ports of translators and distributors, all at once and each for a bounded time.

mod admin_address;
mod cluster;
mod connection;
mod metrics;
mod pages;

pub(crate) use cluster::Pod;
pub(crate) use connection::AdminConnection;
pub(crate) use metrics::ScrapedMetrics;
pub(crate) use pages::{
    Acks, ClientRow, FleetRow, PinRow, ResourceRow, SnapshotContent, encoded, parsed,
};

use crate::output::{self, with_progress};
use admin_address::AdminAddress;
use anyhow::bail;
use futures::future::join_all;
use heliograph_shared::duration;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use std::time::Duration;
use tokio::time::timeout;

/// The flags of a command that asks what runs.
#[derive(Clone, Debug, clap::Args)]
#[command(next_help_heading = "Programs to query")]
pub(crate) struct SourcesArgs {
    /// URL of the admin port of a translator, a distributor or `helio standalone`, http://HOST:PORT; can be repeated. Without it,
    /// helio queries the pods of a cluster through the API server
    #[arg(long, env = "HELIO_ADMIN", value_name = "URL", value_delimiter = ',')]
    admin: Vec<AdminAddress>,

    /// Namespace in which Heliograph is installed
    #[arg(
        short,
        long,
        env = "HELIO_NAMESPACE",
        value_name = "NAME",
        default_value = "heliograph-system"
    )]
    namespace: String,

    /// Kubeconfig file [default: as for kubectl]
    #[arg(long, env = "HELIO_KUBECONFIG", value_name = "FILE")]
    kubeconfig: Option<PathBuf>,

    /// Context of the kubeconfig [default: its current context]
    #[arg(long, env = "HELIO_KUBE_CONTEXT", value_name = "NAME")]
    kube_context: Option<String>,

    /// Maximum time to wait for the response of each program
    #[arg(
        long,
        env = "HELIO_TIMEOUT",
        value_name = "DURATION",
        default_value = "5s",
        value_parser = duration::parse
    )]
    timeout: Duration,
}

/// All that can be asked.
#[derive(Clone, Debug)]
pub(crate) struct Sources {
    all: Vec<AdminSource>,
    /// Pods that cannot be asked any more; only where they are wanted.
    ended: Vec<Pod>,
    timeout: Duration,
    is_whole: bool,
}

/// One program with an admin port.
#[derive(Clone, Debug)]
pub(crate) struct AdminSource {
    pub(crate) name: String,
    way: Way,
}

#[derive(Clone, Debug)]
enum Way {
    Direct(AdminAddress),
    Pod(Box<Pod>),
}

/// A program that is asked one thing after the other, each for a bounded time: what it does not answer keeps it from no
/// other question.
#[derive(Debug)]
pub(crate) struct AdminPort<'a> {
    pub(crate) source: &'a AdminSource,
    limit: Duration,
    /// None before the first question, and after one that was not answered: the answer may still be on its way there.
    connection: Option<AdminConnection>,
}

/// The answers, and the programs that did not answer.
#[derive(Clone, Debug)]
pub(crate) struct Answers<T> {
    pub(crate) given: Vec<(String, T)>,
    pub(crate) silent: Vec<Silent>,
    /// There are no other programs: all pods of a cluster were asked, and not ports that the user named.
    pub(crate) is_whole: bool,
}

/// One that was asked and did not answer, or not what it should.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Silent {
    pub(crate) name: String,
    pub(crate) why: String,
}

impl Silent {
    /// The name of Redis among the programs that do not answer.
    pub(crate) const STORE: &str = "the store";

    pub(crate) fn new(name: impl Into<String>, why: &anyhow::Error) -> Self {
        Self { name: name.into(), why: format!("{why:#}") }
    }
}

impl SourcesArgs {
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    pub(crate) async fn open(&self) -> anyhow::Result<Sources> {
        self.found(false).await
    }

    /// With the pods of a cluster that ended, even if there are no others.
    pub(crate) async fn open_with_ended(&self) -> anyhow::Result<Sources> {
        self.found(true).await
    }

    async fn found(&self, with_ended: bool) -> anyhow::Result<Sources> {
        let direct = |address: &AdminAddress| AdminSource {
            name: address.to_string(),
            way: Way::Direct(address.clone()),
        };
        let (mut all, ended): (Vec<AdminSource>, Vec<Pod>) = match self.admin.is_empty() {
            false => (self.admin.iter().map(direct).collect(), Vec::new()),
            true => {
                let looking = cluster::pods(self, with_ended);
                let found = timeout(
                    self.timeout,
                    with_progress(looking, || {
                        format!("looking for pods in the namespace {}", self.namespace)
                    }),
                );
                match found.await {
                    Ok(found) => {
                        let (ended, running) = found?;
                        (running.into_iter().map(AdminSource::of_pod).collect(), ended)
                    }
                    Err(_) => bail!(
                        "the Kubernetes API did not answer within {:?}: is --kubeconfig the right one? Or set --admin http://HOST:PORT",
                        self.timeout
                    ),
                }
            }
        };
        all.sort_by(|one, other| one.name.cmp(&other.name));
        all.dedup_by(|one, other| one.name == other.name);
        Ok(Sources { all, ended, timeout: self.timeout, is_whole: self.admin.is_empty() })
    }
}

impl AdminSource {
    fn of_pod(pod: Pod) -> Self {
        Self { name: pod.name().to_owned(), way: Way::Pod(Box::new(pod)) }
    }

    async fn connect(&self) -> anyhow::Result<AdminConnection> {
        match &self.way {
            Way::Direct(address) => address.connect().await,
            Way::Pod(pod) => pod.connect().await,
        }
    }

    /// The pod that it is, if it was found in a cluster.
    pub(crate) fn pod(&self) -> Option<&Pod> {
        match &self.way {
            Way::Direct(_) => None,
            Way::Pod(pod) => Some(pod),
        }
    }
}

impl Sources {
    pub(crate) fn iter(&self) -> impl Iterator<Item = &AdminSource> {
        self.all.iter()
    }

    /// The newest of the pods that ended, sorted by name.
    pub(crate) fn ended(&self) -> impl Iterator<Item = &Pod> {
        self.ended.iter()
    }

    /// Only those with these names.
    pub(crate) fn only(&self, is_wanted: impl Fn(&str) -> bool) -> Self {
        let mut all = self.all.clone();
        all.retain(|source| is_wanted(&source.name));
        Self { all, ended: Vec::new(), timeout: self.timeout, is_whole: false }
    }

    /// The same, for a question that takes longer.
    pub(crate) fn with_long_timeout(&self) -> Self {
        Self { timeout: self.timeout * 6, ..self.clone() }
    }

    /// See [`Answers::is_whole`].
    pub(crate) fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Asks all at once. One that fails or takes too long does not affect the others. It is an error if none answers.
    pub(crate) async fn ask<T>(
        &self,
        question: impl AsyncFn(&AdminSource, &mut AdminConnection) -> anyhow::Result<T>,
    ) -> anyhow::Result<Answers<T>> {
        let answers = self.try_to_ask(question).await;
        if answers.given.is_empty() {
            report_silent(&answers.silent);
            bail!("no program responded");
        }
        Ok(answers)
    }

    /// The same, where no answer is one, too.
    pub(crate) async fn try_to_ask<T>(
        &self,
        question: impl AsyncFn(&AdminSource, &mut AdminConnection) -> anyhow::Result<T>,
    ) -> Answers<T> {
        let ask_one = async |port: &mut AdminPort<'_>| {
            let source = port.source;
            port.ask(async |connection| question(source, connection).await).await
        };
        let (mut given, mut silent) = (Vec::new(), Vec::new());
        for (name, answer) in self.each(ask_one).await {
            match answer {
                Ok(answer) => given.push((name, answer)),
                Err(error) => silent.push(Silent::new(name, &error)),
            }
        }
        Answers { given, silent, is_whole: self.is_whole }
    }

    /// Does something with all of them at once. Each question has a time limit.
    pub(crate) async fn each<T>(
        &self,
        work: impl AsyncFn(&mut AdminPort<'_>) -> T,
    ) -> Vec<(String, T)> {
        let missing: Mutex<Vec<&str>> = Mutex::new(self.all.iter().map(|it| &*it.name).collect());
        let waiting = || missing.lock();
        let with_one = async |source: &AdminSource| {
            let mut port = AdminPort { source, limit: self.timeout, connection: None };
            let outcome = work(&mut port).await;
            waiting().retain(|name| *name != source.name);
            (source.name.clone(), outcome)
        };
        let all = join_all(self.all.iter().map(with_one));
        with_progress(all, || {
            let missing = waiting();
            format!("waiting for {} of {}: {}", missing.len(), self.all.len(), missing.join(", "))
        })
        .await
    }
}

impl AdminPort<'_> {
    pub(crate) async fn ask<T>(
        &mut self,
        question: impl AsyncFnOnce(&mut AdminConnection) -> anyhow::Result<T>,
    ) -> anyhow::Result<T> {
        let kept = self.connection.take();
        let asked = async {
            let mut connection = match kept {
                Some(connection) => connection,
                None => self.source.connect().await?,
            };
            let answer = question(&mut connection).await?;
            anyhow::Ok((connection, answer))
        };
        match timeout(self.limit, asked).await {
            Ok(answered) => {
                let (connection, answer) = answered?;
                self.connection = Some(connection);
                Ok(answer)
            }
            Err(_) => bail!("no answer within {:?}", self.limit),
        }
    }
}

/// Names those who did not answer.
pub(crate) fn report_silent(silent: &[Silent]) {
    for Silent { name, why } in silent {
        output::message(&format!("{name} did not answer: {}", output::one_line(why)));
    }
}
