//! The part of an event that several processes have: a page with the numbers of its records, and of those whose work
//! has ended. Each process maps it for its GPU as memory of its own.
//!
//! Each record has a number. The GPU writes the number to one of many places when the work before the record has ended;
//! who waits for a record waits for the number at its place. A place serves records whose numbers differ by [`PLACES`],
//! and the later of two begins when the earlier has ended, so that the number at a place only grows.

use core::sync::atomic::{AtomicU64, Ordering};
use std::os::fd::OwnedFd;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use tegra_hcq::{AcquireCondition, Buffer, Device, HostMemory, Payload, Queue};

use crate::code::{Code, Failure, LONGEST, Result};

/// The word with the number that the next record gets, less one.
const NEXT: usize = 0;
/// The word with the number of the latest record whose work was submitted; 0 without.
const LATEST: usize = 1;
/// Words before the places.
const HEAD: usize = 2;
/// Number of places: records of all processes that may be unfinished.
const PLACES: u64 = 254;
/// Size of the page in bytes.
const BYTES: usize = (HEAD + PLACES as usize) * size_of::<u64>();
/// Pause between two looks at a place.
const PAUSE: Duration = Duration::from_micros(50);

/// The page, as this process sees it.
#[derive(Debug)]
pub(crate) struct SharedEvent {
    page: Buffer<u64>,
    /// Its address on the CPU.
    words: usize,
    /// The file of the page.
    file: OwnedFd,
}

impl SharedEvent {
    /// A page for a new event.
    pub(crate) fn create(device: &Device) -> Result<Self> {
        let failed = |errno| Failure::new(Code::OperatingSystem, format!("the page of an event: {errno}"));
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("cuda-event", flags).map_err(failed)?;
        // CAST: some pages.
        let bytes = BYTES.next_multiple_of(rustix::param::page_size()) as u64;
        ftruncate(&file, bytes).map_err(failed)?;
        // So that no other process can take the memory away.
        fcntl_add_seals(&file, SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL).map_err(failed)?;
        Self::over(device, file)
    }

    /// The page in a file, of this or another process.
    pub(crate) fn over(device: &Device, file: OwnedFd) -> Result<Self> {
        // SAFETY: `word` accesses the page by atomic operations; there are no references to it.
        let page = unsafe { HostMemory::<u64>::of_file(&file, BYTES / size_of::<u64>()) };
        let page = page.and_then(|page| device.import(page));
        let page = page.map_err(|error| Failure::new(Code::MapFailed, error.to_string()))?;
        let address = page.cpu_address()?;
        let address = address.ok_or_else(|| Failure::new(Code::NotSupported, "events of other processes"))?;
        Ok(Self { words: address.as_ptr().expose_provenance(), page, file })
    }

    /// A file of the page, and its size in bytes.
    pub(crate) fn export(&self) -> Result<(OwnedFd, usize)> {
        let file = self.file.try_clone();
        let failed = |error| Failure::new(Code::OperatingSystem, format!("a file of an event: {error}"));
        Ok((file.map_err(failed)?, BYTES))
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        debug_assert!(index < BYTES / size_of::<u64>(), "the word lies in the page");
        let first: *mut u64 = core::ptr::with_exposed_provenance_mut(self.words);
        // SAFETY: the word lies in the page, which `self` keeps mapped; it is aligned, and every access is atomic.
        unsafe { AtomicU64::from_ptr(first.add(index)) }
    }

    /// The word of a record's place.
    fn place(number: u64) -> usize {
        // CAST: less than PLACES.
        HEAD + (number % PLACES) as usize
    }

    /// Whether the work before a record has ended.
    pub(crate) fn is_done(&self, number: u64) -> bool {
        self.word(Self::place(number)).load(Ordering::Acquire) >= number
    }

    /// The number of the latest record of any process; 0 without.
    pub(crate) fn latest(&self) -> u64 {
        self.word(LATEST).load(Ordering::Acquire)
    }

    /// Waits until the work before a record has ended, and asks `check` meanwhile.
    ///
    /// # Errors
    ///
    /// [`Code::LaunchTimeout`] after [`LONGEST`]; those of `check`.
    pub(crate) fn wait(&self, check: &dyn Fn() -> Result<()>, number: u64) -> Result<()> {
        let start = Instant::now();
        while !self.is_done(number) {
            check()?;
            if start.elapsed() > LONGEST {
                return Err(Failure::new(Code::LaunchTimeout, "another process does not end its work"));
            }
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Makes a record: `submit` gets work that writes its number, and submits it. Returns the number, and what `submit`
    /// returns. Waits for the record that had the place before.
    ///
    /// # Errors
    ///
    /// Those of [`SharedEvent::wait`] and `submit`.
    pub(crate) fn record<R>(
        &self,
        check: &dyn Fn() -> Result<()>,
        submit: impl FnOnce(&dyn Fn(&mut Queue) -> Result<()>) -> Result<R>,
    ) -> Result<(u64, R)> {
        let number = self.word(NEXT).fetch_add(1, Ordering::AcqRel) + 1;
        let place = Self::place(number);
        let submitted = self.wait(check, number.saturating_sub(PLACES)).and_then(|()| {
            // SAFETY: queues keep memory that is dropped until their work has ended.
            let write =
                |queue: &mut Queue| unsafe { queue.write_raw(self.va(place), Payload::Bits64(number)) };
            submit(&|queue| write(queue).map_err(Failure::from))
        });
        match submitted {
            Ok(done) => {
                self.word(LATEST).fetch_max(number, Ordering::AcqRel);
                Ok((number, done))
            }
            Err(failure) => {
                // Nobody waits for the number but the next record at its place.
                self.word(place).fetch_max(number, Ordering::AcqRel);
                Err(failure)
            }
        }
    }

    /// Makes a queue wait until the work before a record has ended.
    pub(crate) fn encode_wait(&self, queue: &mut Queue, number: u64) -> Result<()> {
        let va = self.va(Self::place(number));
        // SAFETY: as in `record`.
        unsafe { queue.poll_raw(va, Payload::Bits64(number), AcquireCondition::StrictGreaterOrEqual)? };
        Ok(())
    }

    fn va(&self, word: usize) -> u64 {
        self.page.gpu_va() + (word * size_of::<u64>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_that_share_a_place_are_a_round_apart() {
        assert_eq!(SharedEvent::place(1), SharedEvent::place(1 + PLACES));
        let places: std::collections::BTreeSet<_> = (1..=PLACES).map(SharedEvent::place).collect();
        assert_eq!(places.len() as u64, PLACES);
        assert_eq!(places.last().copied(), Some(BYTES / size_of::<u64>() - 1));
    }
}
