//! Copies between ordinary memory and memory that a device also writes.
//!
//! The device may change the bytes at any time. No reference to them may exist, and the compiler must not invent, merge
//! or tear an access. Every access is therefore volatile and naturally aligned, because uncached mappings fault on
//! unaligned accesses on arm64. Words of 8 bytes transfer the bulk; single bytes transfer an unaligned start and end.

use core::ptr;

/// Size of the words that transfer the bulk of a copy, in bytes.
const WORD: usize = size_of::<u64>();

/// Bytes from `address` to the next word boundary, at most `len`.
fn head(address: usize, len: usize) -> usize {
    (address.wrapping_neg() % WORD).min(len)
}

/// Copies `source` to the device memory at `target`.
///
/// # Safety
///
/// `target` is valid for volatile writes of `source.len()` bytes and does not overlap `source`.
pub unsafe fn store(target: *mut u8, source: &[u8]) {
    let (start, rest) = source.split_at(head(target.addr(), source.len()));
    let words = rest.chunks_exact(WORD);
    let end = words.remainder();
    // SAFETY: every write below lies in the `source.len()` bytes at `target` that the caller guarantees: `start`, then
    // whole words, then `end`, one after another. After `start` the pointer is word-aligned.
    unsafe {
        let mut target = store_bytes(target, start);
        for word in words {
            let mut bytes = [0; WORD];
            bytes.copy_from_slice(word);
            ptr::write_volatile(target.cast::<u64>(), u64::from_ne_bytes(bytes));
            target = target.add(WORD);
        }
        store_bytes(target, end);
    }
}

/// Stores byte by byte; returns the end.
///
/// # Safety
///
/// As [`store`].
unsafe fn store_bytes(target: *mut u8, source: &[u8]) -> *mut u8 {
    for (index, byte) in source.iter().enumerate() {
        // SAFETY: `index` is below `source.len()`, which the caller guarantees to be valid.
        unsafe { ptr::write_volatile(target.add(index), *byte) };
    }
    // SAFETY: one past the end of the bytes that the caller guarantees.
    unsafe { target.add(source.len()) }
}

/// Copies the device memory at `source` to `target`.
///
/// # Safety
///
/// `source` is valid for volatile reads of `target.len()` bytes and does not overlap `target`.
pub unsafe fn load(source: *const u8, target: &mut [u8]) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if target.len() >= streaming::WORTH && std::arch::is_x86_feature_detected!("sse4.1") {
        // SAFETY: the caller's promise is passed on; the processor has the instructions.
        unsafe { streaming::load(source, target) };
        return;
    }
    // SAFETY: the caller's promise is passed on.
    unsafe { load_words(source, target) };
}

/// Long loads from memory that an x86-64 maps write-combined, such as memory of a PCIe device. A plain load from it is
/// a round trip to the device for 8 bytes; a streaming load fetches a line of 64, and several lines at a time. From
/// other memory a streaming load is an ordinary load.
#[cfg(all(target_arch = "x86_64", not(miri)))]
mod streaming {
    /// Bytes of a line.
    const LINE: usize = 64;
    /// Length in bytes from which streaming loads are faster.
    pub(super) const WORTH: usize = 4 * LINE;

    /// As [`super::load`], for processors with SSE 4.1.
    ///
    /// # Safety
    ///
    /// As [`super::load`]; the processor has SSE 4.1.
    pub(super) unsafe fn load(source: *const u8, target: &mut [u8]) {
        // Lines fetched before the device wrote them must not be used.
        // SAFETY: every x86-64 has the instruction.
        unsafe { core::arch::x86_64::_mm_mfence() };
        let start = source.align_offset(LINE).min(target.len());
        let (start, rest) = target.split_at_mut(start);
        // SAFETY: the pieces lie one after another in the bytes that the caller guarantees.
        unsafe { super::load_words(source, start) };
        let mut source = source.wrapping_add(start.len());
        let mut lines = rest.chunks_exact_mut(LINE);
        for line in &mut lines {
            // SAFETY: a whole line at `source`, which is aligned to it, goes to a whole line of `target`. As
            // inline assembly the loads are neither merged nor repeated.
            unsafe {
                core::arch::asm!(
                    "movntdqa {a}, [{source}]",
                    "movntdqa {b}, [{source} + 16]",
                    "movntdqa {c}, [{source} + 32]",
                    "movntdqa {d}, [{source} + 48]",
                    "movdqu [{target}], {a}",
                    "movdqu [{target} + 16], {b}",
                    "movdqu [{target} + 32], {c}",
                    "movdqu [{target} + 48], {d}",
                    source = in(reg) source,
                    target = in(reg) line.as_mut_ptr(),
                    a = out(xmm_reg) _,
                    b = out(xmm_reg) _,
                    c = out(xmm_reg) _,
                    d = out(xmm_reg) _,
                    options(nostack, preserves_flags)
                );
            }
            source = source.wrapping_add(LINE);
        }
        // SAFETY: as above.
        unsafe { super::load_words(source, lines.into_remainder()) };
    }
}

