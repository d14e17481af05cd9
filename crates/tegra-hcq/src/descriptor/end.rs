//! Actions at the end of a grid: starting the next descriptor, releasing a semaphore.
//!
//! Both are written into a descriptor that is already in GPU memory, because only the following launch, or the end of
//! the batch, decides on them. The memory is write-combined or across a PCIe bus, so it is written but never read:
//! a [`Link`] keeps what else is in the words of a chain, and the words of a release contain nothing else.

use ampere_cmd::qmd::{Field, Patch, Qmd, QmdV3_0, QmdV4_0, pointer, v3_0, v4_0};
use ampere_cmd::words::{join, lower_upper};
use gpu_hal::chip::{Chain, Chip, QmdVersion};

use super::layout::{Layout, RELEASE_FIELDS};
use crate::error::Result;
use crate::grid::Dim3;

/// Words of a chain next to the pointer: flags and barrier.
const CHAIN_WORDS: usize = 2;
/// Alignment of a released semaphore in bytes: it has four words.
const SEMAPHORE_ALIGN: u64 = 16;

/// The fields of a chain, except the pointer, with the values for a chip.
pub(super) type ChainPatch<V> = Patch<V, CHAIN_WORDS>;

/// Places the values of a chain.
///
/// # Errors
///
/// If a value does not fit its field.
pub(super) fn chain_patch<V: Layout>(chain: Chain) -> Result<ChainPatch<V>> {
    let next = V::NEXT;
    let mut patch = ChainPatch::<V>::new()
        .with(next.enable, 1)?
        .with(next.action, chain.action)?
        .with(next.prefetch, chain.prefetch.into())?;
    if let Some(barrier) = chain.barrier {
        patch = patch.with(V::BARRIER, barrier.membar)?;
        if let Some(chasing) = next.chasing {
            patch = patch.with(chasing, barrier.chasing.into())?;
        }
    }
    Ok(patch)
}

/// The words of a descriptor that chain it to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    chip: &'static Chip,
    /// Index of the pointer's word.
    pointer: u32,
    /// The other words, with their indices; `used` of them.
    words: [(u32, u32); CHAIN_WORDS],
    used: u32,
}

impl Link {
    /// The link of a descriptor with these words.
    #[inline]
    pub(super) fn of<V: Layout>(chip: &'static Chip, chain: &ChainPatch<V>, words: &[u32]) -> Self {
        // CAST: descriptors have up to 96 words.
        let mut link =
            Self { chip, pointer: V::NEXT.pointer.bits().1 / 32, words: [(0, 0); CHAIN_WORDS], used: 0 };
        chain.over(words, |index, word| {
            link.words[link.used as usize] = (index as u32, word);
            link.used += 1;
        });
        link
    }

    /// Makes the scheduler continue with the descriptor at `next_va` when the grid of the one at `qmd_at` has ended.
    ///
    /// # Errors
    ///
    /// If the address does not fit a pointer to a descriptor; nothing is written then.
    ///
    /// # Safety
    ///
    /// `qmd_at` is valid for volatile writes of the descriptor that the link was made for and aligned to 8, and the GPU
    /// does not use the descriptor.
    #[inline]
    pub(crate) unsafe fn store(self, next_va: u64, qmd_at: *mut u8) -> Result<()> {
        let words = qmd_at.cast::<u32>();
        let next = pointer(next_va)?;
        // SAFETY: the words are inside of the descriptor, which is valid by the caller's promise.
        unsafe { words.add(self.pointer as usize).write_volatile(next) };
        for (index, word) in &self.words[..self.used as usize] {
            // SAFETY: as above.
            unsafe { words.add(*index as usize).write_volatile(*word) };
        }
        Ok(())
    }

    /// Makes the grid of the descriptor at `qmd_at` release a semaphore; see [`store_release`].
    ///
    /// # Errors
    ///
    /// As [`store_release`].
    ///
    /// # Safety
    ///
    /// As [`Link::store`].
    #[inline]
    pub(crate) unsafe fn store_release(self, va: u64, value: u64, qmd_at: *mut u8) -> Result<()> {
        // SAFETY: the caller's promise is passed on.
        unsafe { store_release(self.chip, va, value, qmd_at) }
    }

    /// Makes the grid of the descriptor at `qmd_at` write the time when it has ended; see [`store_stamp`].
    ///
    /// # Errors
    ///
    /// As [`store_release`].
    ///
    /// # Safety
    ///
    /// As [`Link::store`].
    #[inline]
    pub(crate) unsafe fn store_stamp(self, va: u64, qmd_at: *mut u8) -> Result<()> {
        // SAFETY: the caller's promise is passed on.
        unsafe { store_stamp(self.chip, va, qmd_at) }
    }

