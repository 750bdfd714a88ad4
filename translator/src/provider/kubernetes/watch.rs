//! The watch of one kind.

mod currency;
mod recovery;
mod unanswered;

pub(super) use recovery::answer;

use super::api_failure::ApiFailure;
use super::barrier::Barrier;
use super::object_cache::{ObjectCache, ObjectChange};
use super::protection::Message;
use super::selection::Selection;
use super::served::{Served, ServedMetadata};
use super::watch_health::WatchHealth;
use crate::kubernetes::{Deployed, DeployedPart, Observed, ObservedObject};
use crate::provider::Input;
use futures::Stream;
use futures::stream::{BoxStream, StreamExt};
use heliograph_gateway::Event;
use heliograph_gateway::objects::{Kind, Object, ObjectName, Unreadable};
use kube::api::{ApiResource, GroupVersionKind, ListParams};
use kube::runtime::watcher;
use kube::{Api, Client};
use parking_lot::{Mutex, MutexGuard};
use serde_json::Value;
use std::collections::BTreeSet;
use std::future::pending;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};
use unanswered::Unanswered;

/// The time limit for one page of a list, and for an answer of discovery.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// After this time the server ends a watch, and it is begun again where it was. On a connection that died unnoticed its
/// end does not arrive; there the client gives up soon after, see [`SILENCE`](crate::connect::SILENCE).
pub(crate) const WATCH_SECONDS: u32 = 90;

/// The same of a protecting kind. On a connection that died unnoticed, objects are missed for so long and a few seconds.
const PROTECTING_WATCH_SECONDS: u32 = 30;

/// The type of Secrets that are watched.
pub(super) const TLS_SECRETS: &str = "kubernetes.io/tls";

const PAGE: u32 = 500;

/// Of metadata. An annotation may have 256 KiB, and a page is in memory whole.
const METADATA_PAGE: u32 = 100;

pub(super) struct KindWatch {
    kind: Kind,
    resource: ApiResource,
    client: Client,
    api: Api<Served>,
    fields: Option<String>,
    selection: Selection,
    cache: ObjectCache,
    /// None for a kind of which nothing runs for Gateways.
    deployed: Option<DeployedPart>,
    outputs: WatchOutputs,
    asked: watch::Receiver<u64>,
    /// After how many askings the list began that is being taken.
    listing_for: u64,
    /// After how many askings all objects were known.
    fresh_for: Option<u64>,
    /// In a row.
    failures: u32,
    failed_at: Instant,
    absent: u32,
    /// How often in a row it had to be listed again soon after it was.
    relists: u32,
    expired_at: Option<Instant>,
    /// The objects that are known to be there, and no more of them.
    unread: BTreeSet<ObjectName>,
    /// The number of the choice of namespaces that objects are listed for.
    choice: Option<u64>,
    /// Whether everything was sent that there is. Of protecting kinds alone.
    is_current: bool,
    /// Of protecting kinds alone.
    unanswered: Unanswered,
}

/// Where a watch sends what it finds.
#[derive(Clone)]
pub(super) struct WatchOutputs {
    pub(super) messages: mpsc::Sender<Message>,
    pub(super) health: WatchHealth,
    pub(super) observed: Observed,
    pub(super) deployed: Deployed,
    pub(super) barrier: Arc<Mutex<Barrier>>,
}

impl WatchOutputs {
    pub(super) fn barrier(&self) -> MutexGuard<'_, Barrier> {
        self.barrier.lock()
    }
}

/// The next step of a watch.
#[derive(PartialEq, Eq)]
enum Next {
    GoOn,
    ListAgain,
}

