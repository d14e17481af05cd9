//! The back end: what a queue needs of a GPU driver.
//!
//! A back end offers properties, memory, channel groups and the reason of a failure. It hands out
//! rings and memory as plain pointers ([`SubmitRing`], [`DeviceMemory::cpu`]), so that the hot path
//! contains no dynamic call. [`nvgpu`] drives the Orin's kernel driver and the software Orin alike, because
//! both answer through the same door; [`nvrm`] drives NVIDIA's desktop driver.

use core::fmt::Debug;
use core::ptr::NonNull;
use std::time::{Duration, SystemTime};

use nvgpu_channel::ring::{Ring, RingFull, USERD_GP_PUT};
use nvgpu_channel::{ErrorCode, barrier};

use crate::device::DeviceKind;
use crate::error::Result;

pub(crate) mod nvgpu;
pub(crate) mod nvrm;

/// What the GPU is and where things lie in its address space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Properties {
    /// Which kind of device answers; never [`DeviceKind::Auto`].
    pub kind: DeviceKind,
    /// Name of the chip, for example `ga10b`.
    pub chip: String,
    /// Class of the compute engine (0xc7c0 on ga10b).
    pub compute_class: u32,
    /// Class of the copy engine (0xc7b5 on ga10b).
    pub copy_class: u32,
    /// Class of the channel (0xc76f on ga10b).
    pub gpfifo_class: u32,
    /// SM version, major and minor; (8, 7) on ga10b.
    pub sm_version: (u32, u32),
    /// Graphics processing clusters in use.
    pub gpc_count: u32,
    /// Texture processing clusters in use, over all GPCs.
    pub tpc_count: u32,
    /// Streaming multiprocessors in use.
    pub sm_count: u32,
    /// Warps for which local memory is laid out per SM.
    pub warps_per_sm: u32,
    /// Size of the L2 cache in bytes.
    pub l2_bytes: u64,
    /// Highest GPU clock in Hz.
    pub max_clock_hz: u64,
    /// Lowest GPU address that buffers get.
    pub va_start: u64,
    /// End of the GPU addresses that buffers get.
    pub va_end: u64,
    /// Generic address at which an SM sees its shared memory.
    pub shared_window: u64,
    /// Generic address at which a thread sees its local memory.
    pub local_window: u64,
    /// Further numbers that the driver reports, under the driver's own names.
    pub driver: Vec<(&'static str, i64)>,
}

/// What memory is for; decides how the CPU caches it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MemoryUse {
    /// Data of kernels, now and then read or written by the CPU.
    #[default]
    Device,
    /// Written by the CPU from front to back and read by the GPU; the CPU reads it slowly.
    Upload,
    /// Written by the GPU and read by the CPU.
    ReadBack,
    /// Small values that CPU and GPU exchange while both run: timelines, flags.
    Signals,
    /// Commands: written by the CPU in pieces, read by the GPU right after, never read back in a hurry.
    Commands,
}

impl MemoryUse {
    /// All uses.
    pub(crate) const ALL: [Self; 5] =
        [Self::Device, Self::Upload, Self::ReadBack, Self::Signals, Self::Commands];
}

/// Memory of the whole machine or GPU, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryInfo {
    /// What there is.
    pub total: u64,
    /// What nobody uses.
    pub free: u64,
}

/// Memory that CPU and GPU see.
pub(crate) trait DeviceMemory: Send + Sync + Debug {
    /// First address on the GPU.
    fn gpu_va(&self) -> u64;

    /// First byte on the CPU, page aligned; valid for the bytes that were asked for as long as `self`
    /// lives.
    fn cpu(&self) -> NonNull<u8>;
}

/// The two engines that a queue feeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    /// Kernels.
    Compute,
    /// Linear copies.
    Copy,
}

/// A GPFIFO ring with its doorbell: all that a submission touches.
#[derive(Debug)]
pub(crate) struct SubmitRing {
    ring: Ring,
    doorbell: NonNull<u32>,
    token: u32,
    /// The entry that follows each one that is pushed.
    follow: Option<u64>,
    /// Commands, ring and USERD are write-combined on a CPU whose barriers for ordinary memory do not order that.
    write_combined: bool,
}

// SAFETY: the doorbell is a device register that any thread may write; the ring is `Send` itself.
unsafe impl Send for SubmitRing {}
// SAFETY: `&SubmitRing` only reads the number of entries.
unsafe impl Sync for SubmitRing {}

