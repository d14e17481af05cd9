//! Graphs: recorded work, captured from streams or built node by node.

use core::fmt::Write as _;
use core::sync::atomic::{AtomicBool, Ordering};
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use smallvec::SmallVec;

use crate::branches::sorted;
use crate::cluster::Cluster;
use crate::code::{Code, Failure, Result};
use crate::driver::driver;
use crate::ids::next_id;
use crate::objects::Kind;
use crate::user_object::Users;
use crate::work::{Launch, LaunchSize, Work};

/// Which calls of other threads a capture forbids (`CUstreamCaptureMode`). No call of this library is unsafe during a
/// capture, so the mode is only kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Of all threads.
    Global,
    /// Of the capturing thread.
    ThreadLocal,
    /// None.
    Relaxed,
}

/// A capture in progress.
#[derive(Debug)]
pub struct Capture {
    /// Its number, never used again.
    pub id: u64,
    /// Its mode.
    pub mode: Mode,
    /// The graph that it builds.
    pub graph: Arc<Graph>,
    invalid: AtomicBool,
}

impl Capture {
    pub(crate) fn new(graph: Arc<Graph>, mode: Mode) -> Self {
        Self { id: next_id(), mode, graph, invalid: AtomicBool::new(false) }
    }

    pub(crate) fn invalidate(&self) {
        self.invalid.store(true, Ordering::Release);
    }

    /// Whether a failure has made the capture invalid.
    pub fn is_invalid(&self) -> bool {
        self.invalid.load(Ordering::Acquire)
    }

    /// Returns an error if the capture has become invalid.
    ///
    /// # Errors
    ///
    /// [`Code::StreamCaptureInvalidated`].
    pub fn check(&self) -> Result<()> {
        if self.is_invalid() { Err(Code::StreamCaptureInvalidated.into()) } else { Ok(()) }
    }

    /// Whether all of `nodes` come before one of `from`, or are among them.
    pub(crate) fn reaches(&self, from: &[usize], nodes: &[usize]) -> bool {
        let entries = self.graph.entries.lock();
        let mut seen = vec![false; entries.len()];
        let mut todo = from.to_vec();
        while let Some(at) = todo.pop() {
            if !core::mem::replace(&mut seen[at], true) {
                todo.extend(entries[at].iter().flat_map(|entry| entry.after.iter().copied()));
            }
        }
        nodes.iter().all(|&node| seen[node])
    }
}

/// A node of a graph.
#[derive(Debug)]
pub struct Node {
    handle: u64,
    /// Handle of its graph.
    pub graph: u64,
    /// Its place in the graph.
    pub index: usize,
}

impl Kind for Node {
    const UNKNOWN: Code = Code::InvalidValue;
}

impl Node {
    /// Its handle.
    pub fn handle(&self) -> u64 {
        self.handle
    }
}

/// What a graph holds of a node.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// Handle of its [`Node`]; 0 until somebody asks for it.
    handle: u64,
    pub(crate) work: Work,
    /// Nodes that have to end before.
    pub(crate) after: SmallVec<[usize; 2]>,
    /// Whether an executable graph does the work.
    pub(crate) enabled: bool,
    /// Attributes of a kernel's node that the program has set (`CUkernelNodeAttrID`), without [`CLUSTER`] and
    /// [`PRIORITY`].
    attributes: BTreeMap<u32, Attribute>,
}

impl Entry {
    /// The node's handle, for the entry at a place of a graph. It is made at the first call: most nodes of a capture
    /// need none.
    fn node(&mut self, graph: u64, index: usize) -> u64 {
        if self.handle == 0
            && let Ok(driver) = driver()
        {
            let node = driver.objects.insert(|handle| Ok(Node { handle, graph, index }));
            self.handle = node.map_or(0, |node| node.handle);
        }
        self.handle
    }

    /// Removes the node's handle, if it has one.
    fn forget(&self) -> Result<()> {
        if self.handle != 0 {
            driver()?.objects.remove::<Node>(self.handle)?;
        }
        Ok(())
    }
}

