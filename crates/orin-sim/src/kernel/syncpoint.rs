//! Syncpoints: 1024 counters of host1x, which the GPU accesses through a window of memory.
//!
//! Each syncpoint has 64 KiB of the shim's 64 MiB. The GPU reads its value there; a write of any word increments it by
//! one. Values are 32 bits wide and wrap, so comparisons use the signed difference. A syncpoint keeps its value when it
//! changes owners. The end of a channel adds 1000 to its syncpoint so that waiters wake up (`os/linux/nvhost_host1x.c`,
//! `hal/sync/syncpt_cmdbuf_gv11b*.c`, `drivers/gpu/host1x/syncpt.c`).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rustix::io::Errno;

use crate::memory::{Memory, WriteCounter};
use crate::mmu::MappedRange;

use super::address_space::Space;
use super::fence::{Fence, Threshold};
use super::pulse::Pulse;

/// Number of syncpoints on Tegra234.
pub(super) const COUNT: u32 = 1024;
/// Size of one syncpoint's window in the shim, in bytes.
pub(super) const WINDOW_BYTES: u64 = 0x1_0000;
/// Size of the shim in bytes.
const APERTURE_BYTES: u64 = COUNT as u64 * WINDOW_BYTES;
/// Amount that the end of a channel adds.
const SAFE_STATE: u32 = 1000;

/// The offset of a syncpoint's value.
pub(super) fn offset(id: u32) -> usize {
    assert!(id < COUNT, "syncpoint {id}");
    // CAST: below 64 MiB.
    (u64::from(id) * WINDOW_BYTES) as usize
}

/// Counts the GPU's writes.
#[derive(Debug)]
struct Shim {
    pulse: Arc<Pulse>,
}

impl WriteCounter for Shim {
    fn written(&self, memory: &Memory, offset: usize, words: u32) {
        // CAST: a power of two that fits usize.
        let window = offset & !(WINDOW_BYTES as usize - 1);
        memory.word(window).fetch_add(words, Ordering::SeqCst);
        self.pulse.beat();
    }
}

/// All syncpoints.
#[derive(Debug)]
pub(super) struct Syncpoints {
    /// The shim. The first word of each window is the value.
    aperture: Arc<Memory>,
    taken: Vec<bool>,
    pulse: Arc<Pulse>,
}

/// A channel's syncpoint, mapped in its address space.
#[derive(Clone, Copy, Debug)]
pub(super) struct UserSyncpoint {
    pub(super) id: u32,
    /// First address of its window.
    pub(super) va: u64,
}

impl Syncpoints {
    /// Number 0 is reserved. `seed` determines the initial values; on a board they depend on earlier work.
    ///
    /// # Errors
    ///
    /// Fails if there is no memory for the shim.
    pub(super) fn new(pulse: Arc<Pulse>, seed: u64) -> Result<Self, Errno> {
        let shim = Arc::new(Shim { pulse: Arc::clone(&pulse) });
        // CAST: 64 MiB.
        let aperture = Memory::new("nvgpu syncpoints", APERTURE_BYTES as usize)?.counting(shim);
        if seed != 0 {
            let mut state = seed;
            for id in 1..64 {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                // CAST: below 2^12.
                aperture.store(offset(id), (state >> 52) as u32 * SAFE_STATE);
            }
        }
        let mut taken = vec![false; COUNT as usize];
        taken[0] = true;
        Ok(Self { aperture: Arc::new(aperture), taken, pulse })
    }

    pub(super) fn value(&self, id: u32) -> u32 {
        self.aperture.load(offset(id))
    }

    /// Adds to a value, like the kernel or another engine.
    pub(super) fn add(&self, id: u32, amount: u32) {
        self.aperture.word(offset(id)).fetch_add(amount, Ordering::SeqCst);
        self.pulse.beat();
    }

    /// Wakes all waiters of this syncpoint.
    pub(super) fn set_safe_state(&self, id: u32) {
        self.add(id, SAFE_STATE);
    }

    /// Raises a syncpoint to at least `value`, as if its work were done.
    pub(super) fn finish(&self, id: u32, value: u32) {
        let word = self.aperture.word(offset(id));
        let behind = |now: u32| (value.wrapping_sub(now).cast_signed() > 0).then_some(value);
        let _ = word.fetch_update(Ordering::SeqCst, Ordering::SeqCst, behind);
        self.pulse.beat();
    }

    /// Allocates the lowest free syncpoint and maps its window.
    pub(super) fn take(&mut self, space: &mut Space) -> Result<UserSyncpoint, SyncpointError> {
        let free = self.taken.iter().position(|taken| !taken).ok_or(SyncpointError::NoneLeft)?;
        // CAST: below COUNT.
        let id = free as u32;
        self.read_only_map(space).map_err(|_| SyncpointError::NoAddresses)?;
        let va = space.reserve_kernel(WINDOW_BYTES).map_err(|_| SyncpointError::NoAddresses)?;
        space.mmu.map(MappedRange {
            va,
            len: WINDOW_BYTES,
            memory: Arc::clone(&self.aperture),
            offset: offset(id) as u64,
            writable: true,
            cached: false,
        });
        self.taken[free] = true;
        Ok(UserSyncpoint { id, va })
    }

