//! Record of the bytes of an object that have been written.
//!
//! Writes of the GPU and of the library's own copies are recorded in a bit map, byte by byte. Other writes of the CPU
//! pass through a pointer that the model does not see. They are recognised by the contents. A fresh object is filled
//! with a pattern; a word counts as written by the CPU if a byte without a bit has changed.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::check::POISON;
use crate::mmu::{Access, View};

/// Largest object whose bytes are tracked: filling takes real memory even if the object is never used.
pub(super) const MOST_BYTES: u64 = 16 << 20;

/// The bytes of an object that have been written.
#[derive(Debug)]
pub(super) struct Written {
    bits: Box<[AtomicU64]>,
    bytes: u64,
}

/// The pattern at an address.
fn poison(va: u64) -> u8 {
    // CAST: 0 to 3.
    POISON.to_le_bytes()[(va & 3) as usize]
}

impl Written {
    /// Fills the object with the pattern. `None` if it is not mapped for writing, as one piece.
    pub(super) fn poison(view: &View, va: u64, bytes: u64) -> Option<Self> {
        let pointer = view.pointer(va, bytes, Access::Write).ok()?;
        // CAST: at most `MOST_BYTES`.
        let len = bytes as usize;
        for offset in (0..len).step_by(4) {
            let word = POISON.to_le_bytes();
            // SAFETY: the view keeps the mapping, which contains `len` bytes at the pointer, alive. The object is new,
            // so nothing else uses it. It is aligned to 256 bytes, so the pattern's phase is that of `poison`.
            unsafe {
                core::ptr::copy_nonoverlapping(word.as_ptr(), pointer.add(offset), (len - offset).min(4))
            };
        }
        let bits = (0..len.div_ceil(64)).map(|_| AtomicU64::new(0)).collect();
        Some(Self { bits, bytes })
    }

    /// The bits of `len` bytes from `offset` on, at most 16, lowest first.
    #[inline]
    pub(super) fn bits(&self, offset: u64, len: u64) -> u64 {
        // CAST: an offset in the map.
        let (word, shift) = ((offset / 64) as usize, offset % 64);
        let at = |index: usize| self.bits.get(index).map_or(0, |bits| bits.load(Ordering::Relaxed));
        let low = at(word) >> shift;
        let both = if shift + len > 64 { low | at(word + 1) << (64 - shift) } else { low };
        both & ((1 << len) - 1)
    }

    /// Marks bytes as written; bytes beyond the object are ignored.
    pub(super) fn set(&self, offset: u64, len: u64) {
        let (mut at, end) = (offset, offset.saturating_add(len).min(self.bytes));
        while at < end {
            let (shift, count) = (at % 64, (64 - at % 64).min(end - at));
            let mask = if count == 64 { !0 } else { ((1 << count) - 1) << shift };
            // CAST: an offset in the map.
            let bits = &self.bits[(at / 64) as usize];
            if bits.load(Ordering::Relaxed) & mask != mask {
                bits.fetch_or(mask, Ordering::Relaxed);
            }
            at += count;
        }
    }

    /// Whether all of at most 16 bytes at `va`, `offset` bytes into the object, have been written. The bytes are
    /// aligned to their number.
    pub(super) fn are_written(&self, view: &View, va: u64, offset: u64, len: u64) -> bool {
        let bits = self.bits(offset, len);
        if bits == (1 << len) - 1 {
            return true;
        }
        // By words, because the CPU writes words.
        let first = offset & !3;
        let mut words = (first..offset + len).step_by(4);
        words.all(|word| {
            let count = 4.min(self.bytes - word);
            let known = self.bits(word, count);
            let (low, high) = (word.max(offset) - word, (word + count).min(offset + len) - word);
            let wanted = ((1 << high) - 1) & !((1 << low) - 1);
            if known & wanted == wanted {
                return true;
            }
            let mut contents = [0; 4];
            let address = va - offset + word;
            // CAST: at most 4.
            let contents = &mut contents[..count as usize];
            if view.read(address, contents).is_err() {
                return true;
            }
            let changed = (0..)
                .zip(&*contents)
                .any(|(byte, content)| known >> byte & 1 == 0 && *content != poison(address + byte));
            if changed {
                self.set(word, count);
            }
            changed
        })
    }

    /// Copies the state of `len` bytes.
    pub(super) fn copy(&self, to: u64, source: &Self, from: u64, len: u64, written: impl Fn(u64) -> bool) {
        for step in 0..len.min(self.bytes.saturating_sub(to)) {
            if source.bits(from + step, 1) != 0 || written(from + step) {
                self.set(to + step, 1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::memory::Memory;
    use crate::mmu::{AddressSpace, MappedRange};

    #[test]
    fn bytes_are_written_by_the_gpu_one_by_one_and_by_the_cpu_in_words() {
        let space = AddressSpace::new();
        let memory = Arc::new(Memory::new("data", 0x1000).unwrap());
        let (va, offset, memory) = (0x20_0000, 0, Arc::clone(&memory));
        let range = MappedRange {
            va,
            len: 0x1000,
            memory: Arc::clone(&memory),
            offset,
            writable: true,
            cached: false,
        };
        space.map(range);
        let view = space.view();
        let written = Written::poison(&view, va, 200).unwrap();
        assert!(!written.are_written(&view, va, 0, 4));
        written.set(1, 1);
        written.set(62, 5);
        assert!(written.are_written(&view, va + 1, 1, 1) && !written.are_written(&view, va, 0, 1));
        assert!(written.are_written(&view, va + 62, 62, 4) && !written.are_written(&view, va + 67, 67, 1));
        memory.store(100, 7);
        assert!(written.are_written(&view, va + 100, 100, 4) && !written.are_written(&view, va + 96, 96, 8));
        assert!(written.are_written(&view, va + 100, 100, 1));
    }
}
