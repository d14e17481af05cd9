//! Copies that bypass the CPU's caches, for data larger than the caches.
//!
//! An ordinary store first fetches the cache line that it changes. A streaming store does not. This halves the traffic
//! to memory, and doubles the speed if that traffic limits the copy.

/// Length in bytes from which streaming copies are faster; shorter copies should stay in the CPU's caches.
pub(crate) const WORTH: usize = 8 << 20;

/// Copies `target.len()` bytes.
///
/// # Safety
///
/// That many bytes at `source` must be readable, ordinary memory, must not be written during the copy and must not
/// overlap `target`.
pub(crate) unsafe fn copy(source: *const u8, target: &mut [u8]) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: the caller's promise is passed on.
    unsafe {
        stream(source, target);
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    // SAFETY: the caller's promise is passed on.
    unsafe {
        core::ptr::copy_nonoverlapping(source, target.as_mut_ptr(), target.len());
    }
}

/// As [`copy`].
#[cfg(all(target_arch = "x86_64", not(miri)))]
unsafe fn stream(source: *const u8, target: &mut [u8]) {
    use core::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};

    const LINE: usize = 64;
    const UNIT: usize = size_of::<__m128i>();
    let start = target.as_ptr().align_offset(LINE).min(target.len());
    let (start, rest) = target.split_at_mut(start);
    let mut lines = rest.chunks_exact_mut(LINE);
    // SAFETY: `start`, the lines and the rest are consecutive parts of the bytes that the caller guarantees; the lines
    // of `target` are aligned to 64. Every x86-64 has the instructions.
    unsafe {
        core::ptr::copy_nonoverlapping(source, start.as_mut_ptr(), start.len());
        let mut source = source.add(start.len());
        for line in &mut lines {
            let line = line.as_mut_ptr();
            for at in (0..LINE).step_by(UNIT) {
                _mm_stream_si128(line.add(at).cast(), _mm_loadu_si128(source.add(at).cast()));
            }
            source = source.add(LINE);
        }
        let rest = lines.into_remainder();
        core::ptr::copy_nonoverlapping(source, rest.as_mut_ptr(), rest.len());
        // Streaming stores are not ordered with later stores.
        _mm_sfence();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bytes_arrive_and_no_others_change() {
        let source: Vec<u8> = (0..1000_u32).map(|at| (at * 31) as u8).collect();
        for start in [0, 1, 15, 63] {
            for len in [0, 1, 63, 64, 65, 500, 900] {
                let mut target = vec![0xaa; 1000];
                // SAFETY: the bytes are inside the source.
                unsafe { copy(source.as_ptr().add(start), &mut target[start + 7..start + 7 + len]) };
                assert_eq!(target[start + 7..start + 7 + len], source[start..start + len]);
                assert!(
                    target[..start + 7].iter().chain(&target[start + 7 + len..]).all(|&byte| byte == 0xaa)
                );
            }
        }
    }
}
