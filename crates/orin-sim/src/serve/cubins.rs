//! Cubins in the memory of served programs.
//!
//! A program with driver code of its own usually keeps a cubin in memory while its kernels run: read from a file,
//! compiled by NVRTC, or linked into the program. The search finds the ELF headers of CUDA in the heap, anonymous
//! mappings, the stack, the executable file, and mapped files with the suffix `.cubin`.

use core::ops::Range;
use std::fs;

use crate::serve::client::read_some;
use crate::serve::processes::Tree;

/// Limit of bytes that one search reads.
const MOST_SEARCHED: u64 = 1 << 30;
/// Largest cubin in bytes.
const MOST_BYTES: u64 = 64 << 20;
/// Bytes read at once.
const CHUNK: usize = 1 << 20;

/// Size of an ELF header, and of a section header, in bytes.
const HEADER: usize = 64;
/// Its first bytes: magic number, 64 bits, little endian.
const IDENT: [u8; 6] = *b"\x7fELF\x02\x01";
/// `e_machine` of CUDA.
const EM_CUDA: u64 = 190;
/// `sh_type` of a section without content in the file.
const SHT_NOBITS: u32 = 8;

/// Returns the complete cubins in the memory of this process's descendants. A search reads at most 1 GiB, small
/// mappings first. The result may contain duplicates.
///
/// ```
/// // This process has no children.
/// assert!(orin_sim::serve::cubins_of_descendants().is_empty());
/// ```
pub fn cubins_of_descendants() -> Vec<Vec<u8>> {
    // CAST: process ids are positive.
    let processes = Tree::read().below(std::process::id().cast_signed());
    let (mut found, mut left) = (Vec::new(), MOST_SEARCHED);
    for process in processes.iter().filter(|process| !process.has_ended) {
        let memory = Memory(process.id);
        for range in memory.ranges() {
            let end = range.end.min(range.start + left);
            left -= end - range.start;
            memory.search(range.start..end, &mut found);
        }
    }
    found
}

/// The memory of a process.
struct Memory(i32);

impl Memory {
    /// The mappings to search, the smallest first.
    fn ranges(&self) -> Vec<Range<u64>> {
        let executable = fs::read_link(format!("/proc/{}/exe", self.0)).unwrap_or_default();
        let maps = fs::read_to_string(format!("/proc/{}/maps", self.0)).unwrap_or_default();
        let executable = executable.to_string_lossy();
        let mut ranges: Vec<_> = maps.lines().filter_map(|line| searched(line, &executable)).collect();
        ranges.sort_by_key(|range| range.end - range.start);
        ranges
    }

    /// Fills a buffer. Returns `None` if some bytes are not mapped.
    fn read(&self, address: u64, buffer: &mut [u8]) -> Option<()> {
        let read = self.read_up_to(address, buffer);
        (read == buffer.len()).then_some(())
    }

    /// Reads up to the first byte that is not mapped. Returns the number of bytes.
    fn read_up_to(&self, address: u64, buffer: &mut [u8]) -> usize {
        let mut done = 0;
        while done < buffer.len() {
            // CAST: usize is at most 64 bits.
            match read_some(self.0, address.saturating_add(done as u64), &mut buffer[done..]) {
                Ok(read) if read > 0 => done += read,
                _ => break,
            }
        }
        done
    }

    /// Adds the cubins that begin in a range.
    fn search(&self, range: Range<u64>, found: &mut Vec<Vec<u8>>) {
        let mut buffer = vec![0; CHUNK + HEADER - 1];
        // CAST: a chunk is small.
        for start in range.clone().step_by(CHUNK) {
            let chunk = (range.end - start).min(buffer.len() as u64) as usize;
            let read = self.read_up_to(start, &mut buffer[..chunk]);
            let mut at = 0;
            // Headers that begin in the last bytes are found with the next chunk.
            while let Some(next) = next_file(&buffer[at..read])
                && let Some(header) = buffer[..read].get(at + next..at + next + HEADER)
            {
                found.extend(self.file(start + (at + next) as u64, header));
                at += next + 1;
            }
            if read < chunk {
                return;
            }
        }
    }