/// The attribute about clusters (`CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION`), which a launch contains.
const CLUSTER: u32 = 4;
/// The attribute about the priority (`CU_LAUNCH_ATTRIBUTE_PRIORITY`), which a launch contains.
const PRIORITY: u32 = 8;

/// Value of an attribute (`CUkernelNodeAttrValue`).
pub type Attribute = [u64; 8];

/// What keeps an executable graph from taking over a graph, as `CUgraphExecUpdateResult` numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Mismatch {
    /// Nodes or edges differ.
    Topology = 2,
    /// A node is of another type.
    NodeType = 3,
}

/// Nodes that a new graph has room for.
const ROOM: usize = 32;

/// A graph that can be changed.
#[derive(Debug)]
pub struct Graph {
    handle: u64,
    context: u64,
    /// Its number, never used again.
    pub id: u64,
    /// `None` in the place of a node that was removed.
    entries: Mutex<Vec<Option<Entry>>>,
    /// The program's objects that live as long as the graph.
    pub users: Mutex<Users>,
    /// The claim of its executable graph, if it has memory nodes.
    pub(crate) claim: Mutex<Weak<()>>,
}

impl Kind for Graph {
    const UNKNOWN: Code = Code::InvalidValue;
}

impl Graph {
    /// Creates an empty graph.
    ///
    /// # Errors
    ///
    /// [`Code::NotInitialized`].
    pub fn create(context: u64) -> Result<Arc<Self>> {
        Self::with(context, Vec::new())
    }

    /// A graph with nodes like those of entries.
    pub(crate) fn with(context: u64, entries: Vec<Option<Entry>>) -> Result<Arc<Self>> {
        let graph = driver()?.objects.insert(|handle| {
            let (entries, users) = (Mutex::default(), Mutex::default());
            Ok(Self { handle, context, id: next_id(), entries, users, claim: Mutex::default() })
        })?;
        let mut own = Vec::with_capacity(entries.len().max(ROOM));
        for entry in entries {
            own.push(match entry {
                None => None,
                Some(entry) => {
                    let work = match entry.work {
                        Work::Child(child) => Work::Child(child.copy()?),
                        work => work,
                    };
                    Some(Entry { handle: 0, work, ..entry })
                }
            });
        }
        *graph.entries.lock() = own;
        Ok(graph)
    }

    /// Its handle.
    pub fn handle(&self) -> u64 {
        self.handle
    }

    /// Handle of its context.
    pub fn context(&self) -> u64 {
        self.context
    }

    /// Adds a node after others; returns its place.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidValue`] if one of the others does not exist.
    pub fn add(&self, work: Work, after: &[usize]) -> Result<usize> {
        let mut entries = self.entries.lock();
        if after.iter().any(|&node| entries.get(node).is_none_or(Option::is_none)) {
            return Err(Failure::invalid("a dependency is no node of the graph"));
        }
        let index = entries.len();
        let (after, attributes) = (after.into(), BTreeMap::new());
        entries.push(Some(Entry { handle: 0, work, after, enabled: true, attributes }));
        Ok(index)
    }

    /// The handles of those nodes for which `test` holds, in the order in which they were added.
    fn handles(&self, test: impl Fn(&Entry) -> bool) -> Vec<u64> {
        let mut entries = self.entries.lock();
        let present =
            entries.iter_mut().enumerate().filter_map(|(index, entry)| Some((index, entry.as_mut()?)));
        let chosen = present.filter(|(_, entry)| test(entry));
        chosen.map(|(index, entry)| entry.node(self.handle, index)).collect()
    }

    /// Handles of all nodes, in the order in which they were added.
    pub fn nodes(&self) -> Vec<u64> {
        self.handles(|_| true)
    }

    /// Handle of the node at a place; 0 if it was removed.
    pub fn node(&self, index: usize) -> u64 {
        let mut entries = self.entries.lock();
        entries.get_mut(index).and_then(Option::as_mut).map_or(0, |entry| entry.node(self.handle, index))
    }

    /// Handles of the nodes that depend on none.
    pub fn roots(&self) -> Vec<u64> {
        self.handles(|entry| entry.after.is_empty())
    }

