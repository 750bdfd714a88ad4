//! A single server, Sentinels and a Cluster, as one.

use crate::servers::{Cluster, Sentinels, Server};

/// Where the store is.
pub(super) trait Site {
    fn url(&self) -> String;

    /// Those that have data come first.
    fn servers(&mut self) -> Vec<&mut Server>;

    /// Until all of them work together.
    async fn settle(&self);

    /// It loses all data.
    async fn empty(&mut self) {
        for server in self.servers() {
            if server.is_master().await {
                server.query::<()>(&["FLUSHALL"]).await.unwrap();
            }
        }
    }

    /// It is gone, and its data is on its disks.
    async fn stop_all(&mut self) {
        let mut servers = self.servers();
        for server in &servers {
            // A Sentinel has nothing to save.
            let _ = server.query::<()>(&["SAVE"]).await;
        }
        // Sentinels first, so that none looks for another master.
        servers.iter_mut().rev().for_each(|server| server.stop());
    }

    async fn start_again(&mut self) {
        for server in self.servers() {
            server.restart_stopped().await;
        }
        self.settle().await;
    }
}

impl Site for Server {
    fn url(&self) -> String {
        self.url()
    }

    fn servers(&mut self) -> Vec<&mut Server> {
        vec![self]
    }

    async fn settle(&self) {}
}

impl Site for Sentinels {
    fn url(&self) -> String {
        self.url()
    }

    fn servers(&mut self) -> Vec<&mut Server> {
        self.servers.iter_mut().chain(&mut self.sentinels).collect()
    }

    async fn settle(&self) {
        self.settle().await;
    }
}

impl Site for Cluster {
    fn url(&self) -> String {
        self.url()
    }

    fn servers(&mut self) -> Vec<&mut Server> {
        self.nodes.iter_mut().collect()
    }

    async fn settle(&self) {
        self.until_whole().await;
    }
}

/// Each of these tests at a single server, at Sentinels and at a Cluster.
macro_rules! at_every_site {
    ($($test:ident,)+) => {
        mod server {
            $(#[tokio::test]
            async fn $test() {
                super::$test(crate::servers::Server::start(&[]).await).await;
            })+
        }

        mod sentinels {
            $(#[tokio::test]
            async fn $test() {
                super::$test(crate::servers::Sentinels::start().await).await;
            })+
        }

        mod cluster {
            $(#[tokio::test]
            async fn $test() {
                super::$test(crate::servers::Cluster::start().await).await;
            })+
        }
    };
}

pub(super) use at_every_site;
