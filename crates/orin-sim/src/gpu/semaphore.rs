//! Semaphores in GPU memory, which every engine writes on completion and host waits for.
//!
//! A semaphore is one word, two words, or a 16-byte structure: payload (32 or 64 bits, with a zero upper word for a
//! 32-bit payload), and at byte 8 the time in nanoseconds. The time is written before the payload, so a reader that
//! sees the payload also sees its time (GA100 `dev_pbdma`). Instead of storing, a write may reduce: combine the payload
//! with memory atomically, like the L2.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use ampere_cmd::Method;

use crate::check::Strength;
use crate::gpu::ptimer_ns;
use crate::mmu::{Access, MmuFault, View};

/// The operation of a reduction, for memory `v` and payload `p`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    /// Smaller of the two.
    Min,
    /// Larger of the two.
    Max,
    /// Exclusive or.
    Xor,
    /// And.
    And,
    /// Or.
    Or,
    /// Wrapping sum.
    Add,
    /// `v >= p ? 0 : v + 1`.
    Inc,
    /// `v == 0 || v > p ? p : v - 1`.
    Dec,
    /// Sum of 32-bit floating-point numbers. Only the copy engine supports it and the next two.
    FAdd,
    /// Smaller floating-point number.
    FMin,
    /// Larger floating-point number.
    FMax,
}

impl Operation {
    /// Returns the reduction named `name` in a class header. The numbers differ between host, copy engine and compute;
    /// the names differ only in their prefix.
    pub(super) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "MIN" | "IMIN" | "RED_MIN" => Self::Min,
            "MAX" | "IMAX" | "RED_MAX" => Self::Max,
            "XOR" | "IXOR" | "RED_XOR" => Self::Xor,
            "AND" | "IAND" | "RED_AND" => Self::And,
            "OR" | "IOR" | "RED_OR" => Self::Or,
            "ADD" | "IADD" | "RED_ADD" => Self::Add,
            "INC" | "RED_INC" => Self::Inc,
            "DEC" | "RED_DEC" => Self::Dec,
            "FADD" => Self::FAdd,
            "FMIN" => Self::FMin,
            "FMAX" => Self::FMax,
            _ => return None,
        })
    }

    /// Returns the reduction that `bits` encode in field `field` of method `M`.
    pub(super) fn of<M: Method>(field: &str, bits: u32) -> Option<Self> {
        Self::named(M::INFO.field(field)?.value_name(bits)?)
    }
}

/// A reduction with the interpretation of its operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reduction {
    pub(super) operation: Operation,
    /// Whether minimum and maximum compare as signed numbers.
    pub(super) signed: bool,
}

impl Reduction {
    /// Returns why the L2 does not support the reduction, if so: increment and decrement are unsigned and 32 bits wide,
    /// and a 64-bit sum is unsigned (GA100 `dev_pbdma`).
    pub(super) fn refusal(self, wide: bool) -> Option<&'static str> {
        match self.operation {
            Operation::Inc | Operation::Dec if wide => Some("INC and DEC have no 64-bit form"),
            Operation::Inc | Operation::Dec if self.signed => Some("INC and DEC are unsigned only"),
            Operation::Add if wide && self.signed => Some("the 64-bit ADD is unsigned only"),
            Operation::FAdd | Operation::FMin | Operation::FMax if wide => {
                Some("the floating-point reductions have no 64-bit form")
            }
            _ => None,
        }
    }

    fn narrow(self, memory: u32, payload: u32) -> u32 {
        let signed = |value: u32| value.cast_signed();
        let float =
            |combine: fn(f32, f32) -> f32| combine(f32::from_bits(memory), f32::from_bits(payload)).to_bits();
        match self.operation {
            Operation::Min if self.signed => signed(memory).min(signed(payload)).cast_unsigned(),
            Operation::Max if self.signed => signed(memory).max(signed(payload)).cast_unsigned(),
            Operation::Min => memory.min(payload),
            Operation::Max => memory.max(payload),
            Operation::Xor => memory ^ payload,
            Operation::And => memory & payload,
            Operation::Or => memory | payload,
            Operation::Add => memory.wrapping_add(payload),
            Operation::Inc => {
                if memory >= payload {
                    0
                } else {
                    memory + 1
                }
            }
            Operation::Dec => {
                if memory == 0 || memory > payload {
                    payload
                } else {
                    memory - 1
                }
            }
            Operation::FAdd => float(|memory, payload| memory + payload),
            Operation::FMin => float(f32::min),
            Operation::FMax => float(f32::max),
        }
    }

    fn wide(self, memory: u64, payload: u64) -> u64 {
        let signed = |value: u64| value.cast_signed();
        match self.operation {
            Operation::Min if self.signed => signed(memory).min(signed(payload)).cast_unsigned(),
            Operation::Max if self.signed => signed(memory).max(signed(payload)).cast_unsigned(),
            Operation::Min => memory.min(payload),
            Operation::Max => memory.max(payload),
            Operation::Xor => memory ^ payload,
            Operation::And => memory & payload,
            Operation::Or => memory | payload,
            Operation::Add => memory.wrapping_add(payload),
            // `refusal` refuses these before anything is written.
            Operation::Inc | Operation::Dec | Operation::FAdd | Operation::FMin | Operation::FMax => memory,
        }
    }
}

