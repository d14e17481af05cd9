//! Memory that several devices use: its mappings on other devices, and its uses by their queues.
//!
//! A block belongs to one heap. A queue of another device may use it once the two heaps are connected and the driver
//! has mapped the block's slab on that device, at the same address. The block records such uses apart from those of
//! its own device, and is neither reused nor freed before they have passed.

use std::sync::{Arc, Weak};
use std::time::Duration;

use gpu_hal::{DeviceMemory, PeerLink};
use parking_lot::Mutex;

use super::{Handle, Heap, Uses};
use crate::error::{Error, Result};
use crate::limits::DEFAULT_TIMEOUT;

/// The uses of an object by the queues of another device.
#[derive(Debug)]
pub(super) struct PeerUses {
    heap: Weak<Heap>,
    uses: Uses,
}

/// The uses of an object by the queues of all other devices.
#[derive(Debug, Default)]
pub(super) struct UsesOfPeers(Mutex<Vec<PeerUses>>);

impl UsesOfPeers {
    /// As [`Uses::note`], for a queue of the device of `heap`.
    pub(super) fn note(&self, heap: &Arc<Heap>, slot: usize, value: u64) {
        let mut peers = self.0.lock();
        if let Some(peer) = peers.iter().find(|peer| core::ptr::eq(peer.heap.as_ptr(), Arc::as_ptr(heap))) {
            peer.uses.note(slot, value);
            return;
        }
        // A closed device has no work.
        peers.retain(|peer| peer.heap.strong_count() > 0);
        let uses = Uses::default();
        uses.note(slot, value);
        peers.push(PeerUses { heap: Arc::downgrade(heap), uses });
    }

    /// Whether all uses have ended.
    pub(super) fn passed(&self) -> bool {
        self.0.lock().iter().all(|peer| peer.heap.upgrade().is_none_or(|heap| heap.passed(&peer.uses)))
    }

    /// Waits until all uses have ended.
    pub(super) fn wait(&self, timeout: Duration) -> Result<()> {
        // Without the lock: queues record uses meanwhile.
        let uses = |peer: &PeerUses| Some((peer.heap.upgrade()?, peer.uses.values().collect::<Vec<_>>()));
        let peers: Vec<_> = self.0.lock().iter().filter_map(uses).collect();
        for (heap, values) in peers {
            heap.wait_for_values(values.into_iter(), timeout)?;
        }
        Ok(())
    }
}

/// The mappings of a slab on other devices.
#[derive(Debug, Default)]
pub(super) struct PeerMappings(Mutex<Vec<PeerMapping>>);

/// A mapping, and the heap of the device on which it is.
type PeerMapping = (Weak<Heap>, Box<dyn DeviceMemory>);

impl PeerMappings {
    /// Maps the memory on the device of `heap`, unless it is mapped there. Returns whether it is new.
    pub(super) fn add(&self, memory: &dyn DeviceMemory, heap: &Arc<Heap>) -> Result<bool> {
        let mut mappings = self.0.lock();
        if mappings.iter().any(|(known, _)| core::ptr::eq(known.as_ptr(), Arc::as_ptr(heap))) {
            return Ok(false);
        }
        mappings.push((Arc::downgrade(heap), map(heap, memory)?));
        Ok(true)
    }

    /// Removes the mappings on closed devices.
    pub(super) fn sweep(&self) {
        self.0.lock().retain(|(heap, _)| heap.strong_count() > 0);
    }
}

/// Maps memory of another device on that of `heap`.
fn map(heap: &Heap, memory: &dyn DeviceMemory) -> Result<Box<dyn DeviceMemory>> {
    let token = memory.token().ok_or(gpu_hal::Error::Unsupported("sharing this memory"))?;
    let mapping = heap.driver.map_peer(&token)?;
    if mapping.gpu_va() != memory.gpu_va() {
        return Err(gpu_hal::Error::Unsupported("the address of the memory on its own device").into());
    }
    Ok(mapping)
}

/// A device whose memory this device may map.
#[derive(Debug)]
struct Peer {
    heap: Weak<Heap>,
    link: Option<PeerLink>,
    /// The mapping of its timelines, kept as long as this device: queues may wait for them at any time.
    _timelines: Box<dyn DeviceMemory>,
}

/// The devices whose memory a device may map.
#[derive(Debug, Default)]
pub(super) struct Peers(Mutex<Vec<Peer>>);

