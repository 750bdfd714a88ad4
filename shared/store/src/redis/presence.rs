use super::Shared;
use super::acks::{milliseconds, since_epoch};
use super::metrics::Operation;
use crate::{PRESENCE_EXPIRY, Presence, StoreError, codec};
use redis::cmd;
use std::time::Duration;

/// The times are of the replicas' clocks, which differ by less.
const CLOCKS_DIFFER: Duration = Duration::from_secs(6 * PRESENCE_EXPIRY.as_secs());

impl Shared {
    /// The list is cleared each time of those that are gone for long, and not by name: one may come back meanwhile, and
    /// then its time is another.
    pub(super) async fn send_presence(&self, presence: Presence) -> Result<(), StoreError> {
        let (replica, list) = (&presence.replica, self.names.presences());
        let expires = since_epoch() + PRESENCE_EXPIRY;
        let set = cmd("SET")
            .arg(self.names.presence(replica))
            .arg(codec::presence(&presence, &self.signer()).as_ref())
            .arg("PX")
            .arg(milliseconds(PRESENCE_EXPIRY))
            .take();
        let add = cmd("ZADD").arg(&list).arg(milliseconds(expires)).arg(replica).take();
        let long_ago = milliseconds(expires.saturating_sub(CLOCKS_DIFFER));
        let clear = cmd("ZREMRANGEBYSCORE").arg(&list).arg("-inf").arg(long_ago).take();
        let queries = [set, add, clear];
        let queries = queries.iter().map(|query| self.query::<()>(Operation::Presence, query));
        futures::future::try_join_all(queries).await.map(|_| ())
    }

    pub(super) async fn read_presences(&self) -> Result<Vec<Presence>, StoreError> {
        let list = cmd("ZRANGE")
            .arg(self.names.presences())
            .arg(0)
            .arg(Presence::REPLICAS - 1)
            .arg("REV")
            .take();
        let name = |replica: &str| self.names.presence(replica);
        let found = self.listed(Operation::Presence, &list, name).await?.into_iter();
        let signer = self.signer();
        let read = |value: &_| codec::read_presence(value, &signer);
        let readable = found.filter_map(|(replica, value)| match read(&value?) {
            Ok(presence) if presence.replica == replica => Some(presence),
            _ => {
                tracing::debug!(replica, "its presence cannot be read");
                None
            }
        });
        Ok(readable.collect())
    }
}