    /// Pairs of handles: a node and one that depends on it.
    pub fn edges(&self) -> Vec<(u64, u64)> {
        let mut entries = self.entries.lock();
        for (index, entry) in entries.iter_mut().enumerate() {
            if let Some(entry) = entry {
                entry.node(self.handle, index);
            }
        }
        let of = |index: usize| entries[index].as_ref().map_or(0, |entry| entry.handle);
        let edges = entries
            .iter()
            .flatten()
            .flat_map(|entry| entry.after.iter().map(move |&from| (from, entry.handle)));
        edges.map(|(from, to)| (of(from), to)).collect()
    }

    /// Adds or removes dependencies between nodes, given as places.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidValue`] if a node or a removed edge does not exist, or an added edge does;
    /// [`Code::NotSupported`] if edges are removed and nodes allocate or free memory.
    pub fn change_edges(&self, edges: &[(usize, usize)], add: bool) -> Result<()> {
        if !add && !edges.is_empty() {
            self.refuse_memory("removed edges of")?;
        }
        let mut entries = self.entries.lock();
        for &(from, to) in edges {
            if entries.get(from).is_none_or(Option::is_none) || from == to {
                return Err(Failure::invalid("a dependency is no node of the graph"));
            }
            let entry = entries.get_mut(to).and_then(Option::as_mut);
            let entry = entry.ok_or_else(|| Failure::invalid("no such node"))?;
            match (entry.after.iter().position(|&other| other == from), add) {
                (None, true) => entry.after.push(from),
                (Some(at), false) => drop(entry.after.remove(at)),
                _ => return Err(Failure::invalid("the dependency exists already, or does not exist")),
            }
        }
        Ok(())
    }

    /// The work of the node at a place.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidValue`] if it was removed.
    pub fn work(&self, index: usize) -> Result<Work> {
        let entries = self.entries.lock();
        let entry = entries.get(index).and_then(Option::as_ref);
        Ok(entry.ok_or_else(|| Failure::invalid("no such node"))?.work.clone())
    }

    /// Replaces the work of a node by another of its type.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidValue`] if the types differ or the node was removed.
    pub fn set_work(&self, index: usize, work: Work) -> Result<()> {
        let old = replace(&mut self.entries.lock(), index, work)?;
        end(old);
        Ok(())
    }

    /// Removes a node and its edges.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidValue`] if it was removed already; [`Code::NotSupported`] if nodes of the graph allocate or free
    /// memory.
    pub fn remove(&self, index: usize) -> Result<()> {
        self.refuse_memory("removed nodes of")?;
        let mut entries = self.entries.lock();
        let entry = entries.get_mut(index).and_then(Option::take);
        let entry = entry.ok_or_else(|| Failure::invalid("no such node"))?;
        for other in entries.iter_mut().flatten() {
            other.after.retain(|node| *node != index);
        }
        entry.forget()?;
        drop(entries);
        end(entry.work);
        Ok(())
    }

    /// A copy with nodes of its own.
    ///
    /// # Errors
    ///
    /// [`Code::NotSupported`] if it has nodes for memory.
    pub fn copy(&self) -> Result<Arc<Self>> {
        self.refuse_memory("copies of")?;
        let entries = self.entries.lock().clone();
        let copy = Self::with(self.context, entries)?;
        copy.users.lock().share(&self.users.lock());
        Ok(copy)
    }

    /// Whether nodes allocate or free memory.
    pub(crate) fn has_memory(&self) -> bool {
        let is_memory = |entry: &Entry| matches!(entry.work, Work::Allocate(_) | Work::Free(_));
        self.entries.lock().iter().flatten().any(is_memory)
    }

    pub(crate) fn refuse_memory(&self, what: &str) -> Result<()> {
        if self.has_memory() {
            let text = format!("{what} graphs that allocate or free memory");
            return Err(Failure::new(Code::NotSupported, text));
        }
        Ok(())
    }