/// The part of the semaphore structure that a write covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Structure {
    /// Only the payload word.
    OneWord,
    /// Payload of 64 bits, or of 32 bits and a zero.
    TwoWords,
    /// Payload, its upper half and the time.
    FourWords,
}

/// One write of a semaphore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SemaphoreWrite {
    /// GPU address.
    pub(super) va: u64,
    /// Payload; the upper half is zero when not `wide`.
    pub(super) payload: u64,
    /// Whether the payload has 64 bits.
    pub(super) wide: bool,
    pub(super) structure: Structure,
    /// The reduction; `None` for a store.
    pub(super) reduction: Option<Reduction>,
}

impl SemaphoreWrite {
    /// Returns why the hardware refuses the write regardless of mappings, if so.
    pub(super) fn refusal(&self) -> Option<String> {
        let alignment = match self.structure {
            Structure::OneWord if self.wide => {
                return Some("a 64-bit payload does not fit a one-word semaphore".to_owned());
            }
            Structure::OneWord => 4,
            Structure::TwoWords => 8,
            Structure::FourWords => 16,
        };
        if !self.va.is_multiple_of(alignment) {
            return Some(format!("the address is not a multiple of {alignment}"));
        }
        self.reduction.and_then(|reduction| reduction.refusal(self.wide)).map(str::to_owned)
    }

    /// The new value of the low word, by which the order check identifies the release that a waiter sees.
    fn result(&self, memory: u32) -> u32 {
        // CAST: the low word.
        let payload = self.payload as u32;
        self.reduction.map_or(payload, |reduction| reduction.narrow(memory, payload))
    }

    /// Writes memory. All earlier writes of the engine are visible to a reader that sees the payload.
    ///
    /// # Errors
    ///
    /// The fault that the MMU raises; then nothing has been written.
    pub(super) fn perform(&self, view: &View) -> Result<(), MmuFault> {
        let access = if self.reduction.is_some() { Access::Atomic } else { Access::Write };
        // The whole structure lies in one page, so a refused write has no partial effect.
        if self.structure == Structure::FourWords {
            atomic64(view, self.va + 8, access)?.store(ptimer_ns(), Ordering::Relaxed);
        }
        if let Some(watch) = view.watch() {
            let semaphore = atomic32(view, self.va, access)?;
            watch.released(
                core::ptr::from_ref(semaphore).addr(),
                u64::from(self.result(semaphore.load(Ordering::Relaxed))),
            );
        }
        fence(Ordering::SeqCst);
        // CAST: a narrow payload has 32 bits.
        let narrow = self.payload as u32;
        match (self.reduction, self.structure) {
            (None, Structure::OneWord) => {
                atomic32(view, self.va, access)?.store(narrow, Ordering::Release);
            }
            (None, _) => atomic64(view, self.va, access)?.store(self.payload, Ordering::Release),
            (Some(reduction), Structure::TwoWords | Structure::FourWords) if self.wide => {
                let update = |memory| Some(reduction.wide(memory, self.payload));
                let _ = atomic64(view, self.va, access)?.fetch_update(
                    Ordering::AcqRel,
                    Ordering::Acquire,
                    update,
                );
            }
            (Some(reduction), _) => {
                let update = |memory| Some(reduction.narrow(memory, narrow));
                let _ = atomic32(view, self.va, access)?.fetch_update(
                    Ordering::AcqRel,
                    Ordering::Acquire,
                    update,
                );
            }
        }
        Ok(())
    }
}

/// The aligned 32-bit word at `va`, accessed atomically; other users of the memory see the same word.
///
/// # Errors
///
/// The fault that the MMU raises.
pub(super) fn atomic32(view: &View, va: u64, access: Access) -> Result<&AtomicU32, MmuFault> {
    debug_assert!(va.is_multiple_of(4));
    let pointer = view.pointer_for(va, 4, access, Strength::Semaphore)?;
    // SAFETY: the pointer is valid while the view lives, which keeps the mapped memory alive. It is aligned because
    // `va` is and mappings are page aligned. Atomics may be shared with any accessor.
    Ok(unsafe { AtomicU32::from_ptr(pointer.cast()) })
}

