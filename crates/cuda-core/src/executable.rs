//! Executable graphs: the work of a graph as it was, launched on streams.

use std::sync::Arc;

use parking_lot::Mutex;
use tegra_hcq::Fence;

use crate::code::{Code, Failure, Result};
use crate::context::Context;
use crate::driver::driver;
use crate::graph::{Entry, Graph, Mismatch, dependencies, end, fixed, replace, sort, works};
use crate::ids::next_id;
use crate::objects::Kind;
use crate::recording::Recording;
use crate::stream::Stream;
use crate::user_object::Users;
use crate::work::Work;

/// A graph that can be launched.
#[derive(Debug)]
pub struct Executable {
    handle: u64,
    context: u64,
    /// Its number, never used again.
    pub id: u64,
    /// Flags of its creation.
    pub flags: u64,
    entries: Mutex<Vec<Option<Entry>>>,
    users: Mutex<Arc<Users>>,
    /// The places of the entries, each after those that it depends on.
    order: Vec<usize>,
    /// Locked after the entries.
    recording: Mutex<Recording>,
    /// The last launch, and the number of its stream.
    last: Mutex<Option<(u64, Fence)>>,
    /// What a graph with memory nodes knows of it.
    claim: Arc<()>,
}

impl Kind for Executable {
    const UNKNOWN: Code = Code::InvalidValue;
}

impl Executable {
    /// Prepares a graph as it is now.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidValue`] if it has a cycle, [`Code::NotSupported`] if it allocates or frees memory and has an
    /// executable graph.
    pub fn of(graph: &Graph, flags: u64) -> Result<Arc<Self>> {
        let has_memory = graph.has_memory();
        let mut claim = graph.claim.lock();
        if has_memory && claim.upgrade().is_some() {
            return Err(Failure::new(
                Code::NotSupported,
                "a second executable graph of a graph that allocates or frees memory",
            ));
        }
        let entries = fixed(graph)?;
        let order = sort(&entries)?;
        let (entries, users) = (Mutex::new(entries), Mutex::new(Arc::new(graph.all_users())));
        let (context, id) = (graph.context(), next_id());
        let made = driver()?.objects.insert_for(context, |handle| {
            Ok(Self {
                handle,
                context,
                id,
                flags,
                entries,
                users,
                order,
                recording: Mutex::default(),
                last: Mutex::default(),
                claim: Arc::default(),
            })
        })?;
        if has_memory {
            *claim = Arc::downgrade(&made.claim);
        }
        Ok(made)
    }

    /// Its handle.
    pub fn handle(&self) -> u64 {
        self.handle
    }

    /// Replaces the work of the node that was at a place of the graph.
    ///
    /// # Errors
    ///
    /// As [`Graph::set_work`].
    pub fn set_work(&self, index: usize, work: Work) -> Result<()> {
        let child = if let Work::Child(graph) = &work { Some(Arc::clone(graph)) } else { None };
        let replaced = work.fixed().and_then(|work| {
            let mut entries = self.entries.lock();
            self.recording.lock().clear();
            replace(&mut entries, index, work)
        });
        if let (Err(_), Some(child)) = (&replaced, &child) {
            end(Work::Child(Arc::clone(child)));
        }
        drop(replaced?);
        // What the executable graph does now lives as long as it, the graph of the node does not.
        if let Some(child) = child {
            let mut users = child.all_users();
            users.share(&self.users.lock());
            self.set_users(users);
            end(Work::Child(child));
        }
        Ok(())
    }

    /// Replaces the user objects, and releases the old ones without a lock: that calls the program.
    fn set_users(&self, users: Users) {
        let old = core::mem::replace(&mut *self.users.lock(), Arc::new(users));
        drop(old);
    }

    /// Whether the work of the node that was at a place is done.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidValue`] if it was removed.
    pub fn is_enabled(&self, index: usize) -> Result<bool> {
        let entries = self.entries.lock();
        let entry = entries.get(index).and_then(Option::as_ref);
        Ok(entry.ok_or_else(|| Failure::invalid("no such node"))?.enabled)
    }

    /// Sets [`Executable::is_enabled`], for a node of a kernel, copy or fill.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidValue`] if it was removed or is of another type.
    pub fn enable(&self, index: usize, enabled: bool) -> Result<()> {
        let mut entries = self.entries.lock();
        let entry = entries.get_mut(index).and_then(Option::as_mut);
        let entry =
            entry.filter(|entry| matches!(entry.work, Work::Launch(_) | Work::Copy(_) | Work::Fill(_)));
        entry.ok_or_else(|| Failure::invalid("no such node of a kernel, copy or fill"))?.enabled = enabled;
        self.recording.lock().clear();
        Ok(())
    }