    /// An attribute of a kernel's node.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidValue`] if the node is of another type or was removed.
    pub fn attribute(&self, index: usize, attribute: u32) -> Result<Attribute> {
        let mut entries = self.entries.lock();
        let (launch, attributes) = kernel(&mut entries, index)?;
        if attribute == CLUSTER {
            let [x, y, z] = launch.function.clusters.of_launch(launch.size.cluster).unwrap_or([1; 3]);
            return Ok([u64::from(x) | u64::from(y) << 32, u64::from(z), 0, 0, 0, 0, 0, 0]);
        }
        if attribute == PRIORITY {
            let priority = launch.size.priority.unwrap_or_default();
            return Ok([u64::from(priority.cast_unsigned()), 0, 0, 0, 0, 0, 0, 0]);
        }
        Ok(attributes.get(&attribute).copied().unwrap_or_default())
    }

    /// Sets an attribute of a kernel's node.
    ///
    /// # Errors
    ///
    /// As [`Graph::attribute`]; [`Code::InvalidClusterSize`].
    pub fn set_attribute(&self, index: usize, attribute: u32, value: Attribute) -> Result<()> {
        let mut entries = self.entries.lock();
        let (launch, attributes) = kernel(&mut entries, index)?;
        if attribute == CLUSTER {
            // CAST: the halves of words.
            return set_cluster(launch, [value[0] as u32, (value[0] >> 32) as u32, value[1] as u32]);
        }
        if attribute == PRIORITY {
            // CAST: a half of a word.
            launch.size.priority = Some((value[0] as u32).cast_signed());
        } else {
            attributes.insert(attribute, value);
        }
        Ok(())
    }

    /// Gives a kernel's node the attributes of another, which may belong to another graph.
    ///
    /// # Errors
    ///
    /// As [`Graph::set_attribute`].
    pub fn copy_attributes(&self, index: usize, from: &Self, from_index: usize) -> Result<()> {
        let (size, copied) = {
            let mut entries = from.entries.lock();
            let (launch, attributes) = kernel(&mut entries, from_index)?;
            (launch.size, attributes.clone())
        };
        let mut entries = self.entries.lock();
        let (launch, attributes) = kernel(&mut entries, index)?;
        set_cluster(launch, size.cluster)?;
        launch.size.priority = size.priority;
        *attributes = copied;
        Ok(())
    }

    /// A description in the language of Graphviz.
    pub fn dot(&self) -> String {
        let mut text = format!("digraph graph_{} {{\n", self.id);
        for (index, entry) in self.entries.lock().iter().enumerate() {
            let Some(entry) = entry else { continue };
            // A string grows.
            let _ = writeln!(text, "  n{index} [label=\"{index}: {}\"];", entry.work.label());
            for from in &entry.after {
                let _ = writeln!(text, "  n{from} -> n{index};");
            }
        }
        text + "}\n"
    }

    /// Removes the graph and its nodes.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidValue`] if it was removed already.
    pub fn destroy(&self) -> Result<()> {
        driver()?.objects.remove::<Self>(self.handle)?;
        let entries = core::mem::take(&mut *self.entries.lock());
        for entry in entries.into_iter().flatten() {
            let _ = entry.forget();
            end(entry.work);
        }
        Ok(())
    }
}

/// Removes the graph that belongs to a node.
pub(crate) fn end(work: Work) {
    if let Work::Child(graph) = work {
        // The program may have removed it.
        let _ = graph.destroy();
    }
}

/// The launch and the attributes of a kernel's node.
fn kernel(
    entries: &mut [Option<Entry>],
    index: usize,
) -> Result<(&mut Launch, &mut BTreeMap<u32, Attribute>)> {
    match entries.get_mut(index) {
        Some(Some(Entry { work: Work::Launch(launch), attributes, .. })) => Ok((launch, attributes)),
        _ => Err(Failure::invalid("no such node of a kernel")),
    }
}

/// Sets the clusters of a launch.
fn set_cluster(launch: &mut Launch, cluster: Cluster) -> Result<()> {
    let size = LaunchSize { cluster, ..launch.size };
    size.check(&launch.function)?;
    launch.size = size;
    Ok(())
}

