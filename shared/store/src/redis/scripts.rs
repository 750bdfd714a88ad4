//! The scripts: decisions that Redis must make and carry out in one step.

use redis::aio::ConnectionLike;
use redis::{Cmd, ErrorKind, RedisResult, ServerErrorKind, cmd};
use std::sync::LazyLock;

pub(super) struct Script {
    text: &'static str,
    hash: String,
}

/// A script with what it is to work on.
pub(super) struct Call {
    script: &'static Script,
    keys: Vec<String>,
    arguments: Vec<Vec<u8>>,
}

/// A script's answer: a word, and a detail.
pub(super) type Reply = Vec<String>;

macro_rules! script {
    ($name:ident, $file:literal) => {
        pub(super) static $name: LazyLock<Script> = LazyLock::new(|| {
            Script::new(concat!(include_str!("scripts/terms.lua"), "\n", include_str!($file)))
        });
    };
}

script!(CLAIM, "scripts/claim.lua");
script!(ADVANCE, "scripts/advance.lua");
script!(ADOPT, "scripts/adopt.lua");
script!(STAGE, "scripts/stage.lua");
script!(COMMIT, "scripts/commit.lua");
script!(ANNOUNCE, "scripts/announce.lua");
script!(SWEEP, "scripts/sweep.lua");
script!(SIZES, "scripts/sizes.lua");
script!(RESEAL, "scripts/reseal.lua");
script!(FORGET, "scripts/forget.lua");
script!(ORDER, "scripts/order.lua");

pub(super) fn word(reply: &Reply) -> &str {
    reply.first().map_or("", String::as_str)
}

pub(super) fn detail(reply: &Reply) -> &str {
    reply.get(1).map_or("", String::as_str)
}

impl Script {
    fn new(text: &'static str) -> Self {
        Self { text, hash: redis::Script::new(text).get_hash().to_owned() }
    }

    pub(super) fn call(&'static self) -> Call {
        Call { script: self, keys: Vec::new(), arguments: Vec::new() }
    }
}

impl Call {
    #[must_use]
    pub(super) fn key(mut self, key: String) -> Self {
        self.keys.push(key);
        self
    }

    #[must_use]
    pub(super) fn arg(mut self, argument: impl AsRef<[u8]>) -> Self {
        self.arguments.push(argument.as_ref().to_vec());
        self
    }

    /// By its hash, and with its text where that is not known. `redis::Script` would load the text into all masters of a
    /// Cluster first, and so fail if one of them is unreachable that is not needed.
    pub(super) async fn run(&self, connection: &mut impl ConnectionLike) -> RedisResult<Reply> {
        let by_hash = self.command("EVALSHA", &self.script.hash);
        let answer: RedisResult<Vec<Vec<u8>>> = match by_hash.query_async(connection).await {
            Err(error) if error.kind() == ErrorKind::Server(ServerErrorKind::NoScript) => {
                self.command("EVAL", self.script.text).query_async(connection).await
            }
            answer => answer,
        };
        // A detail may come from a foreign value, and so be any bytes.
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ok(answer?.into_iter().map(text).collect())
    }

    fn command(&self, name: &str, script: &str) -> Cmd {
        let mut command = cmd(name);
        command.arg(script).arg(self.keys.len()).arg(&self.keys).arg(&self.arguments);
        command
    }
}