/// The aligned 64-bit word at `va`.
///
/// # Errors
///
/// The fault that the MMU raises.
pub(super) fn atomic64(view: &View, va: u64, access: Access) -> Result<&AtomicU64, MmuFault> {
    debug_assert!(va.is_multiple_of(8));
    let pointer = view.pointer_for(va, 8, access, Strength::Semaphore)?;
    // SAFETY: as in `atomic32`.
    Ok(unsafe { AtomicU64::from_ptr(pointer.cast()) })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::memory::Memory;
    use crate::mmu::{AddressSpace, MappedRange};

    const BASE: u64 = 0x10_0000;

    fn memory() -> (Arc<Memory>, View) {
        let memory = Arc::new(Memory::new("semaphore", 0x1000).unwrap());
        let space = AddressSpace::new();
        space.map(MappedRange {
            va: BASE,
            len: 0x1000,
            memory: Arc::clone(&memory),
            offset: 0,
            writable: true,
            cached: false,
        });
        (memory, space.view())
    }

    fn write(structure: Structure, wide: bool, payload: u64) -> SemaphoreWrite {
        SemaphoreWrite { va: BASE, payload, wide, structure, reduction: None }
    }

    #[test]
    fn structures_cover_the_words_they_name() {
        let (memory, view) = memory();
        let fill = || (0..4).for_each(|word| memory.store(word * 4, 0xaaaa_aaaa));
        let words = || [0, 4, 8, 12].map(|offset| memory.load(offset));
        fill();
        write(Structure::OneWord, false, 7).perform(&view).unwrap();
        assert_eq!(words(), [7, 0xaaaa_aaaa, 0xaaaa_aaaa, 0xaaaa_aaaa]);
        fill();
        write(Structure::TwoWords, true, 7 << 32 | 9).perform(&view).unwrap();
        assert_eq!(words(), [9, 7, 0xaaaa_aaaa, 0xaaaa_aaaa]);
        fill();
        let before = ptimer_ns();
        write(Structure::FourWords, false, 7).perform(&view).unwrap();
        let [low, high, time_low, time_high] = words();
        assert_eq!([low, high], [7, 0]);
        let time = u64::from(time_high) << 32 | u64::from(time_low);
        assert!((before..=ptimer_ns()).contains(&time));
    }

    #[test]
    fn alignment_follows_the_structure() {
        let at = |va, structure, wide| SemaphoreWrite { va, ..write(structure, wide, 0) }.refusal().is_some();
        assert!(!at(BASE + 4, Structure::OneWord, false));
        assert!(at(BASE + 2, Structure::OneWord, false));
        assert!(at(BASE + 4, Structure::TwoWords, true));
        assert!(at(BASE + 8, Structure::FourWords, false));
        assert!(at(BASE, Structure::OneWord, true));
    }

    #[test]
    fn reductions_combine_as_the_l2_does() {
        let reduce =
            |operation, signed, memory, payload| Reduction { operation, signed }.narrow(memory, payload);
        assert_eq!(reduce(Operation::Min, true, u32::MAX, 1), u32::MAX);
        assert_eq!(reduce(Operation::Min, false, u32::MAX, 1), 1);
        assert_eq!(reduce(Operation::Max, true, u32::MAX, 1), 1);
        assert_eq!(reduce(Operation::Add, false, u32::MAX, 2), 1);
        assert_eq!(reduce(Operation::Inc, false, 4, 5), 5);
        assert_eq!(reduce(Operation::Inc, false, 5, 5), 0);
        assert_eq!(reduce(Operation::Dec, false, 0, 5), 5);
        assert_eq!(reduce(Operation::Dec, false, 6, 5), 5);
        assert_eq!(reduce(Operation::Dec, false, 5, 5), 4);
        assert!(Reduction { operation: Operation::Inc, signed: false }.refusal(true).is_some());
        assert!(Reduction { operation: Operation::Add, signed: true }.refusal(true).is_some());
    }

    #[test]
    fn a_reduction_is_done_in_memory_and_leaves_the_upper_word_alone() {
        let (memory, view) = memory();
        memory.store(0, 40);
        memory.store(4, 0x55);
        let add = Reduction { operation: Operation::Add, signed: false };
        SemaphoreWrite { reduction: Some(add), ..write(Structure::FourWords, false, 2) }
            .perform(&view)
            .unwrap();
        assert_eq!((memory.load(0), memory.load(4)), (42, 0x55));
        SemaphoreWrite { reduction: Some(add), ..write(Structure::TwoWords, true, 1 << 32) }
            .perform(&view)
            .unwrap();
        assert_eq!((memory.load(0), memory.load(4)), (42, 0x56));
    }
}
