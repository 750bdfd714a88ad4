use super::Shared;
use super::claim::{head_in, term_in};
use super::metrics::{Operation, RefusedWrite};
use super::records;
use super::scripts::{self, detail, word};
use crate::codec;
use crate::keys::{SealContext, SealError};
use crate::{Publication, Published, Record, Retirement, StoreError, Term};
use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use heliograph_snapshot::{Address, FleetName, Head, Resource, Section, Snapshot, Tree};
use redis::cmd;
use std::time::Duration;

/// How much is written in one command, at most, if it is more than one object.
const UPLOAD_BYTES: usize = 256 << 10;
const UPLOAD_OBJECTS: usize = 500;
/// How many such commands are on their way at once.
const UPLOADS: usize = 4;

/// For so long the objects stay that no head was written for.
const UNCLAIMED: Duration = Duration::from_secs(3600);

/// An object, and where it belongs.
pub(super) type Object = (Address, Bytes);

impl Shared {
    pub(super) async fn publish(&self, publication: Publication) -> Result<Published, StoreError> {
        let fleet = &publication.snapshot.fleet;
        let objects = self.objects_of(&publication.snapshot, publication.held.as_deref())?;
        let published = Published {
            objects: objects.len(),
            bytes: objects.iter().map(|(_, bytes)| bytes.len()).sum(),
        };
        let record = publication.record();
        if publication.expected.is_none() {
            self.enter(&record).await?;
        }
        // Without the objects in the store it is not known which become garbage; then all are written, most of them
        // where they are already.
        let held = publication.held.as_deref().filter(|_| publication.expected.is_some());
        if let Some(held) = held
            && let Err(error) = self.make_room(held, published.bytes as u64).await
        {
            if let StoreError::Fenced { .. } = error {
                return Err(error);
            }
            tracing::debug!(%fleet, "there may be no room for what is written next: {error}");
        }
        let written = self.write(&publication, &record, objects.clone()).await;
        match (written, held) {
            // No other write of the fleet is under way, and this one was refused. So what nothing leads to may go, also
            // what was written of this publication: all of it is written again.
            (Err(StoreError::Full(_)), Some(held)) if self.free_memory(held).await? => {
                self.write(&publication, &record, objects).await?;
            }
            (written, _) => written?,
        }
        Ok(published)
    }

    async fn write(
        &self,
        publication: &Publication,
        record: &Record,
        objects: Vec<Object>,
    ) -> Result<(), StoreError> {
        let fleet = &record.fleet;
        // Before, because what is there of an upload that fails counts too.
        self.cleaning().entry(fleet.clone()).or_default().write(objects.iter());
        if publication.expected.is_none() {
            self.stage(fleet, objects).await?;
        } else {
            self.upload(fleet, objects).await?;
        }
        let steps = if publication.is_step() { self.options.history } else { 0 };
        self.commit(record, publication.expected, steps).await
    }

    pub(super) async fn retire(&self, retirement: Retirement) -> Result<(), StoreError> {
        let record = retirement.record();
        if retirement.expected.is_none() {
            self.enter(&record).await?;
        }
        self.commit(&record, retirement.expected, 0).await?;
        self.cleaning().remove(&record.fleet);
        // What it was pinned to is gone. If this fails, the retirement is asked for again, and this with it.
        self.forget_order(&record.fleet).await
    }

    /// Announces a head to readers. In a Cluster the index is in another slot than the fleet, and so it comes after the
    /// commit; if it does not come at all, the next inspection repairs it. `wrong` is what the index has and should not.
    pub(super) async fn announce(
        &self,
        fleet: &FleetName,
        head: Head,
        wrong: Option<Head>,
    ) -> Result<(), StoreError> {
        let call = scripts::ANNOUNCE
            .call()
            .key(self.names.heads())
            .key(self.names.change_token())
            .key(self.names.term())
            .arg(fleet.as_str())
            .arg(head.to_string())
            .arg(self.names.bell())
            .arg(if self.is_cluster() { "SPUBLISH" } else { "PUBLISH" })
            .arg(wrong.map(|head| head.to_string()).unwrap_or_default())
            .arg(change_token());
        let reply = self.invoke(Operation::Announce, call).await?;
        self.report_bell(detail(&reply));
        Ok(())
    }