impl SubmitRing {
    /// A ring and the register that `token` is written to.
    ///
    /// # Safety
    ///
    /// `doorbell` is valid for volatile stores as long as the value is used.
    pub(crate) unsafe fn new(ring: Ring, doorbell: NonNull<u32>, token: u32) -> Self {
        Self { ring, doorbell, token, follow: None, write_combined: false }
    }

    /// For commands, ring and USERD in write-combined memory: their stores are waited for.
    pub(crate) fn write_combined(self) -> Self {
        Self { write_combined: true, ..self }
    }

    /// Lets `entry` follow each entry from now on.
    pub(crate) fn follow_with(&mut self, entry: u64) {
        self.follow = Some(entry);
    }

    /// Submissions that fit into the ring.
    pub(crate) fn capacity(&self) -> u32 {
        // One slot stays unused.
        (self.ring.entries() - 1) / if self.follow.is_some() { 2 } else { 1 }
    }

    /// What a fault report reads: see [`RingView`].
    pub(crate) fn view(&self) -> RingView {
        RingView { slots: self.ring.slots(), userd: self.ring.userd(), entries: self.ring.entries() }
    }

    /// Hands one entry to the GPU: entry, barrier, GP_PUT, barrier, doorbell.
    #[inline]
    pub(crate) fn submit(&mut self, entry: u64) -> Result<(), RingFull> {
        self.push(entry)?;
        self.publish();
        Ok(())
    }

    /// Writes one entry, and the one that follows it, for [`SubmitRing::publish`] to hand over.
    #[inline]
    pub(crate) fn push(&mut self, entry: u64) -> Result<(), RingFull> {
        match self.follow {
            None => self.ring.push(entry),
            Some(follow) => self.ring.push_pair([entry, follow]),
        }
        .map(drop)
    }

    /// Hands over what was pushed: barrier, GP_PUT, barrier, doorbell.
    #[inline]
    pub(crate) fn publish(&mut self) {
        if self.write_combined {
            barrier::drain_write_combining();
            self.ring.publish();
            barrier::drain_write_combining();
        } else {
            self.ring.publish();
            barrier::before_doorbell();
        }
        // SAFETY: valid by the contract of `new`.
        unsafe { self.doorbell.as_ptr().write_volatile(self.token) };
    }
}

/// Where ring and USERD lie, for looking at them while the channel is open.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RingView {
    slots: NonNull<u64>,
    userd: NonNull<u8>,
    entries: u32,
}

// SAFETY: addresses of memory that any thread may read; see `RingView::last_entries`.
unsafe impl Send for RingView {}
// SAFETY: as for `Send`.
unsafe impl Sync for RingView {}

impl RingView {
    /// The `count` entries written last, oldest first.
    ///
    /// # Safety
    ///
    /// The channel is still open.
    pub(crate) unsafe fn last_entries(&self, count: u32) -> Vec<u64> {
        // SAFETY: USERD has 512 bytes and is valid while the channel is open, by the contract.
        let put = unsafe { self.userd.as_ptr().add(USERD_GP_PUT).cast::<u32>().read_volatile() };
        let count = count.min(self.entries - 1);
        (1..=count)
            .rev()
            // The ring's size is a power of two.
            .map(|back| put.wrapping_sub(back) & (self.entries - 1))
            // SAFETY: the index is below `entries`; the slots are valid while the channel is open.
            .map(|slot| unsafe { self.slots.as_ptr().add(slot as usize).read_volatile() })
            .filter(|entry| *entry != 0)
            .collect()
    }
}

/// An access that the MMU refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// Its address.
    pub(crate) address: u64,
    /// Why, `NV_PFAULT_FAULT_TYPE_*` (`dev_fault.h`).
    pub(crate) kind: u32,
    /// What was tried, `NV_PFAULT_ACCESS_TYPE_*` (`dev_fault.h`).
    pub(crate) access: u32,
}

/// What an SM has recorded about its exception.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SmRecord {
    /// Error of a warp; 0 when only the SM as a whole has one.
    pub(crate) warp_esr: u32,
    /// Program counter of the warp, 0 for none.
    pub(crate) pc: u64,
    /// Address of its access, 0 for none.
    pub(crate) address: u64,
}

/// What a driver's own calls tell about a fault, beyond the kernel log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Evidence {
    /// Program counter of the warp that was stopped.
    pub(crate) pc: Option<u64>,
    /// Why it was stopped.
    pub(crate) warp_esr: Option<u32>,
    /// Address of its access.
    pub(crate) address: Option<u64>,
    /// What the MMU refused.
    pub(crate) mmu: Option<Refusal>,
}