/// Replaces the work of an entry; returns the old one, which ends without a lock.
pub(crate) fn replace(entries: &mut [Option<Entry>], index: usize, work: Work) -> Result<Work> {
    let entry = entries.get_mut(index).and_then(Option::as_mut);
    let entry = entry.ok_or_else(|| Failure::invalid("no such node"))?;
    if !entry.work.is_like(&work) {
        return Err(Failure::invalid("the node is of another type"));
    }
    let old = core::mem::replace(&mut entry.work, work);
    // Clusters and priority are attributes of the node.
    if let (Work::Launch(old), Work::Launch(new)) = (&old, &mut entry.work) {
        new.size = LaunchSize { cluster: old.size.cluster, priority: old.size.priority, ..new.size };
    }
    Ok(old)
}

/// The places of the entries, each after those that it depends on.
pub(crate) fn sort(entries: &[Option<Entry>]) -> Result<Vec<usize>> {
    let after: Vec<&[usize]> =
        entries.iter().map(|entry| entry.as_ref().map_or(&[][..], |entry| &entry.after)).collect();
    let order = sorted(&after).ok_or_else(|| Failure::invalid("the graph has a cycle"))?;
    Ok(order.into_iter().filter(|&at| entries[at].is_some()).collect())
}

/// The work of entries, in an order. That of child graphs is one piece after the other.
pub(crate) fn works<'e>(
    entries: &'e [Option<Entry>],
    order: &'e [usize],
) -> impl Iterator<Item = &'e Work> + Clone {
    let enabled = order.iter().filter_map(|&at| entries[at].as_ref()).filter(|entry| entry.enabled);
    enabled.flat_map(|entry| entry.work.pieces())
}

/// For each of the [`works`] the places among them of those that it depends on. Disabled nodes pass on their own.
pub(crate) fn dependencies(entries: &[Option<Entry>], order: &[usize]) -> Vec<Vec<usize>> {
    let mut ends = vec![Vec::new(); entries.len()];
    let mut dependencies: Vec<Vec<usize>> = Vec::new();
    for &at in order {
        let Some(entry) = &entries[at] else { continue };
        let mut before: Vec<usize> =
            entry.after.iter().flat_map(|&other| ends[other].iter().copied()).collect();
        before.sort_unstable();
        before.dedup();
        if entry.enabled {
            for _ in entry.work.pieces() {
                let own = vec![dependencies.len()];
                dependencies.push(core::mem::replace(&mut before, own));
            }
        }
        ends[at] = before;
    }
    dependencies
}

impl Graph {
    /// The user objects of it and of the graphs of its nodes, with references of their own.
    pub(crate) fn all_users(&self) -> Users {
        let mut users = Users::default();
        users.share(&self.users.lock());
        for entry in self.entries.lock().iter().flatten() {
            if let Work::Child(graph) = &entry.work {
                users.share(&graph.all_users());
            }
        }
        users
    }

    /// A copy of the graph, for a child node of `parent`.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidValue`] if it has a cycle, or is the parent; [`Code::NotSupported`] if it has nodes for memory.
    pub fn child(&self, parent: &Self) -> Result<Work> {
        if self.handle == parent.handle {
            return Err(Failure::invalid("a graph is no child of itself"));
        }
        sort(&self.entries.lock())?;
        Ok(Work::Child(self.copy()?))
    }

    /// The work of the whole graph, in order.
    pub(crate) fn sequence(&self) -> Result<Work> {
        let entries = fixed(self)?;
        let order = sort(&entries)?;
        let works = works(&entries, &order).cloned().collect();
        Ok(Work::Sequence(works))
    }
}

/// The entries of a graph, with the work of child graphs as it is now.
pub(crate) fn fixed(graph: &Graph) -> Result<Vec<Option<Entry>>> {
    let entries = graph.entries.lock().clone();
    let fix = |entry: Entry| Ok(Entry { work: entry.work.fixed()?, ..entry });
    entries.into_iter().map(|entry| entry.map(fix).transpose()).collect()
}