    /// The objects that Redis needs for a snapshot, without those that it has for `held`.
    pub(super) fn objects_of(
        &self,
        snapshot: &Snapshot,
        held: Option<&Snapshot>,
    ) -> Result<Vec<Object>, StoreError> {
        let mut objects = Vec::new();
        for section in Section::all() {
            static NOTHING: Tree = Tree::new();
            let held = held.map_or(&NOTHING, |held| held.section(section));
            let additions = snapshot.section(section).additions_to(held);
            let leaves = additions.leaves.iter();
            objects.extend(leaves.map(|(at, resources)| (*at, codec::leaf(section, resources))));
            let branches = additions.branches.iter();
            objects.extend(branches.map(|(at, children)| (*at, codec::branch(children))));
            for resource in additions.resources {
                if codec::is_in_leaf(section, resource) {
                    continue;
                }
                let body = self.body(&snapshot.fleet, section, resource)?;
                if body.len() > codec::LARGEST {
                    return Err(StoreError::Refused(format!(
                        "{}: the {section} {} is larger than {} bytes, which no reader accepts",
                        snapshot.fleet,
                        resource.name,
                        codec::LARGEST
                    )));
                }
                objects.push((resource.address, body));
            }
        }
        Ok(objects)
    }

    /// A resource's body as it is stored: sealed, if it is confidential.
    pub(super) fn body(
        &self,
        fleet: &FleetName,
        section: Section,
        resource: &Resource,
    ) -> Result<Bytes, StoreError> {
        if !section.seals(resource) {
            return Ok(codec::body(&resource.body));
        }
        let context = seal_context(fleet, section, resource.name.as_ref(), &resource.address);
        let sealed = self.keys().seal(&context, &resource.body);
        let refused = |error: SealError| {
            StoreError::Refused(format!("{fleet}: the {section} {}: {error}", resource.name))
        };
        Ok(codec::sealed(&sealed.map_err(refused)?))
    }

    pub(super) async fn upload(
        &self,
        fleet: &FleetName,
        objects: Vec<Object>,
    ) -> Result<(), StoreError> {
        let (count, bytes) = (objects.len(), objects.iter().map(|(_, bytes)| bytes.len()).sum());
        let writes = batches(objects).into_iter().map(|batch| {
            let mut command = cmd("HSET");
            command.arg(self.names.objects(fleet));
            for (address, bytes) in &batch {
                command.arg(&address.0).arg(bytes.as_ref());
            }
            async move { self.query::<()>(Operation::Upload, &command).await }
        });
        stream::iter(writes).buffered(UPLOADS).try_collect::<()>().await?;
        self.metrics.written(count, bytes);
        Ok(())
    }

    /// Uploads what there may never be a head for.
    async fn stage(&self, fleet: &FleetName, objects: Vec<Object>) -> Result<(), StoreError> {
        let (count, bytes) = (objects.len(), objects.iter().map(|(_, bytes)| bytes.len()).sum());
        let writes = batches(objects).into_iter().map(|batch| {
            let call = scripts::STAGE
                .call()
                .key(self.names.head(fleet))
                .key(self.names.objects(fleet))
                .arg(UNCLAIMED.as_millis().to_string());
            let call =
                batch.iter().fold(call, |call, (address, bytes)| call.arg(address.0).arg(bytes));
            async move { self.invoke(Operation::Upload, call).await.map(|_| ()) }
        });
        stream::iter(writes).buffered(UPLOADS).try_collect::<()>().await?;
        self.metrics.written(count, bytes);
        Ok(())
    }

    /// Logs once that readers find changes only by comparing.
    fn report_bell(&self, problem: &str) {
        let mut log = self.bell_log.lock();
        if problem.is_empty() {
            log.worked();
        } else if log.failed(&()) {
            tracing::warn!(
                "readers are not notified of changes and see them a second or two later: Redis does not allow this user to publish to {}: {problem}",
                self.names.bell()
            );
        }
    }

