//! The call graph in `.nv.callgraph`: decides whether the stack size of a kernel is known.
//!
//! The section is a list of pairs of words: symbol index of the caller and of the callee. A pair whose second word is
//! negative begins a part: −1 direct calls, −2 functions whose address is taken, −3 calls through pointers, −4
//! references to functions.

use alloc::vec;
use alloc::vec::Vec;

use crate::Error;
use crate::elf::Section;

const DIRECT: u32 = (-1i32).cast_unsigned();
const THROUGH_POINTER: u32 = (-3i32).cast_unsigned();

/// For each symbol: whether it, or a function that it calls directly or indirectly, is recursive or calls through a
/// pointer.
pub(crate) fn unbounded(section: &Section<'_>, symbols: usize) -> Result<Vec<bool>, Error> {
    if !section.data.len().is_multiple_of(8) {
        return Err(section.bad("its size is not a multiple of 8 bytes"));
    }
    let index = |word: u32| {
        usize::try_from(word)
            .ok()
            .filter(|&i| i < symbols)
            .ok_or_else(|| section.bad("it names a symbol that does not exist"))
    };
    let mut unbounded = vec![false; symbols];
    // Callers by callee, and the number of calls of each function to callees that are not settled yet.
    let mut callers = vec![Vec::new(); symbols];
    let mut pending = vec![0usize; symbols];
    let mut part = DIRECT;
    for pair in section.data.chunks_exact(8) {
        let caller = u32::from_le_bytes([pair[0], pair[1], pair[2], pair[3]]);
        let callee = u32::from_le_bytes([pair[4], pair[5], pair[6], pair[7]]);
        if callee.cast_signed() < 0 {
            part = callee;
        } else if part == DIRECT {
            callers[index(callee)?].push(index(caller)?);
            pending[index(caller)?] += 1;
        } else if part == THROUGH_POINTER {
            // Never settled below, as a function on a cycle.
            pending[index(caller)?] += 1;
        }
    }
    // Remove functions whose callees are all settled. The rest is on a cycle or calls into one.
    let mut settled: Vec<usize> = (0..symbols).filter(|&f| pending[f] == 0).collect();
    while let Some(function) = settled.pop() {
        for &caller in &callers[function] {
            pending[caller] -= 1;
            if pending[caller] == 0 {
                settled.push(caller);
            }
        }
    }
    for (flag, calls) in unbounded.iter_mut().zip(&pending) {
        *flag = *calls > 0;
    }
    Ok(unbounded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::SHT_CUDA_CALLGRAPH;

    fn run(pairs: &[(u32, i32)], symbols: usize) -> Result<Vec<bool>, Error> {
        let data: Vec<u8> =
            pairs.iter().flat_map(|&(a, b)| a.to_le_bytes().into_iter().chain(b.to_le_bytes())).collect();
        let section = Section {
            name: ".nv.callgraph",
            kind: SHT_CUDA_CALLGRAPH,
            flags: 0,
            bytes: data.len() as u64,
            link: 0,
            info: 0,
            align: 4,
            data: &data,
        };
        unbounded(&section, symbols)
    }

    #[test]
    fn chains_are_bounded_and_cycles_are_not() {
        // 1 -> 2 -> 3; 4 -> 5 -> 5; 0 calls no function.
        let found = run(&[(0, -1), (1, 2), (2, 3), (4, 5), (5, 5), (0, -2), (3, 1)], 6).unwrap();
        assert_eq!(found, [false, false, false, false, true, true]);
    }

    #[test]
    fn calls_through_pointers_are_unbounded() {
        let found = run(&[(0, -1), (1, 2), (0, -3), (2, 9), (0, -4), (3, 0)], 4).unwrap();
        assert_eq!(found, [false, true, true, false]);
    }

    #[test]
    fn symbols_must_exist() {
        assert!(run(&[(0, -1), (1, 7)], 4).is_err());
        assert!(run(&[(0, -1), (7, 1)], 4).is_err());
    }
}