impl KindWatch {
    /// None for a kind that no API serves.
    pub(super) fn new(
        kind: Kind,
        client: &Client,
        selection: Selection,
        asked: watch::Receiver<u64>,
        outputs: WatchOutputs,
    ) -> Option<Self> {
        let gvk = GroupVersionKind::gvk(kind.group(), kind.api_version()?, kind.as_str());
        let resource = ApiResource::from_gvk(&gvk);
        // Most Secrets of a cluster are releases of charts and tokens, of no use here.
        let fields = (kind == Kind::Secret).then(|| format!("type={TLS_SECRETS}"));
        Some(Self {
            kind,
            api: Api::all_with(client.clone(), &resource),
            resource,
            client: client.clone(),
            fields,
            selection,
            cache: ObjectCache::new(kind),
            deployed: outputs.deployed.of_kind(kind).cloned(),
            outputs,
            asked,
            listing_for: 0,
            fresh_for: None,
            failures: 0,
            failed_at: Instant::now(),
            absent: 0,
            relists: 0,
            expired_at: None,
            unread: BTreeSet::new(),
            choice: None,
            is_current: false,
            unanswered: Unanswered::new(),
        })
    }

    /// Sends everything, then every change. It does not end.
    pub(super) async fn run(mut self) {
        while !self.outputs.messages.is_closed() {
            self.choice = self.selection.known(self.kind).await;
            let seconds =
                if self.kind.is_protecting() { PROTECTING_WATCH_SECONDS } else { WATCH_SECONDS };
            let mut config = watcher::Config::default().timeout(seconds).page_size(self.page());
            config.field_selector = self.fields.clone();
            config.label_selector = self.selection.labels_of(self.kind);
            let stream = self.events(config);
            // It begins with a list, and until that is complete there is nothing to compare with another one.
            self.stale().await;
            self.cache.begin();
            self.follow(pin!(stream)).await;
        }
        // The receiver has ended, and reports why.
        pending().await
    }