impl Peers {
    /// The link to a connected device; the inner `None` if only its system memory can be mapped.
    fn find(&self, owner: &Arc<Heap>) -> Option<Option<PeerLink>> {
        let peers = self.0.lock();
        let peer = peers.iter().find(|peer| core::ptr::eq(peer.heap.as_ptr(), Arc::as_ptr(owner)))?;
        Some(peer.link)
    }
}

impl Heap {
    /// Lets this device map memory of another. Returns the link to its memory; `None` if it cannot be mapped.
    pub(crate) fn connect(&self, owner: &Arc<Heap>) -> Result<Option<PeerLink>> {
        if let Some(link) = self.peers.find(owner) {
            return Ok(link);
        }
        let Some(token) = owner.driver.token() else { return Ok(None) };
        let link = match self.driver.connect(&token) {
            Err(gpu_hal::Error::Unsupported(_)) => return Ok(None),
            result => result?,
        };
        let timelines = map(self, &*owner.signals)?;
        self.peers.0.lock().push(Peer { heap: Arc::downgrade(owner), link, _timelines: timelines });
        Ok(link)
    }

    /// Whether queues of this device can wait for the timelines of another.
    pub(crate) fn sees_timelines_of(&self, owner: &Arc<Heap>) -> bool {
        self.peers.find(owner).is_some()
    }

    /// Makes memory of another device usable on this one; `what` names it.
    #[cold]
    pub(crate) fn reach(self: &Arc<Self>, what: &str, handle: &Handle) -> Result<()> {
        let refuse = || Error::OtherDevice(what.to_owned());
        self.peers.find(handle.heap()).ok_or_else(refuse)?;
        let slab = handle.memory().slab();
        match slab.peers.add(&*slab.memory, self) {
            Ok(true) => self.mapped.lock().push(Arc::downgrade(slab)),
            Ok(false) => {}
            Err(error) => {
                return Err(Error::NotMapped { what: what.to_owned(), reason: Box::new(error) });
            }
        }
        Ok(())
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        // All queues of this device are closed, so the mappings on it are unused.
        for slab in self.mapped.lock().drain(..).filter_map(|slab| slab.upgrade()) {
            slab.peers.sweep();
        }
        let parked = core::mem::take(&mut *self.parked.lock()).blocks;
        for memory in parked {
            if let Err(error) = memory.uses.wait_for_peers(DEFAULT_TIMEOUT)
                && !memory.uses.passed_on_peers()
            {
                tracing::warn!(%error, "memory is not freed, because another device may still use it");
                core::mem::forget(memory);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::adapter::nvgpu::Nvgpu;
    use crate::heap::Content;
    use gpu_hal::MemoryUse;

    fn heap() -> Arc<Heap> {
        let orin = orin_sim::SoftwareOrin::new(orin_sim::Config::default()).unwrap();
        Heap::new(Box::new(Nvgpu::open(&(Arc::new(orin) as _), None).unwrap()), None).unwrap()
    }

    fn block(heap: &Arc<Heap>) -> Handle {
        Handle::allocate(heap, 256, MemoryUse::Device, Content::Buffer).unwrap()
    }

    #[test]
    fn a_block_is_not_reused_while_another_device_uses_it() {
        let (owner, user) = (heap(), heap());
        let handle = block(&owner);
        let va = handle.gpu_va();
        handle.note(&user, 3, 5);
        handle.note(&user, 9, 2);
        drop(handle);
        let others: Vec<_> = (0..3).map(|_| block(&owner)).collect();
        assert!(others.iter().all(|other| other.gpu_va() != va));
        user.timeline(3).set(5);
        assert_eq!(owner.sweep_all(), 0, "the other queue has not passed");
        user.timeline(9).set(2);
        assert_eq!(owner.sweep_all(), 1);
        assert_eq!(block(&owner).gpu_va(), va);
    }

    #[test]
    fn waits_cover_the_uses_of_other_devices() {
        let (owner, user) = (heap(), heap());
        let handle = block(&owner);
        handle.note(&user, 0, 1);
        let wait = || owner.wait_for(handle.uses(), Duration::from_millis(5));
        assert!(matches!(wait(), Err(Error::Timeout { wanted: 1, .. })));
        user.timeline(0).set(1);
        wait().unwrap();
        // A closed device uses nothing.
        handle.note(&user, 0, 7);
        drop(user);
        wait().unwrap();
    }

    #[test]
    fn devices_without_a_path_stay_apart() {
        let (owner, user) = (heap(), heap());
        assert_eq!(user.connect(&owner).unwrap(), None);
        assert!(!user.sees_timelines_of(&owner));
        assert!(matches!(user.reach("it", &block(&owner)), Err(Error::OtherDevice(what)) if what == "it"));
    }
}