    /// In a Cluster the index must know a fleet before there is a head, and no script sees both the fleet and the term of
    /// all: a translator whose term is over is stopped here, and if it slips through, the next inspection shows it.
    async fn enter(&self, record: &Record) -> Result<(), StoreError> {
        if !self.is_cluster() {
            return Ok(());
        }
        let (ours, theirs) = (Term::from(record.head), self.read_term(Operation::Commit).await?);
        if ours < theirs && !self.is_written(record).await? {
            return Err(self.fenced(ours, theirs));
        }
        let command = cmd("HSETNX")
            .arg(self.names.heads())
            .arg(record.fleet.as_str())
            .arg(Head::default().to_string())
            .take();
        self.query(Operation::Commit, &command).await
    }

    /// Whether the record is there already: the answer was lost and the writer asks again.
    async fn is_written(&self, record: &Record) -> Result<bool, StoreError> {
        let found = self.values(Operation::Commit, std::slice::from_ref(&record.fleet)).await?;
        Ok(found == [Some(records::value(record, &self.signer()))])
    }

    async fn commit(
        &self,
        record: &Record,
        expected: Option<Head>,
        steps: usize,
    ) -> Result<(), StoreError> {
        let Record { fleet, head, .. } = record;
        let mut call = scripts::COMMIT
            .call()
            .key(self.term_key(fleet))
            .key(self.names.head(fleet))
            .key(self.names.history(fleet))
            .key(self.names.objects(fleet));
        if !self.is_cluster() {
            call = call.key(self.names.heads()).key(self.names.change_token());
        }
        let forged = self.forged().get(fleet).cloned();
        let call = call
            .arg(expected.map(|head| head.to_string()).unwrap_or_default())
            .arg(head.to_string())
            .arg(records::value(record, &self.signer()))
            .arg(forged.unwrap_or_default())
            .arg(steps.to_string())
            .arg(if record.is_live() { "0" } else { "1" })
            .arg(fleet.as_str())
            .arg(self.names.bell())
            .arg(change_token());
        let reply = self.invoke(Operation::Commit, call).await?;
        let fleet = fleet.clone();
        match word(&reply) {
            "ok" => {
                self.forged().remove(&fleet);
                self.report_bell(detail(&reply));
                if self.is_cluster() && self.announce(&fleet, *head, None).await.is_err() {
                    tracing::debug!(%fleet, "written, and not told yet");
                }
                Ok(())
            }
            "fenced" => Err(self.fenced((*head).into(), term_in(detail(&reply))?)),
            "conflict" => {
                self.metrics.refused_write(RefusedWrite::Conflict);
                Err(StoreError::Conflict { fleet, expected, found: head_in(detail(&reply)) })
            }
            "old" => {
                self.metrics.refused_write(RefusedWrite::NotNewer);
                let found = head_in(detail(&reply)).unwrap_or_default();
                Err(StoreError::NotNewer { fleet, offered: *head, found })
            }
            other => Err(StoreError::Refused(format!("{fleet}: Redis answered {other:?}"))),
        }
    }
}

/// Never the same again: a reader that has seen it before has seen all that it stands for.
fn change_token() -> String {
    format!("{:032x}", fastrand::u128(..))
}

/// The context for which a resource is sealed.
pub(super) fn seal_context<'a>(
    fleet: &'a FleetName,
    section: Section,
    name: &'a str,
    address: &'a Address,
) -> SealContext<'a> {
    SealContext { fleet: fleet.as_str(), kind: section.as_str(), name, hash: &address.0 }
}

fn batches(objects: Vec<Object>) -> Vec<Vec<Object>> {
    let mut batches: Vec<Vec<Object>> = Vec::new();
    let mut size = 0;
    for object in objects {
        let length = object.1.len();
        match batches.last_mut() {
            Some(batch) if batch.len() < UPLOAD_OBJECTS && size + length <= UPLOAD_BYTES => {
                size += length;
                batch.push(object);
            }
            _ => {
                size = length;
                batches.push(vec![object]);
            }
        }
    }
    batches
}