    /// Kinds that are read by reference are watched by their metadata alone: most of their objects are never named.
    fn events(
        &self,
        config: watcher::Config,
    ) -> BoxStream<'static, watcher::Result<watcher::Event<Served>>> {
        if self.kind.is_protecting() {
            let client = self.unanswered.client(&self.client);
            return watcher::watcher(Api::all_with(client, &self.resource), config).boxed();
        }
        if !self.kind.is_read_by_reference() {
            return watcher::watcher(self.api.clone(), config).boxed();
        }
        let api = Api::<ServedMetadata>::all_with(self.client.clone(), &self.resource);
        watcher::watcher(api, config).map(|event| event.map(of_metadata)).boxed()
    }

    fn page(&self) -> u32 {
        if self.kind.is_read_by_reference() { METADATA_PAGE } else { PAGE }
    }

    /// Handles events until there is reason to begin with a new list.
    async fn follow(
        &mut self,
        mut stream: Pin<&mut impl Stream<Item = watcher::Result<watcher::Event<Served>>>>,
    ) {
        while !self.outputs.messages.is_closed() {
            if self.is_behind() {
                if self.verify().await == Next::ListAgain {
                    return;
                }
                continue;
            }
            let limit = if self.cache.is_listing() { ANSWER_TIMEOUT } else { Duration::MAX };
            let next = tokio::select! {
                biased;
                // Looked at above.
                Ok(()) = self.asked.changed() => continue,
                () = self.selection.changed(self.kind) => return,
                next = timeout(limit, stream.next()) => next,
                // Behind the stream, so that an answer that is there counts.
                () = self.unanswered.for_long(), if self.is_current => {
                    self.wait_until_listable(ApiFailure::failed("no answer to a watch")).await;
                    return;
                }
            };
            let next = match next {
                Ok(Some(Ok(event))) => {
                    self.handle(event).await;
                    Next::GoOn
                }
                Ok(Some(Err(error))) => self.recover(&error).await,
                Ok(None) => Next::ListAgain,
                Err(_) => {
                    self.wait_until_listable(ApiFailure::unavailable("no answer to a list")).await;
                    Next::ListAgain
                }
            };
            if next == Next::ListAgain {
                return;
            }
        }
    }

    async fn handle(&mut self, event: watcher::Event<Served>) {
        self.record_deployed(&event);
        match event {
            watcher::Event::Init => {
                self.listing_for = *self.asked.borrow_and_update();
                self.stale().await;
                self.cache.begin();
            }
            watcher::Event::InitApply(served) => self.handle_listed(served),
            watcher::Event::InitDone => {
                self.listed().await;
                self.watched();
            }
            watcher::Event::Apply(served) => {
                self.watched();
                self.handle_applied(served).await;
            }
            watcher::Event::Delete(served) => {
                self.watched();
                let name = name_of(&served);
                self.forget(&name);
                if let Some(event) = self.cache.deleted(name) {
                    self.send_events(vec![event]).await;
                }
                self.send_unread().await;
                self.count().await;
            }
        }
    }

    /// Also of namespaces that are not selected: what runs for a Gateway is not translated.
    fn record_deployed(&self, event: &watcher::Event<Served>) {
        let Some(deployed) = &self.deployed else { return };
        match event {
            watcher::Event::Init => deployed.begin_list(),
            watcher::Event::InitApply(served) | watcher::Event::Apply(served) => {
                let labels = served.metadata.labels.as_ref();
                deployed.record(&name_of(served), &version_of(served), labels);
            }
            watcher::Event::InitDone => deployed.complete_list(),
            watcher::Event::Delete(served) => deployed.remove(&name_of(served)),
        }
    }

    fn handle_listed(&mut self, served: Served) {
        let name = name_of(&served);
        if !self.selection.has(self.kind, &name) {
            return;
        }
        let version = version_of(&served);
        if self.cache.has(&name, &version) {
            return self.cache.listed_as_known(name);
        }
        let object = self.read(&name, served);
        let change = self.cache.listed(name.clone(), &version, object);
        self.record_read_failure(&name, change);
    }

    async fn handle_applied(&mut self, served: Served) {
        let name = name_of(&served);
        let version = version_of(&served);
        if !self.selection.has(self.kind, &name) || self.cache.has(&name, &version) {
            return;
        }
        let object = self.read(&name, served);
        let change = self.cache.applied(name.clone(), &version, object);
        if let Some(event) = self.record_read_failure(&name, change) {
            self.send_events(vec![event]).await;
        }
        self.send_unread().await;
        self.count().await;
    }

    /// A list is complete, or there is nothing to list.
    async fn listed(&mut self) {
        let (events, gone) = self.cache.complete();
        for name in gone {
            self.forget(&name);
        }
        if !events.is_empty() {
            self.send_events(events).await;
        }
        self.send_unread().await;
        self.count().await;
        self.current().await;
        self.reach(self.listing_for).await;
    }

    fn read(&self, name: &ObjectName, served: Served) -> Result<Object, Unreadable> {
        let Served { mut metadata, mut status, fields } = served;
        if self.kind.is_read_by_reference() {
            // They say that it runs for a Gateway, which is recorded.
            metadata.labels = None;
        }
        let mut seen = ObservedObject {
            generation: metadata.generation.unwrap_or_default(),
            resource_version: metadata.resource_version.clone().unwrap_or_default(),
            uid: metadata.uid.clone().unwrap_or_default(),
            ..ObservedObject::default()
        };
        let object = fields.map_err(Unreadable::new).and_then(|mut fields| {
            if !self.kind.has_status() {
                // Another controller writes it, so it is a fact like others: the address of a Service.
                fields.insert("status".to_owned(), status.take());
            }
            self.kind.read(metadata, &mut Value::Object(fields))
        });
        if self.kind.has_status() {
            seen.status = Arc::new(status);
            seen.unreadable = object.as_ref().err().map(|reason| reason.to_string().into());
            self.outputs.observed.record(&name.clone().of(self.kind), seen);
        }
        object
    }

    fn record_read_failure(&self, name: &ObjectName, change: ObjectChange) -> Option<Event> {
        if let Some(unreadable) = change.read_failure {
            self.outputs.health.record_object(&name.clone().of(self.kind), unreadable);
        }
        change.event
    }

    fn forget(&self, name: &ObjectName) {
        let key = name.clone().of(self.kind);
        self.outputs.health.forget_object(&key);
        if self.kind.has_status() {
            self.outputs.observed.forget(&key);
        }
    }

    /// For metrics; and the namespaces decide whose objects count.
    async fn count(&self) {
        if self.kind == Kind::Namespace
            && let Some(choice) = self.selection.next(&self.cache)
        {
            // A list by this selection sends its objects later.
            self.send(Message::Chosen(choice.number)).await;
            self.selection.choose(choice);
        }
        let (all, unreadable) = (self.cache.len(), self.cache.unreadable());
        self.outputs.health.count(self.kind, all, unreadable);
    }

    fn watched(&mut self) {
        (self.failures, self.absent) = (0, 0);
        self.outputs.health.record_watched(self.kind);
    }

    async fn send_events(&self, events: Vec<Event>) {
        self.send(Message::Input(Input::Batch(events))).await;
    }

    async fn send(&self, message: Message) {
        // If the receiver has ended, it reports why.
        let _ = self.outputs.messages.send(message).await;
    }

    /// Sends which objects could never be read, where something must not be taken for gone because of that: what runs for a
    /// Gateway, and for those of a class.
    async fn send_unread(&mut self) {
        if !matches!(self.kind, Kind::Gateway | Kind::GatewayClass) {
            return;
        }
        let unread = self.cache.never_read();
        if unread != self.unread {
            self.unread = unread.clone();
            self.send(Message::Input(Input::Unread(self.kind, unread))).await;
        }
    }

    /// All objects that there were at that asking have been sent.
    async fn reach(&mut self, asking: u64) {
        self.fresh_for = Some(asking);
        let complete = {
            let mut barrier = self.outputs.barrier();
            let complete = barrier.reach(self.kind, asking);
            let awaited: Vec<&str> = barrier.awaited(asking).map(Kind::as_str).collect();
            tracing::debug!(kind = self.kind.as_str(), asking, ?awaited, "listed");
            complete
        };
        for input in complete {
            self.send(Message::Input(input)).await;
        }
    }

    /// Whether a new leader waits for a comparison, and no list is under way that would make it.
    fn is_behind(&self) -> bool {
        let asked = *self.asked.borrow();
        !self.cache.is_listing() && self.fresh_for.is_some_and(|fresh| fresh < asked)
    }

    /// Compares names and versions with a list that is as new as the API can tell. Usually they are the same, and no object
    /// has to be fetched.
    async fn verify(&mut self) -> Next {
        let asking = *self.asked.borrow_and_update();
        match self.is_as_listed().await {
            Ok(true) => {
                self.watched();
                self.current().await;
                self.reach(asking).await;
                Next::GoOn
            }
            Ok(false) => Next::ListAgain,
            Err(failure) => match self.wait_until_listable(failure).await {
                Next::GoOn => self.catch_up().await,
                Next::ListAgain => Next::ListAgain,
            },
        }
    }

    async fn is_as_listed(&self) -> Result<bool, ApiFailure> {
        let mut params = ListParams::default().limit(self.page());
        params.field_selector = self.fields.clone();
        params.label_selector = self.selection.labels_of(self.kind);
        let mut known = 0;
        loop {
            let list = recovery::answer(self.api.list_metadata(&params)).await?;
            for found in &list.items {
                let metadata = &found.metadata;
                let name = ObjectName::new(
                    metadata.namespace.as_deref().unwrap_or_default(),
                    metadata.name.as_deref().unwrap_or_default(),
                );
                if !self.selection.has(self.kind, &name) {
                    continue;
                }
                let version = metadata.resource_version.as_deref().unwrap_or_default();
                if !self.cache.has(&name, version) {
                    return Ok(false);
                }
                known += 1;
            }
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(known == self.cache.len()),
            }
        }
    }
}

fn of_metadata(event: watcher::Event<ServedMetadata>) -> watcher::Event<Served> {
    match event {
        watcher::Event::Init => watcher::Event::Init,
        watcher::Event::InitApply(found) => watcher::Event::InitApply(found.into_served()),
        watcher::Event::InitDone => watcher::Event::InitDone,
        watcher::Event::Apply(found) => watcher::Event::Apply(found.into_served()),
        watcher::Event::Delete(found) => watcher::Event::Delete(found.into_served()),
    }
}

fn name_of(served: &Served) -> ObjectName {
    let metadata = &served.metadata;
    ObjectName::new(
        metadata.namespace.as_deref().unwrap_or_default(),
        metadata.name.as_deref().unwrap_or_default(),
    )
}

fn version_of(served: &Served) -> String {
    served.metadata.resource_version.clone().unwrap_or_default()
}
