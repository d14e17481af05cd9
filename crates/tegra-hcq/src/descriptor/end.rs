//! What happens at the end of a grid: the descriptor that comes next, the semaphore that is released.
//!
//! Both are written into a descriptor that stands in memory already, since only the launch that follows, or the end of
//! the batch, decides about them. A chain is the field group DEPENDENT_QMD0, a release RELEASE0 (`clc7c0qmd.h`) or
//! RELEASE_SEMAPHORE0 (`clcbc0qmd.h`).

use ampere_cmd::qmd::{Field, FieldInfo, Qmd, QmdV3_0, QmdV4_0, v3_0, v4_0};

use super::{Generation, Layout};
use crate::error::{Error, Result};
use crate::grid::Dim3;

/// The fields of a release: a semaphore of four words, value and time, that is written when the grid has ended.
pub(super) struct ReleaseFields {
    /// Whether there is one.
    pub(super) enable: FieldInfo,
    /// Whether the value has 64 bits.
    pub(super) payload64: FieldInfo,
    /// Whether a barrier of the whole system comes before it, where that is wanted.
    pub(super) barrier: Option<FieldInfo>,
    /// Low and high word of the address.
    pub(super) address: [FieldInfo; 2],
    /// Low and high word of the value.
    pub(super) payload: [FieldInfo; 2],
}

impl ReleaseFields {
    /// The words that a release consists of, in pairs of index and value. Nothing else lies in them, and they are 0
    /// without a release.
    const fn words(&self, va: u64, value: u64) -> [(usize, u32); 5] {
        const fn at(field: &FieldInfo) -> (usize, u32) {
            ((field.lo / 32) as usize, field.lo % 32)
        }
        let barrier = match &self.barrier {
            Some(field) => 1 << at(field).1,
            None => 0,
        };
        let (flags_at, enable) = at(&self.enable);
        let (high_at, high) = at(&self.address[1]);
        let mut flags = 1 << enable | 1 << at(&self.payload64).1 | barrier;
        // CAST: halves of addresses and values.
        let mut upper = ((va >> 32) as u32) << high;
        if flags_at == high_at {
            // Version 3.0 has both in one word.
            flags |= upper;
            upper = flags;
        }
        [
            (flags_at, flags),
            (at(&self.address[0]).0, va as u32),
            (high_at, upper),
            (at(&self.payload[0]).0, value as u32),
            (at(&self.payload[1]).0, (value >> 32) as u32),
        ]
    }
}

/// The barrier at the end of a grid with another behind it. It is for the GPU alone and goes along with the tasks that it
/// follows; the last grid's barrier, for the whole system, stands for all. That is how CUDA ends the kernels of a graph on
/// this chip, as their descriptors in its pushbuffer show.
pub(super) struct LinkedBarrier {
    /// Whether it goes along with the tasks; in the word of the link's flags.
    pub(super) chasing: FieldInfo,
    /// Its kind.
    pub(super) kind: FieldInfo,
    /// The kind that is for the GPU alone.
    pub(super) membar: u32,
}

/// How the words of a descriptor are changed that say what comes behind its grid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    generation: Generation,
    /// The word with the flags of a chain, as it is without a next descriptor.
    flags: u32,
    /// The word with the kind of the barrier, as it is with a next descriptor, where that makes a difference.
    barrier: u32,
}

impl Link {
    /// For a descriptor of these words.
    #[inline]
    pub(super) fn of<V: Layout>(words: &[u32]) -> Self {
        let barrier = V::NEXT_BARRIER.map_or(0, |LinkedBarrier { kind, membar, .. }| {
            let kept = !(u32::MAX >> (32 - kind.width()) << (kind.lo % 32));
            words[(kind.lo / 32) as usize] & kept | membar << (kind.lo % 32)
        });
        Self { generation: V::GENERATION, flags: words[Self::flags_at::<V>()], barrier }
    }

    /// The generation of the descriptor.
    #[inline]
    pub(crate) fn generation(self) -> Generation {
        self.generation
    }

    /// Index of the word with the flags.
    const fn flags_at<V: Layout>() -> usize {
        let (action, _) = V::NEXT_ACTION;
        assert!(V::NEXT_ENABLE.lo / 32 == action.lo / 32, "both flags lie in one word");
        if let Some(barrier) = &V::NEXT_BARRIER {
            assert!(barrier.chasing.lo / 32 == action.lo / 32, "this one, too");
        }
        (action.lo / 32) as usize
    }

    /// What a link adds to that word.
    const fn flags<V: Layout>() -> u32 {
        let (action, value) = V::NEXT_ACTION;
        let prefetch = match V::NEXT_PREFETCH {
            Some(field) => 1 << (field.lo % 32),
            None => 0,
        };
        let chasing = match &V::NEXT_BARRIER {
            Some(barrier) => 1 << (barrier.chasing.lo % 32),
            None => 0,
        };
        1 << (V::NEXT_ENABLE.lo % 32) | value << (action.lo % 32) | prefetch | chasing
    }