    /// The whole cubin whose header is at `address`; `None` if it is damaged, or another file.
    fn file(&self, address: u64, header: &[u8]) -> Option<Vec<u8>> {
        if number(header, 18, 2)? != EM_CUDA {
            return None;
        }
        let (segments, sections) = (number(header, 0x20, 8)?, number(header, 0x28, 8)?);
        let tables = [
            (segments, number(header, 0x36, 2)? * number(header, 0x38, 2)?),
            (sections, number(header, 0x3a, 2)? * number(header, 0x3c, 2)?),
        ];
        let mut end = 0;
        for (start, bytes) in tables {
            end = start.checked_add(bytes)?.max(end);
        }
        if number(header, 0x3a, 2)? != HEADER as u64 || end > MOST_BYTES {
            return None;
        }
        // CAST: at most 64 times 65,535.
        let mut table = vec![0; tables[1].1 as usize];
        self.read(address.checked_add(sections)?, &mut table)?;
        for section in table.chunks_exact(HEADER) {
            if number(section, 4, 4)? != u64::from(SHT_NOBITS) {
                end = number(section, 0x18, 8)?.checked_add(number(section, 0x20, 8)?)?.max(end);
            }
        }
        // CAST: just compared.
        let mut file = vec![0; usize::try_from(end).ok().filter(|_| end <= MOST_BYTES)?];
        self.read(address, &mut file)?;
        Some(file)
    }
}

/// Offset of the first ELF identification. Hot: it scans all bytes.
fn next_file(bytes: &[u8]) -> Option<usize> {
    let (start, ident) = (bytes.as_ptr(), IDENT.as_ptr());
    // SAFETY: both pointers are valid for these lengths, and the function only reads.
    let found = unsafe { libc::memmem(start.cast(), bytes.len(), ident.cast(), IDENT.len()) };
    (!found.is_null()).then(|| found.addr() - start.addr())
}

/// A number of `len` bytes, at most 8.
fn number(bytes: &[u8], at: usize, len: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + len)?;
    Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
}

/// The addresses of a line of `/proc/PID/maps`, if they are to be searched.
fn searched(line: &str, executable: &str) -> Option<Range<u64>> {
    let mut fields = line.splitn(6, ' ');
    let (addresses, rights) = (fields.next()?, fields.next()?);
    let path = fields.nth(3).unwrap_or_default().trim_start();
    let own = rights.ends_with('p') && ["", "[heap]", "[stack]", executable].contains(&path);
    if !rights.starts_with('r') || !(own || path.ends_with(".cubin")) {
        return None;
    }
    let (start, end) = addresses.split_once('-')?;
    Some(u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CUBIN: &[u8] = include_bytes!("../../../../kernels/saxpy.cubin");

    #[test]
    #[expect(clippy::print_stderr, reason = "a test says why it skips")]
    fn a_cubin_is_found_wherever_it_begins() {
        let own = Memory(std::process::id().cast_signed());
        if own.read(CUBIN.as_ptr() as u64, &mut [0; 4]).is_none() {
            eprintln!("skipped: no process_vm_readv");
            return;
        }
        // Across chunks, cut off at the end, and damaged.
        for start in [0, 1, CHUNK - HEADER + 1, CHUNK - 1, CHUNK + 7] {
            let mut memory = vec![0x7f; start];
            memory.extend_from_slice(CUBIN);
            let address = memory.as_ptr() as u64;
            let found = |end: usize| {
                let mut found = Vec::new();
                own.search(address..address + end as u64, &mut found);
                found
            };
            assert_eq!(found(memory.len()), [CUBIN], "{start}");
            assert_eq!(found(start + HEADER - 1).len(), 0, "{start}");
            // Offset of the section headers, machine, size of a section header, offset of the program headers.
            for (at, value) in [(0x2f, 0xff), (0x12, 62), (0x3a, 32), (0x27, 0xff)] {
                let before = core::mem::replace(&mut memory[start + at], value);
                let mut damaged = Vec::new();
                own.search(address..address + memory.len() as u64, &mut damaged);
                assert_eq!(damaged.len(), 0, "{start}, {at:#x}");
                memory[start + at] = before;
            }
        }
    }

    #[test]
    fn libraries_and_shared_memory_are_not_searched() {
        let searched = |line| searched(line, "/opt/a b").map(|range| (range.start, range.end));
        let some = Some((0x1000, 0x3000));
        assert_eq!(searched("1000-3000 rw-p 00000000 00:00 0 "), some);
        assert_eq!(searched("1000-3000 rw-p 00000000 00:00 0                          [heap]"), some);
        assert_eq!(searched("1000-3000 r--p 00000000 fe:00 12                         /opt/a b"), some);
        assert_eq!(searched("1000-3000 r--s 00000000 fe:00 12                         /tmp/k.cubin"), some);
        assert_eq!(searched("1000-3000 r--p 00000000 fe:00 12                         /lib/libc.so.6"), None);
        assert_eq!(
            searched("1000-3000 rw-s 00000000 00:01 12                         /memfd:x (deleted)"),
            None
        );
        assert_eq!(searched("1000-3000 ---p 00000000 00:00 0 "), None);
    }
}
