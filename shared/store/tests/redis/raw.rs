//! Redis as somebody sees it who is not one of our programs.

use crate::servers::{Server, connect};
use redis::aio::MultiplexedConnection;
use redis::{FromRedisValue, ToRedisArgs, cmd};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) struct Raw {
    connection: MultiplexedConnection,
}

impl Raw {
    pub(crate) async fn of(server: &Server) -> Self {
        Self { connection: server.connect().await.unwrap() }
    }

    pub(crate) async fn at(url: &str) -> Self {
        Self { connection: connect(url).await.unwrap() }
    }

    pub(crate) async fn ask<T: FromRedisValue>(
        &mut self,
        name: &str,
        arguments: impl ToRedisArgs,
    ) -> T {
        cmd(name).arg(arguments).query_async(&mut self.connection).await.unwrap()
    }

    pub(crate) async fn get(&mut self, key: &str) -> Option<Vec<u8>> {
        self.ask("GET", key).await
    }

    pub(crate) async fn set(&mut self, key: &str, value: &[u8]) {
        self.ask::<()>("SET", (key, value)).await;
    }

    pub(crate) async fn hash(&mut self, key: &str) -> BTreeMap<Vec<u8>, Vec<u8>> {
        self.ask("HGETALL", key).await
    }

    pub(crate) async fn set_field(&mut self, key: &str, field: &[u8], value: &[u8]) {
        self.ask::<()>("HSET", (key, field, value)).await;
    }

    pub(crate) async fn delete_field(&mut self, key: &str, field: &[u8]) {
        self.ask::<()>("HDEL", (key, field)).await;
    }

    /// The addresses that are stored for a fleet.
    pub(crate) async fn addresses(&mut self, key: &str) -> BTreeSet<[u8; 32]> {
        let fields: Vec<Vec<u8>> = self.ask("HKEYS", key).await;
        fields.into_iter().map(|field| field.try_into().unwrap()).collect()
    }

    /// Lets every reader compare what it has with what is here, without waiting for a message.
    pub(crate) async fn ring(&self, fleet: &str) {
        let mut connection = self.connection.clone();
        let words = ("heliograph:{index}:bell", format!("{fleet} 0.0.0"));
        cmd("PUBLISH").arg(words).query_async::<()>(&mut connection).await.unwrap();
    }

    /// Every byte that is stored: keys, fields and values.
    pub(crate) async fn everything(&mut self) -> Vec<Vec<u8>> {
        let keys: Vec<String> = self.ask("KEYS", "*").await;
        let mut all = Vec::new();
        for key in keys {
            let kind: String = self.ask("TYPE", &key).await;
            match kind.as_str() {
                "string" => all.extend(self.get(&key).await),
                "hash" => {
                    all.extend(
                        self.hash(&key).await.into_iter().flat_map(|(field, value)| [field, value]),
                    );
                }
                "list" => all.extend(self.ask::<Vec<Vec<u8>>>("LRANGE", (&key, 0, -1)).await),
                "zset" => all.extend(self.ask::<Vec<Vec<u8>>>("ZRANGE", (&key, 0, -1)).await),
                other => panic!("{key} is a {other}"),
            }
            all.push(key.into_bytes());
        }
        all
    }
}