    /// Undoes [`Link::store_release`] and [`Link::store_stamp`].
    ///
    /// # Safety
    ///
    /// As [`Link::store`].
    pub(crate) unsafe fn clear_release(self, qmd_at: *mut u8) {
        let clear = |index: usize, _| {
            // SAFETY: the word is inside of the descriptor, which is valid by the caller's promise.
            unsafe { qmd_at.cast::<u32>().add(index).write_volatile(0) };
        };
        match self.chip.descriptor.value {
            QmdVersion::V4_0 => v4_0::Layout::RELEASE.words().for_each(|index| clear(index, ())),
            QmdVersion::V3_0 => v3_0::Layout::RELEASE.words().for_each(|index| clear(index, ())),
        }
    }
}

/// Makes the scheduler write `value` and the time to the semaphore at `va` when the grid of the descriptor at `qmd_at`
/// has ended and its stores are visible.
///
/// # Errors
///
/// If the address is not a multiple of 16 or does not fit its field; nothing is written then.
///
/// # Safety
///
/// As [`Link::store`], for a descriptor of this chip.
#[inline]
pub(super) unsafe fn store_release(chip: &Chip, va: u64, value: u64, qmd_at: *mut u8) -> Result<()> {
    let barrier = chip.descriptor_release.value.system_barrier;
    // SAFETY: the caller's promise is passed on.
    unsafe { store_release_of(chip, va, value, barrier, qmd_at) }
}

/// Makes the scheduler write 1 and the time to the semaphore at `va` when the grid of the descriptor at `qmd_at` has
/// ended. Without a barrier of its own: it delays no other work, and a later release of the queue orders it.
///
/// # Errors
///
/// As [`store_release`].
///
/// # Safety
///
/// As [`store_release`].
#[inline]
pub(super) unsafe fn store_stamp(chip: &Chip, va: u64, qmd_at: *mut u8) -> Result<()> {
    // SAFETY: the caller's promise is passed on.
    unsafe { store_release_of(chip, va, 1, false, qmd_at) }
}

/// As [`store_release`], with or without a system barrier.
#[inline]
unsafe fn store_release_of(chip: &Chip, va: u64, value: u64, barrier: bool, qmd_at: *mut u8) -> Result<()> {
    // SAFETY: the caller's promise is passed on.
    unsafe {
        match chip.descriptor.value {
            QmdVersion::V4_0 => store_release_in::<v4_0::Layout>(va, value, barrier, qmd_at),
            QmdVersion::V3_0 => store_release_in::<v3_0::Layout>(va, value, barrier, qmd_at),
        }
    }
}

/// As [`store_release_of`].
#[inline]
unsafe fn store_release_in<V: Layout>(va: u64, value: u64, barrier: bool, qmd_at: *mut u8) -> Result<()> {
    if !va.is_multiple_of(SEMAPHORE_ALIGN) {
        let what = "semaphore of a launch descriptor";
        return Err(ampere_cmd::Error::Misaligned { what, va, alignment: SEMAPHORE_ALIGN }.into());
    }
    let ([va_low, va_high], [low, high]) = (lower_upper(va), lower_upper(value));
    let values: [u64; RELEASE_FIELDS] =
        [1, 1, barrier.into(), va_low.into(), va_high.into(), low.into(), high.into()];
    let patch = V::RELEASE.patch(values)?;
    patch.over(&[], |index, word| {
        // SAFETY: the word is inside of the descriptor, which is valid by the caller's promise.
        unsafe { qmd_at.cast::<u32>().add(index).write_volatile(word) };
    });
    Ok(())
}

/// The fields of a descriptor that a fault report shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) code_va: u64,
    pub(crate) grid: Dim3,
    pub(crate) block: Dim3,
    /// Address of the next descriptor; `None` if the chain ends here.
    pub(crate) next: Option<u64>,
    /// Semaphore released at the end of the grid, and its value; `None` without a release.
    pub(crate) release: Option<(u64, u64)>,
}

/// Decodes the words of a descriptor; `None` if their number is not that of the chip's descriptors.
pub(crate) fn read(chip: &Chip, words: &[u32]) -> Option<Seen> {
    match chip.descriptor.value {
        QmdVersion::V4_0 => QmdV4_0::from_slice(words).map(|qmd| seen(&qmd)),
        QmdVersion::V3_0 => QmdV3_0::from_slice(words).map(|qmd| seen(&qmd)),
    }
}

fn seen<V: Layout>(qmd: &Qmd<V>) -> Seen {
    // CAST: no field has more than 32 bits.
    let dim = |fields: [Field<V>; 3]| Dim3::from(fields.map(|field| qmd.get(field) as u32));
    let [low, high] = V::CODE;
    let next = V::NEXT;
    let [enable, _, _, va_low, va_high, value_low, value_high] =
        V::RELEASE.read(qmd.as_words()).map(|value| value as u32);
    Seen {
        code_va: qmd.address(low, high),
        grid: dim(V::GRID),
        block: dim(V::BLOCK),
        next: (qmd.get(next.enable) != 0).then(|| ampere_cmd::qmd::pointed_va(qmd.get(next.pointer) as u32)),
        release: (enable != 0).then(|| (join(va_high, va_low), join(value_high, value_low))),
    }
}
