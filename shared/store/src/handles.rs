//! The roles of each program.

use crate::{FeedbackReader, FeedbackSender, History, Reader, Replicas, Writer};
use std::fmt;
use std::sync::Arc;

/// The store of a translator: it publishes, reads what earlier terms published, and reads what proxies answered.
#[derive(Clone)]
pub struct TranslatorStore {
    pub writer: Arc<dyn Writer>,
    pub reader: Arc<dyn Reader>,
    pub feedback: Arc<dyn FeedbackReader>,
}

/// The store of a distributor: it reads snapshots, sends the answers of proxies, and finds the other replicas. Its
/// holder reads snapshots:
///
/// ```
/// # use heliograph_store::{DistributorStore, Embedded};
/// # use std::sync::Arc;
/// let store = DistributorStore::new(Arc::new(Embedded::new()));
/// let newest = store.reader.newest(Vec::new());
/// ```
///
/// and cannot publish:
///
/// ```compile_fail,E0609
/// # use heliograph_store::{DistributorStore, Embedded};
/// # use std::sync::Arc;
/// let store = DistributorStore::new(Arc::new(Embedded::new()));
/// let claim = store.writer.claim(None);
/// ```
///
/// ```compile_fail,E0599
/// # use heliograph_store::{DistributorStore, Embedded, Writer};
/// # use std::sync::Arc;
/// let store = DistributorStore::new(Arc::new(Embedded::new()));
/// let claim = store.reader.claim(None);
/// ```
#[derive(Clone)]
pub struct DistributorStore {
    pub reader: Arc<dyn Reader>,
    pub feedback: Arc<dyn FeedbackSender>,
    pub replicas: Arc<dyn Replicas>,
}

/// The store of an operator: earlier snapshots, orders, and what there is now.
#[derive(Clone)]
pub struct OperatorStore {
    pub history: Arc<dyn History>,
    pub reader: Arc<dyn Reader>,
    pub replicas: Arc<dyn Replicas>,
}

impl TranslatorStore {
    pub fn new(store: Arc<impl Writer + Reader + FeedbackReader>) -> Self {
        Self { writer: store.clone(), reader: store.clone(), feedback: store }
    }
}

impl DistributorStore {
    pub fn new(store: Arc<impl Reader + FeedbackSender + Replicas>) -> Self {
        Self { reader: store.clone(), feedback: store.clone(), replicas: store }
    }
}

impl OperatorStore {
    pub fn new(store: Arc<impl History + Reader + Replicas>) -> Self {
        Self { history: store.clone(), reader: store.clone(), replicas: store }
    }
}

impl fmt::Debug for TranslatorStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TranslatorStore").finish_non_exhaustive()
    }
}

impl fmt::Debug for DistributorStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DistributorStore").finish_non_exhaustive()
    }
}

impl fmt::Debug for OperatorStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OperatorStore").finish_non_exhaustive()
    }
}