/// As [`load`], by words of 8 bytes.
///
/// # Safety
///
/// As [`load`].
unsafe fn load_words(source: *const u8, target: &mut [u8]) {
    let (start, rest) = target.split_at_mut(head(source.addr(), target.len()));
    let mut words = rest.chunks_exact_mut(WORD);
    // SAFETY: as in `store`, with reads.
    unsafe {
        let mut source = load_bytes(source, start);
        for word in &mut words {
            word.copy_from_slice(&ptr::read_volatile(source.cast::<u64>()).to_ne_bytes());
            source = source.add(WORD);
        }
        load_bytes(source, words.into_remainder());
    }
}

/// Loads byte by byte; returns the end.
///
/// # Safety
///
/// As [`load`].
unsafe fn load_bytes(source: *const u8, target: &mut [u8]) -> *const u8 {
    for (index, byte) in target.iter_mut().enumerate() {
        // SAFETY: `index` is below `target.len()`, which the caller guarantees to be valid.
        *byte = unsafe { ptr::read_volatile(source.add(index)) };
    }
    // SAFETY: one past the end of the bytes that the caller guarantees.
    unsafe { source.add(target.len()) }
}

/// Sets `len` bytes of device memory at `target` to `byte`.
///
/// # Safety
///
/// `target` is valid for volatile writes of `len` bytes.
pub unsafe fn fill(target: *mut u8, byte: u8, len: usize) {
    let start = head(target.addr(), len);
    let words = (len - start) / WORD;
    let end = len - start - words * WORD;
    // SAFETY: `start`, `words * WORD` and `end` add up to `len`; after `start` the pointer is
    // word-aligned.
    unsafe {
        let mut target = store_bytes(target, &[byte; WORD][..start]);
        for _ in 0..words {
            ptr::write_volatile(target.cast::<u64>(), u64::from_ne_bytes([byte; WORD]));
            target = target.add(WORD);
        }
        store_bytes(target, &[byte; WORD][..end]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every misaligned start, with lengths around the threshold for streaming loads.
    #[test]
    fn long_loads_bring_all_bytes_in_order() {
        let memory: Vec<u8> = (0..1024_u32).map(|at| at.wrapping_mul(167).to_le_bytes()[0]).collect();
        for start in 0..70 {
            for len in (240..270).chain(500..530).chain([900]) {
                let mut copy = vec![0; len];
                // SAFETY: start and length lie inside the memory.
                unsafe { load(memory.as_ptr().add(start), &mut copy) };
                assert_eq!(copy, memory[start..start + len], "{start} {len}");
            }
        }
    }

    /// Every combination of misaligned start and ragged length around two words.
    #[test]
    fn ragged_copies_touch_their_bytes_and_no_others() {
        for start in 0..WORD {
            for len in 0..3 * WORD {
                let source: Vec<u8> = (1..=len).map(|value| u8::try_from(value).unwrap()).collect();
                let mut memory = [0_u64; 6];
                let base = memory.as_mut_ptr().cast::<u8>();
                let mut seen = [0_u8; 48];
                // SAFETY: start + len is at most 31, inside the 48 bytes of `memory`.
                unsafe {
                    store(base.add(start), &source);
                    load(base, &mut seen);
                }
                assert_eq!(&seen[start..start + len], source, "start {start} len {len}");
                assert!(seen[..start].iter().chain(&seen[start + len..]).all(|byte| *byte == 0));

                let mut back = vec![0; len];
                // SAFETY: as above.
                unsafe { load(base.add(start), &mut back) };
                assert_eq!(back, source);

                // SAFETY: as above.
                unsafe { fill(base.add(start), 0xa5, len) };
                // SAFETY: the whole of `memory`.
                unsafe { load(base, &mut seen) };
                assert!(seen[start..start + len].iter().all(|byte| *byte == 0xa5));
                assert!(seen[..start].iter().chain(&seen[start + len..]).all(|byte| *byte == 0));
            }
        }
    }
}