    /// Takes over the work of a graph of the same shape. Otherwise the result says what differs.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidValue`] if a child of the graph has a cycle.
    pub fn update(&self, graph: &Graph) -> Result<Option<Mismatch>> {
        let new = fixed(graph)?;
        let mut entries = self.entries.lock();
        let mut pairs = entries.iter().zip(&new);
        let same = |(old, new): (&Option<Entry>, &Option<Entry>)| match (old, new) {
            (Some(old), Some(new)) => old.after == new.after,
            (None, None) => true,
            _ => false,
        };
        if entries.len() != new.len() || !pairs.clone().all(same) {
            return Ok(Some(Mismatch::Topology));
        }
        if !pairs.all(|(old, new)| {
            old.as_ref().zip(new.as_ref()).is_none_or(|(old, new)| old.work.is_like(&new.work))
        }) {
            return Ok(Some(Mismatch::NodeType));
        }
        for (old, new) in entries.iter_mut().flatten().zip(new.into_iter().flatten()) {
            old.work = new.work;
        }
        self.recording.lock().clear();
        drop(entries);
        self.set_users(graph.all_users());
        Ok(None)
    }

    /// Prepares the next launch.
    pub fn upload(&self) {
        self.recording.lock().prepare();
    }

    /// Does the work of all nodes on a stream.
    ///
    /// # Errors
    ///
    /// The errors of the work.
    pub fn launch(&self, context: &Context, stream: &Stream) -> Result<()> {
        let users = Arc::clone(&self.users.lock());
        if stream.captured()?.is_some() {
            let child = Graph::with(self.context, self.entries.lock().clone())?;
            child.refuse_memory("copies of")?;
            child.users.lock().share(&users);
            return stream.run(context, Work::Child(child));
        }
        let entries = self.entries.lock();
        self.allocate(context, &entries)?;
        let mut last_launch = self.last.lock();
        let steps = works(&entries, &self.order);
        let resolved = if steps.clone().any(Work::waits) {
            steps.clone().map(Work::resolved).collect::<Result<Vec<_>>>()?
        } else {
            Vec::new()
        };
        let value = stream.work(context, |queue| {
            // A launch is behind the one before, also on another stream.
            if let Some((id, fence)) = &*last_launch
                && *id != stream.id
                && !fence.is_done()
            {
                queue.wait_fence(fence)?;
            }
            let dependencies = || dependencies(&entries, &self.order);
            let gpu = (context.gpu.ordinal, &context.device);
            let mut recording = self.recording.lock();
            if resolved.is_empty() {
                recording.encode(gpu, steps.clone(), dependencies, queue)?;
            } else {
                recording.encode(gpu, resolved.iter(), dependencies, queue)?;
            }
            drop(recording);
            // The objects live until the work has ended.
            if users.is_empty() { Ok(()) } else { Ok(queue.host_function(move || drop(users))?) }
        })?;
        let last = stream.fence(value);
        *last_launch = last.clone().map(|fence| (stream.id, fence));
        for work in steps {
            if let Work::Record(event) = work {
                event.recorded(last.clone());
            }
        }
        Ok(())
    }

    /// Does what a launch does to the memory of nodes that allocate or free.
    fn allocate(&self, context: &Context, entries: &[Option<Entry>]) -> Result<()> {
        let works = || entries.iter().flatten().map(|entry| &entry.work);
        let frees = |address| works().any(|work| matches!(work, Work::Free(freed) if *freed == address));
        // CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH.
        let free_earlier = self.flags & 1 != 0;
        for work in works() {
            match work {
                Work::Allocate(memory) => memory.launch(!frees(memory.address()), free_earlier)?,
                Work::Free(address) => {
                    let own =
                        |work: &Work| matches!(work, Work::Allocate(memory) if memory.address() == *address);
                    if !works().any(own) {
                        context.gpu.memory.free_for_graph(*address).transpose()?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Removes the executable.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidValue`] if it was removed already.
    pub fn destroy(&self) -> Result<()> {
        driver()?.objects.remove::<Self>(self.handle).map(drop)
    }
}
