use crate::members::Members;
use crate::table::Fact;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The facts that each unit has read, and the units that each fact demands: these two relations decide which work a
/// change causes.
///
/// Every fact is kept once, however many units read it, and edges are numbers: there are some fifty of them for each
/// route, and a fact is a hundred bytes and more.
#[derive(Debug)]
pub struct Graph<F> {
    ids: BTreeMap<Arc<F>, Id>,
    nodes: Vec<Node<F>>,
    free: Vec<Id>,
    units: usize,
}

/// The number of a fact, for as long as it has an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Id(u32);

#[derive(Debug)]
struct Node<F> {
    /// `None`: the number is free.
    fact: Option<Arc<F>>,
    /// What the unit read whose product the fact is. In order.
    reads: Box<[Id]>,
    /// The units that read the fact.
    readers: Members<Id>,
    /// The units that exist because of the fact. In order.
    demands: Box<[Id]>,
    /// Why the unit exists whose product the fact is.
    demanders: Members<Id>,
}

/// The units that appeared and disappeared when a demand changed.
#[derive(Debug)]
pub(crate) struct Turnover<F> {
    /// Demanded now, and not before.
    pub(crate) born: Vec<Arc<F>>,
    /// Without any demand.
    pub(crate) dead: Vec<Arc<F>>,
}

impl<F: Fact> Graph<F> {
    /// Replaces what a unit is known to have read. `facts` are in order, each once.
    pub(crate) fn record(&mut self, unit: &F, facts: Vec<F>) {
        let unit = self.id(unit);
        let mut reads: Vec<Id> = facts.into_iter().map(|fact| self.id_of(fact)).collect();
        reads.sort_unstable();
        let before = std::mem::take(&mut self.node(unit).reads);
        for new in reads.iter().filter(|id| before.binary_search(id).is_err()) {
            self.node(*new).readers.insert(unit);
        }
        for gone in before.iter().filter(|id| reads.binary_search(id).is_err()) {
            self.node(*gone).readers.remove(&unit);
            self.release(*gone);
        }
        self.node(unit).reads = reads.into();
        self.release(unit);
    }

    /// Replaces the units that exist because of a fact. `units` are in order, each once.
    pub(crate) fn demand(&mut self, fact: &F, units: Vec<F>) -> Turnover<F> {
        let mut turnover = Turnover { born: Vec::new(), dead: Vec::new() };
        let fact = self.id(fact);
        let mut demands: Vec<Id> = units.into_iter().map(|unit| self.id_of(unit)).collect();
        demands.sort_unstable();
        let before = std::mem::take(&mut self.node(fact).demands);
        for new in demands.iter().filter(|id| before.binary_search(id).is_err()) {
            let node = self.node(*new);
            if node.demanders.is_empty() {
                turnover.born.extend(node.fact.clone());
                self.units += 1;
            }
            self.node(*new).demanders.insert(fact);
        }
        for gone in before.iter().filter(|id| demands.binary_search(id).is_err()) {
            let node = self.node(*gone);
            node.demanders.remove(&fact);
            if node.demanders.is_empty() {
                turnover.dead.extend(node.fact.clone());
                self.units -= 1;
                self.release(*gone);
            }
        }
        self.node(fact).demands = demands.into();
        self.release(fact);
        turnover
    }

    /// The units that read a fact, as the facts of their products.
    pub(crate) fn readers(&self, fact: &F) -> impl Iterator<Item = &Arc<F>> {
        let node = self.ids.get(fact).and_then(|id| self.nodes.get(id.0 as usize));
        node.into_iter().flat_map(|node| node.readers.iter()).filter_map(|id| self.fact(*id))
    }

    /// Why a unit exists.
    pub fn demanders(&self, unit: &F) -> impl Iterator<Item = &F> {
        let node = self.ids.get(unit).and_then(|id| self.nodes.get(id.0 as usize));
        let demanders = node.into_iter().flat_map(|node| node.demanders.iter());
        demanders.filter_map(|id| self.fact(*id)).map(|fact| &**fact)
    }

    /// The units that exist, from this one on, in order.
    pub fn units_from(&self, first: &F) -> impl Iterator<Item = &F> + use<'_, F> {
        let from = self.ids.range::<F, _>(first..);
        let units = from.filter(|(fact, id)| fact.unit().is_some() && self.has_demander(**id));
        units.map(|(fact, _)| &**fact)
    }

    pub fn is_demanded(&self, unit: &F) -> bool {
        self.ids.get(unit).is_some_and(|id| self.has_demander(*id))
    }

    /// How many units exist.
    pub fn units(&self) -> usize {
        self.units
    }

    fn has_demander(&self, id: Id) -> bool {
        self.nodes.get(id.0 as usize).is_some_and(|node| !node.demanders.is_empty())
    }

    fn fact(&self, id: Id) -> Option<&Arc<F>> {
        self.nodes.get(id.0 as usize)?.fact.as_ref()
    }

    fn id(&mut self, fact: &F) -> Id {
        match self.ids.get(fact) {
            Some(id) => *id,
            None => self.id_of(fact.clone()),
        }
    }

    fn id_of(&mut self, fact: F) -> Id {
        if let Some(id) = self.ids.get(&fact) {
            return *id;
        }
        let fact = Arc::new(fact);
        let id = self.free.pop().unwrap_or_else(|| {
            self.nodes.push(Node::default());
            Id(u32::try_from(self.nodes.len() - 1).unwrap_or(u32::MAX))
        });
        self.node(id).fact = Some(fact.clone());
        self.ids.insert(fact, id);
        id
    }

    /// A number comes from `id` or from an edge, so its node is there.
    #[allow(clippy::indexing_slicing)]
    fn node(&mut self, id: Id) -> &mut Node<F> {
        &mut self.nodes[id.0 as usize]
    }

    /// Forgets a fact that has no edge.
    fn release(&mut self, id: Id) {
        let node = self.node(id);
        let has_edge = !node.readers.is_empty()
            || !node.demanders.is_empty()
            || !node.reads.is_empty()
            || !node.demands.is_empty();
        if has_edge {
            return;
        }
        if let Some(fact) = std::mem::take(node).fact {
            self.ids.remove(&fact);
            self.free.push(id);
        }
    }
}

impl<F> Default for Graph<F> {
    fn default() -> Self {
        Self { ids: BTreeMap::new(), nodes: Vec::new(), free: Vec::new(), units: 0 }
    }
}

impl<F> Default for Node<F> {
    fn default() -> Self {
        Self {
            fact: None,
            reads: Box::default(),
            readers: Members::default(),
            demands: Box::default(),
            demanders: Members::default(),
        }
    }
}