impl Evidence {
    /// What the SMs that have an error have recorded: the first with one of a warp counts, or else the first.
    pub(crate) fn of_sms(records: &[SmRecord]) -> Self {
        let of_a_warp = |record: &&SmRecord| record.warp_esr & 0xffff != 0;
        let Some(record) = records.iter().find(of_a_warp).or(records.first()) else { return Self::default() };
        Self {
            pc: (record.pc != 0).then_some(record.pc),
            warp_esr: Some(record.warp_esr),
            address: (record.address != 0).then_some(record.address),
            mmu: None,
        }
    }
}

/// Channels that are scheduled, and die, together (one TSG): compute and copy, unless it was asked for one alone.
pub(crate) trait ChannelGroup: Send + Sync + Debug {
    /// The submission ring of one engine's channel, to be asked for once and before anything is
    /// submitted. It must not be used after the group is dropped.
    fn ring(&self, engine: Engine) -> SubmitRing;

    /// The error that the kernel has recorded for the group, if there is one.
    fn error(&self) -> Option<ErrorCode>;

    /// The numbers of the group's channels, as the kernel log has them.
    fn channel_ids(&self) -> Vec<u32>;

    /// Stops all work of the group and takes it out of service for good.
    fn abort(&self) -> Result<()>;

    /// Sleeps in the kernel until the GPU reports that it has finished something, at most `timeout`.
    /// Returns early and late at will: a report may concern other work, and one may be missed. `false`
    /// when the back end cannot sleep; it has then returned at once.
    fn sleep(&self, timeout: Duration) -> bool;

    /// What the driver's own calls tell about the fault that has stopped the group.
    fn evidence(&self) -> Evidence {
        Evidence::default()
    }
}

/// A GPU driver.
pub(crate) trait Backend: Send + Sync + Debug {
    /// What the GPU is.
    fn properties(&self) -> &Properties;

    /// Memory of at least `bytes` bytes.
    fn allocate(&self, bytes: u64, purpose: MemoryUse, label: &str) -> Result<Box<dyn DeviceMemory>>;

    /// Makes memory of the process visible to the GPU, without a copy.
    ///
    /// # Safety
    ///
    /// `bytes` bytes at `pointer` are mapped writable, and stay so until the result is dropped.
    unsafe fn import(&self, pointer: NonNull<u8>, bytes: usize, label: &str)
    -> Result<Box<dyn DeviceMemory>>;

    /// How much memory there is, if the driver tells.
    fn memory_info(&self) -> Option<MemoryInfo>;

    /// The same moment by the GPU's clock, in nanoseconds, and by the system's.
    fn clock_pair(&self) -> Result<(u64, SystemTime)>;

    /// From how many bytes on a copy between two pieces of [`MemoryUse::Device`] is faster by a kernel than by the copy
    /// engine; `None` where it never is, or nobody has measured it.
    fn copies_by_kernel_from(&self) -> Option<u64> {
        None
    }

    /// From how many bytes on the CPU reads [`MemoryUse::Device`] faster through the copy engine than by its own loads;
    /// `None` where it never does.
    fn reads_by_engine_from(&self) -> Option<usize> {
        None
    }

    /// A fresh channel group.
    fn open_channels(&self) -> Result<Box<dyn ChannelGroup>>;

    /// A fresh copy channel; if the driver can, one that works while others compute. It may have no other engine.
    fn open_copy_channel(&self) -> Result<Box<dyn ChannelGroup>> {
        self.open_channels()
    }

    /// Lines that the kernel has logged about the GPU since the last call, or why they cannot be read.
    fn kernel_log(&self) -> Result<Vec<String>, String>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_that_follows_goes_with_each_submission() {
        let (mut slots, mut userd, mut doorbell) = (vec![0_u64; 8], vec![0_u64; 64], 0_u32);
        let at = |words: &mut Vec<u64>| NonNull::new(words.as_mut_ptr()).unwrap();
        // SAFETY: the vectors live to the end of the test.
        let ring = unsafe { Ring::new(at(&mut slots), at(&mut userd).cast(), 8) };
        // SAFETY: as above.
        let mut ring = unsafe { SubmitRing::new(ring, NonNull::from(&mut doorbell), 7) };
        assert_eq!(ring.capacity(), 7);
        ring.submit(1).unwrap();
        ring.follow_with(9);
        assert_eq!(ring.capacity(), 3);
        ring.submit(2).unwrap();
        // SAFETY: the ring lives.
        assert_eq!(unsafe { ring.view().last_entries(7) }, [1, 2, 9]);
    }
}