    /// Allocates the lowest free syncpoint for another engine than the GPU, whose work the kernel counts.
    pub(super) fn take_for_engine(&mut self) -> Option<u32> {
        let free = self.taken.iter().position(|taken| !taken)?;
        self.taken[free] = true;
        // CAST: below COUNT.
        Some(free as u32)
    }

    /// Frees a syncpoint; the caller unmaps its window.
    pub(super) fn give_back(&mut self, id: u32) {
        if let Some(taken) = self.taken.get_mut(id as usize) {
            *taken = false;
        }
    }

    /// The address of the read-only view of all syncpoints, created once per address space.
    pub(super) fn read_only_map(&self, space: &mut Space) -> Result<u64, Errno> {
        if let Some(va) = space.syncpoints {
            return Ok(va);
        }
        let va = space.reserve_kernel(APERTURE_BYTES)?;
        space.mmu.map(MappedRange {
            va,
            len: APERTURE_BYTES,
            memory: Arc::clone(&self.aperture),
            offset: 0,
            writable: false,
            cached: false,
        });
        space.syncpoints = Some(va);
        Ok(va)
    }

    /// The number of syncpoints in use.
    pub(super) fn in_use(&self) -> usize {
        self.taken.iter().skip(1).filter(|taken| **taken).count()
    }

    /// Creates a fence on a threshold. `limit` is the time limit of a wait for it.
    ///
    /// # Errors
    ///
    /// EINVAL if there is no such syncpoint.
    pub(super) fn fence(
        &self,
        id: u32,
        threshold: u32,
        limit: Option<Duration>,
    ) -> Result<Arc<Fence>, Errno> {
        if id >= COUNT {
            return Err(Errno::INVAL);
        }
        Ok(Arc::new(Fence::of_syncpoint(Threshold { id, threshold }, Arc::clone(&self.aperture), limit)))
    }
}

/// Reasons why a channel gets no syncpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SyncpointError {
    /// All are in use.
    NoneLeft,
    /// The kernel's area has no room.
    NoAddresses,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn syncpoints() -> (Syncpoints, Space) {
        let syncpoints = Syncpoints::new(Arc::default(), 0).unwrap();
        (syncpoints, Space::new(0x20_0000, 0xff_ffe0_0000))
    }

    #[test]
    fn the_windows_lie_where_a_board_put_them() {
        let (mut syncpoints, mut space) = syncpoints();
        // The ring of the first channel comes first.
        assert_eq!(space.reserve_kernel(0x2000), Ok(0xff_ffe0_0000));
        let first = syncpoints.take(&mut space).unwrap();
        assert_eq!((first.id, first.va), (1, 0xff_ffe1_0000));
        assert_eq!(space.syncpoints, Some(0x100_03e0_0000));
    }

    #[test]
    fn any_write_to_the_window_adds_one() {
        let (mut syncpoints, mut space) = syncpoints();
        let (first, second) = (syncpoints.take(&mut space).unwrap(), syncpoints.take(&mut space).unwrap());
        let view = space.mmu.view();
        view.write(first.va, &[0; 4]).unwrap();
        view.write(first.va + 0x8000, &[0xff; 4]).unwrap();
        assert_eq!((syncpoints.value(first.id), syncpoints.value(second.id)), (2, 0));
        let base = space.syncpoints.unwrap();
        let mut seen = [0; 4];
        view.read(base + u64::from(first.id) * WINDOW_BYTES, &mut seen).unwrap();
        assert_eq!(u32::from_le_bytes(seen), 2);
        assert!(view.write(base, &[0; 4]).is_err(), "the view of all is read-only");
    }

    #[test]
    fn thresholds_compare_across_the_wrap_and_latch() {
        let (syncpoints, _) = syncpoints();
        syncpoints.add(5, u32::MAX);
        let fence = syncpoints.fence(5, 3, None).unwrap();
        assert_eq!(fence.result(), None);
        syncpoints.add(5, 4);
        assert_eq!(fence.result(), Some(Ok(())));
        syncpoints.add(5, u32::MAX);
        assert_eq!(fence.result(), Some(Ok(())), "a signalled fence stays signalled");
        assert!(syncpoints.fence(COUNT, 0, None).is_err());
    }

    #[test]
    fn the_time_of_a_fence_runs_from_the_first_wait() {
        let (syncpoints, _) = syncpoints();
        let fence = syncpoints.fence(1, 1, Some(Duration::ZERO)).unwrap();
        assert_eq!(fence.result(), None);
        assert!(fence.arm().is_some());
        assert_eq!(fence.result(), Some(Err(Errno::TIMEDOUT)));
        syncpoints.add(1, 1);
        assert_eq!(fence.result(), Some(Err(Errno::TIMEDOUT)));
    }

    #[test]
    fn the_lowest_free_number_is_taken() {
        let (mut syncpoints, mut space) = syncpoints();
        for id in 1..4 {
            assert_eq!(syncpoints.take(&mut space).unwrap().id, id);
        }
        syncpoints.give_back(2);
        assert_eq!(syncpoints.take(&mut space).unwrap().id, 2);
        while syncpoints.take(&mut space).is_ok() {}
        assert_eq!(syncpoints.in_use(), 1023);
        assert_eq!(syncpoints.take(&mut space).unwrap_err(), SyncpointError::NoneLeft);
    }
}