    /// Makes the scheduler go on with the descriptor at `next_va` when the grid of the one at `qmd_at` has
    /// ended. The scheduler takes a private copy, so a stale one of an earlier launch at this address is never
    /// used.
    ///
    /// # Safety
    ///
    /// `qmd_at` is valid for volatile writes of the descriptor that the link was made for, aligned to 8, and the
    /// GPU does not use it.
    #[inline]
    pub(crate) unsafe fn store(self, next_va: u64, qmd_at: *mut u8) {
        // SAFETY: the caller's promise is passed on.
        unsafe {
            match self.generation {
                Generation::Ampere => self.store_in::<v3_0::Layout>(next_va, qmd_at),
                Generation::Hopper => self.store_in::<v4_0::Layout>(next_va, qmd_at),
            }
        }
    }

    /// As [`Link::store`].
    #[inline]
    unsafe fn store_in<V: Layout>(self, next_va: u64, qmd_at: *mut u8) {
        let words = qmd_at.cast::<u32>();
        // SAFETY: the words lie inside the descriptor, for which the caller vouches.
        unsafe {
            // CAST: a descriptor lies below 2^40.
            words.add((V::NEXT.lo / 32) as usize).write_volatile((next_va >> 8) as u32);
            words.add(Self::flags_at::<V>()).write_volatile(self.flags | Self::flags::<V>());
            if let Some(LinkedBarrier { kind, .. }) = V::NEXT_BARRIER {
                words.add((kind.lo / 32) as usize).write_volatile(self.barrier);
            }
        }
    }
}

impl Generation {
    /// Makes the scheduler write `value` and the time to the semaphore at `va`, a multiple of 16, when the grid of
    /// the descriptor at `qmd_at` has ended and its stores are visible.
    ///
    /// # Errors
    ///
    /// When the address does not fit the field.
    ///
    /// # Safety
    ///
    /// As [`Link::store`], for a descriptor of this generation.
    #[inline]
    pub(crate) unsafe fn store_release(self, va: u64, value: u64, qmd_at: *mut u8) -> Result<()> {
        let words = match self {
            Self::Ampere => release_words::<v3_0::Layout>(va, value)?,
            Self::Hopper => release_words::<v4_0::Layout>(va, value)?,
        };
        for (at, word) in words {
            // SAFETY: each word lies inside the descriptor, for which the caller vouches.
            unsafe { qmd_at.cast::<u32>().add(at).write_volatile(word) };
        }
        Ok(())
    }

    /// Undoes [`Generation::store_release`].
    ///
    /// # Safety
    ///
    /// As there.
    pub(crate) unsafe fn clear_release(self, qmd_at: *mut u8) {
        let release = match self {
            Self::Ampere => v3_0::Layout::RELEASE,
            Self::Hopper => v4_0::Layout::RELEASE,
        };
        for (at, _) in release.words(0, 0) {
            // SAFETY: as in `store_release`.
            unsafe { qmd_at.cast::<u32>().add(at).write_volatile(0) };
        }
    }
}

#[inline]
fn release_words<V: Layout>(va: u64, value: u64) -> Result<[(usize, u32); 5]> {
    let bits = 32 + V::RELEASE.address[1].width();
    if va >> bits != 0 || !va.is_multiple_of(16) {
        return Err(Error::Launch(format!("a descriptor cannot release a semaphore at {va:#x}")));
    }
    Ok(V::RELEASE.words(va, value))
}

/// What a descriptor in memory says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) code_va: u64,
    pub(crate) grid: Dim3,
    pub(crate) block: Dim3,
    /// The descriptor that comes next.
    pub(crate) next: Option<u64>,
    /// The semaphore that is released at the end, and the value.
    pub(crate) release: Option<(u64, u64)>,
}

/// Reads the words of a descriptor; `None` when there are too few or too many.
pub(crate) fn read(generation: Generation, words: &[u32]) -> Option<Seen> {
    match generation {
        Generation::Ampere => QmdV3_0::from_slice(words).map(|qmd| seen(&qmd)),
        Generation::Hopper => QmdV4_0::from_slice(words).map(|qmd| seen(&qmd)),
    }
}

fn seen<V: Layout>(qmd: &Qmd<V>) -> Seen {
    // CAST: no field has more than 32 bits.
    let dim = |fields: [Field<V>; 3]| Dim3::from(fields.map(|field| qmd.get(field) as u32));
    let [low, high] = V::CODE.map(|field| qmd.get(field));
    let words = qmd.as_words();
    let enabled = words[Link::flags_at::<V>()] >> (V::NEXT_ENABLE.lo % 32) & 1 != 0;
    Seen {
        code_va: high << 32 | low,
        grid: dim(V::GRID),
        block: dim(V::BLOCK),
        next: enabled.then(|| u64::from(words[(V::NEXT.lo / 32) as usize]) << 8),
        release: released::<V>(words),
    }
}

fn released<V: Layout>(words: &[u32]) -> Option<(u64, u64)> {
    let field = |info: FieldInfo| {
        u64::from(words[(info.lo / 32) as usize] >> (info.lo % 32) & u32::MAX >> (32 - info.width()))
    };
    let pair = |[low, high]: [FieldInfo; 2]| field(high) << 32 | field(low);
    let release = V::RELEASE;
    (field(release.enable) != 0).then(|| (pair(release.address), pair(release.payload)))
}
