//! The kernel's objects and their lifetimes.
//!
//! An address space lives as long as its descriptor, a channel bound to it or a context of a TSG mapped in it. A TSG
//! lives as long as its descriptor or a channel in it, a channel as long as its descriptor. A buffer lives as long as a
//! handle number, descriptor, CPU mapping, GPU mapping or channel uses it. Unused address spaces and TSGs are dropped
//! after each change ([`State::reap`]); buffers are reference counted.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rustix::io::Errno;

use crate::config::Config;
use crate::memory::Memory;

use super::address_space::{Space, SpaceId};
use super::channel::Channel;
use super::log::Log;
use super::nvmap::Nvmap;
use super::process::ProcessId;
use super::process::fds::{Fds, Object};
use super::process::mappings::{Mapped, Mapping};
use super::process::task::Task;
use super::syncpoint::Syncpoints;
use super::tsg::Tsg;
use super::zbc::ClearValues;
use super::{LiveCounts, State};

/// Number of channel ids on native Linux (`hal/fifo/channel_ga10b_fusa.c`, `linux-channel.c`).
const CHANNELS: u32 = 512;
/// Number of TSG ids.
const TSGS: u32 = 512;

impl State {
    pub(super) fn new(config: &Config, log: &Log) -> Result<Self, Errno> {
        Ok(Self {
            fds: Fds::default(),
            nvmap: Nvmap::new(config),
            spaces: BTreeMap::new(),
            tsgs: BTreeMap::new(),
            channels: BTreeMap::new(),
            free_channels: (0..CHANNELS).collect(),
            mappings: BTreeMap::new(),
            next_instance: 1,
            next_space: 0,
            next_serial: 0,
            quiesced: false,
            frequencies: BTreeMap::new(),
            next_process: 0,
            exited: BTreeSet::new(),
            tokens: Vec::new(),
            // Tokens of a board are random; the model's only need to be nonzero.
            next_token: config.seed >> 1,
            scheduling_locked: false,
            doorbell: None,
            syncpoints: Syncpoints::new(Arc::clone(&log.pulse), config.seed)?,
            clear_values: ClearValues::default(),
        })
    }

    /// Removes the CPU mappings of a process. Returns the doorbell pages among them.
    pub(super) fn forget_mappings(&mut self, process: ProcessId) -> Vec<Arc<Memory>> {
        let (mut pages, mut instances) = (Vec::new(), Vec::new());
        self.mappings.retain(|_, mapping| {
            let stays = mapping.owner != process;
            if let (false, Mapped::Doorbell { page, instance }) = (stays, &mapping.mapped) {
                pages.push(Arc::clone(page));
                instances.push(*instance);
            }
            stays
        });
        instances.into_iter().for_each(|instance| self.close_instance(instance));
        pages
    }

    /// The ranges (address, length) through which a process maps registers.
    pub(super) fn register_mappings(&self, process: ProcessId) -> Vec<(u64, u64)> {
        let registers =
            |mapping: &Mapping| matches!(mapping.mapped, Mapped::Doorbell { .. }) && mapping.owner == process;
        let found = self.mappings.iter().filter(|(_, mapping)| registers(mapping));
        // CAST: addresses and lengths fit 64 bits.
        found.map(|(start, mapping)| (*start as u64, mapping.len as u64)).collect()
    }

    /// Adds an address space.
    pub(super) fn add_space(&mut self, space: Space) -> SpaceId {
        let id = SpaceId(self.next_space);
        self.next_space += 1;
        self.spaces.insert(id, space);
        id
    }

    /// Creates a TSG with the lowest free id for an open of the control node.
    ///
    /// # Errors
    ///
    /// ENOMEM if all ids are in use.
    pub(super) fn add_tsg(&mut self, sm_count: u32, instance: u64) -> Result<u32, Errno> {
        let id = (0..TSGS).find(|id| !self.tsgs.contains_key(id)).ok_or(Errno::NOMEM)?;
        self.tsgs.insert(id, Tsg::new(sm_count, instance));
        Ok(id)
    }

    /// Creates a channel on `runlist`; the id freed last is reused first. Returns id and serial number.
    pub(super) fn add_channel(&mut self, task: &Task<'_>, runlist: u32) -> Option<(u32, u64)> {
        let id = self.free_channels.pop()?;
        let serial = self.next_serial;
        self.next_serial += 1;
        self.channels.insert(id, Channel::new(task, runlist, serial));
        Some((id, serial))
    }

    /// Advances the syncpoints of a dead channel so that waiters wake up.
    pub(super) fn wake_waiters(&self, channel: &Channel) {
        if let Some(syncpoint) = channel.syncpoint {
            self.syncpoints.set_safe_state(syncpoint.id);
        }
        if let Some((syncpoint, end)) = channel.kernel_fence() {
            self.syncpoints.finish(syncpoint.id, end);
        }
    }

    /// Removes a channel and frees its id.
    pub(super) fn remove_channel(&mut self, id: u32) {
        let Some(channel) = self.channels.remove(&id) else { return };
        if let Some(tsg) = channel.tsg.and_then(|tsg| self.tsgs.get_mut(&tsg)) {
            tsg.channels.retain(|member| *member != id);
        }
        if let (Some(space), Some(ring)) = (channel.space, &channel.ring)
            && let Some(space) = self.spaces.get_mut(&space)
        {
            space.unmap_kernel(ring.va);
            if let Some(kernel) = &ring.kernel {
                space.unmap_kernel(kernel.commands_va);
            }
        }
        self.wake_waiters(&channel);
        for syncpoint in channel.syncpoints() {
            self.syncpoints.give_back(syncpoint.id);
            if let Some(space) = channel.space.and_then(|space| self.spaces.get_mut(&space)) {
                space.unmap_kernel(syncpoint.va);
            }
        }
        self.free_channels.push(id);
        self.reap();
    }

    /// Drops unused TSGs and address spaces.
    pub(super) fn reap(&mut self) {
        let opened =
            |wanted: u32| self.fds.objects().any(|object| matches!(object, Object::Tsg(id) if *id == wanted));
        let dead: Vec<u32> = self
            .tsgs
            .iter()
            .filter(|(id, tsg)| tsg.channels.is_empty() && !opened(**id))
            .map(|(id, _)| *id)
            .collect();
        for id in dead {
            self.forget_tokens(id);
            let Some(tsg) = self.tsgs.remove(&id) else { continue };
            for context in tsg.contexts {
                if let Some(space) = self.spaces.get_mut(&context.space) {
                    context.buffers.iter().for_each(|va| space.release_kernel(*va));
                }
            }
        }
        let (fds, tsgs, channels) = (&self.fds, &self.tsgs, &self.channels);
        self.spaces.retain(|id, _| {
            fds.objects().any(|object| matches!(object, Object::Space(space) if space == id))
                || channels.values().any(|channel| channel.space == Some(*id))
                || tsgs.values().any(|tsg| tsg.contexts.iter().any(|context| context.space == *id))
        });
    }

    pub(super) fn live(&self) -> LiveCounts {
        LiveCounts {
            descriptors: self.fds.len(),
            mappings: self.mappings.len(),
            handles: self.nvmap.handles(),
            buffers: self.nvmap.buffers(),
            memory_bytes: self.nvmap.memory_bytes(),
            address_spaces: self.spaces.len(),
            gpu_mappings: self.spaces.values().map(Space::mappings).sum(),
            tsgs: self.tsgs.len(),
            channels: self.channels.len(),
            syncpoints: self.syncpoints.in_use(),
        }
    }
}
