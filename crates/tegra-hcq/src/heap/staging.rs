//! Copies between the process and the GPU's own memory with the copy engine.
//!
//! The CPU accesses a GPU's own memory over the PCIe bus. On an H200 its loads reach 0.5 GB/s and its stores 7 GB/s,
//! while the copy engine transfers the same bytes from or to system memory at 55 GB/s. The CPU copies chunk by chunk
//! between that memory and the process, while the engine transfers other chunks. This uses a separate channel, if
//! necessary on a separate copy engine, so it waits for no queue.

use core::ptr::NonNull;
use core::sync::atomic::{Ordering, fence};
use std::sync::Arc;
use std::time::Instant;

use ampere_cmd::command::{LinearCopy, Payload, SemaphoreRelease};
use ampere_cmd::gpfifo;
use ampere_cmd::pushbuffer::{Encoder, SliceSink, Subchannel};
use gpu_hal::volatile;

use crate::limits::DEFAULT_TIMEOUT;
use gpu_hal::{ChannelGroup, CopyChannel, DeviceMemory, Driver, ErrorCode, MemoryUse, RingFull, SubmitRing};

/// Number of chunks in flight.
const PIECES: usize = 4;
/// Size of a chunk in bytes.
const PIECE: usize = 256 << 10;
/// Words of the commands for a chunk.
const WORDS: usize = 64;
/// Length in bytes from which a copy to the process bypasses the CPU's caches; a shorter one stays in them.
const STREAMED_FROM: usize = 8 << 20;
/// Number of semaphore reads between two clock reads.
const LOOKS: u32 = 2000;

/// Why the copy engine cannot copy for the CPU.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// The driver refused a step.
    #[error(transparent)]
    Driver(#[from] gpu_hal::Error),
    /// A command does not fit its fields.
    #[error(transparent)]
    Encoding(#[from] ampere_cmd::Error),
    /// The GPU does not fetch submissions.
    #[error("the copy engine cannot access the GPU's memory: {0}")]
    RingFull(#[from] RingFull),
    /// The driver has stopped the channel.
    #[error("the copy engine cannot access the GPU's memory: {0}")]
    Stopped(ErrorCode),
    /// A copy did not end within the time-out.
    #[error("the copy engine cannot access the GPU's memory: it does not answer")]
    Silent,
}

type Result<T> = core::result::Result<T, Failure>;

/// Driver memory, mapped for the CPU.
#[derive(Debug)]
struct Block {
    cpu: NonNull<u8>,
    // Keeps the pointer valid.
    memory: Box<dyn DeviceMemory>,
}

// SAFETY: the pointer refers to `memory`, which any thread may access; one `Staging` owns the block.
unsafe impl Send for Block {}

impl Block {
    fn new(driver: &dyn Driver, bytes: usize, purpose: MemoryUse) -> Result<Self> {
        // CAST: usize is at most 64 bits.
        let memory = driver.allocate(bytes as u64, purpose, "staging")?;
        Ok(Self { cpu: memory.cpu()?, memory })
    }

    fn cpu(&self) -> *mut u8 {
        self.cpu.as_ptr()
    }

    fn gpu_va(&self) -> u64 {
        self.memory.gpu_va()
    }
}

/// A channel and system memory for copies from and to the GPU's own memory.
#[derive(Debug)]
pub(crate) struct Staging {
    // Declared before the memory that it uses.
    group: Arc<dyn ChannelGroup>,
    ring: SubmitRing,
    commands: Block,
    /// The chunks, then the semaphore.
    chunks: Block,
    /// Value of the last submission.
    submitted: u64,
}

impl Staging {
    /// Opens a channel and allocates one MiB of memory.
    ///
    /// # Errors
    ///
    /// Returns an error if the driver refuses a step.
    pub(crate) fn open(driver: &dyn Driver) -> Result<Self> {
        let commands = Block::new(driver, PIECES * WORDS * 4, MemoryUse::Commands)?;
        let chunks = Block::new(driver, PIECES * PIECE + size_of::<u64>(), MemoryUse::ReadBack)?;
        let CopyChannel { group, copy: ring } = driver.open_copy_channel()?;
        let mut staging = Self { group, ring, commands, chunks, submitted: 0 };
        // SAFETY: aligned, inside the memory, and the GPU does not use it yet.
        unsafe { staging.semaphore().write_volatile(0) };
        let class = driver.properties().copy_class;
        staging.submit(|encoder| encoder.set_object(Subchannel::COPY, class))?;
        staging.wait(1)?;
        Ok(staging)
    }

    fn semaphore(&self) -> *mut u64 {
        self.chunk(PIECES).cast()
    }

    /// The chunk that holds the piece of a copy with this index.
    fn chunk(&self, place: usize) -> *mut u8 {
        assert!(place <= PIECES);
        // SAFETY: inside the memory, whose last word is the semaphore, at place `PIECES`.
        unsafe { self.chunks.cpu().add(place * PIECE) }
    }

    /// Copies from GPU address `va` to `target`.
    ///
    /// # Errors
    ///
    /// Returns an error if the engine fails or does not answer within [`DEFAULT_TIMEOUT`]. The contents of `target` are
    /// then unspecified, and the value must not be used any more.
    pub(crate) fn read(&mut self, va: u64, target: &mut [u8]) -> Result<()> {
        let (total, before) = (target.len(), self.submitted);
        let mut fetched = 0;
        for (index, piece) in target.chunks_mut(PIECE).enumerate() {
            while fetched * PIECE < total && fetched < index + PIECES {
                let offset = fetched * PIECE;
                let chunk = self.chunks.gpu_va() + (fetched % PIECES * PIECE) as u64;
                self.transfer(va + offset as u64, chunk, PIECE.min(total - offset))?;
                fetched += 1;
            }
            self.wait(before + index as u64 + 1)?;
            let source = self.chunk(index % PIECES);
            // SAFETY: the semaphore shows that the bytes have arrived, and nothing is fetched to their place before the
            // next chunk; `target` is ordinary memory.
            unsafe {
                if total >= STREAMED_FROM {
                    copy_past_caches(source, piece);
                } else {
                    core::ptr::copy_nonoverlapping(source, piece.as_mut_ptr(), piece.len());
                }
            }
        }
        Ok(())
    }

    /// Copies `source` to GPU address `va`. The bytes are there when the function returns.
    ///
    /// # Errors
    ///
    /// As [`Staging::read`]; the contents of the GPU's memory are then unspecified.
    pub(crate) fn write(&mut self, va: u64, source: &[u8]) -> Result<()> {
        for (index, piece) in source.chunks(PIECE).enumerate() {
            let place = index % PIECES;
            // At most `PIECES` submissions are in flight, so the one that used this place has ended.
            self.wait((self.submitted + 1).saturating_sub(PIECES as u64))?;
            // SAFETY: the place holds `PIECE` bytes, and no transfer uses it.
            unsafe { core::ptr::copy_nonoverlapping(piece.as_ptr(), self.chunk(place), piece.len()) };
            let chunk = self.chunks.gpu_va() + (place * PIECE) as u64;
            self.transfer(chunk, va + (index * PIECE) as u64, piece.len())?;
        }
        self.wait(self.submitted)
    }

    /// Makes the engine copy at most a chunk.
    fn transfer(&mut self, source: u64, destination: u64, bytes: usize) -> Result<()> {
        // CAST: usize is at most 64 bits.
        let copy = LinearCopy { source, destination, bytes: bytes as u64 };
        self.submit(|encoder| encoder.linear_copy(&copy))
    }

    /// Submits commands, followed by a release of the next value. At most [`PIECES`] submissions are in flight.
    fn submit(
        &mut self,
        commands: impl FnOnce(&mut Encoder<&mut SliceSink<'_>>) -> core::result::Result<(), ampere_cmd::Error>,
    ) -> Result<()> {
        let value = self.submitted + 1;
        let place = (self.submitted % PIECES as u64) as usize * WORDS;
        let mut words = [0; WORDS];
        let mut sink = SliceSink::new(&mut words);
        let mut encoder = Encoder::new(&mut sink);
        commands(&mut encoder)?;
        encoder.semaphore_release(&SemaphoreRelease {
            va: self.chunks.gpu_va() + (PIECES * PIECE) as u64,
            payload: Payload::Bits64(value),
            wait_for_idle: true,
            timestamp: false,
        })?;
        let len = sink.len();
        // SAFETY: the place of the words is inside the memory, aligned to 4, and the submission that used it has
        // ended.
        unsafe {
            let target = self.commands.cpu().add(place * 4);
            volatile::store(target, bytemuck::cast_slice(&words[..len]));
        }
        // CAST: at most `WORDS`.
        let segment = gpfifo::Segment::new(self.commands.gpu_va() + place as u64 * 4, len as u32);
        let entry = gpfifo::Entry::from(segment).encode()?;
        // SAFETY: the commands copy between the staging buffer and memory that the caller has set aside for the copy.
        unsafe { self.ring.submit(entry)? };
        self.submitted = value;
        Ok(())
    }

    /// Waits until a submission has ended.
    fn wait(&self, value: u64) -> Result<()> {
        let start = Instant::now();
        loop {
            for _ in 0..LOOKS {
                // SAFETY: aligned, inside the memory; volatile, because the GPU writes it.
                if unsafe { self.semaphore().read_volatile() } >= value {
                    fence(Ordering::Acquire);
                    return Ok(());
                }
                core::hint::spin_loop();
            }
            if let Some(code) = self.group.error() {
                return Err(Failure::Stopped(code));
            }
            if start.elapsed() >= DEFAULT_TIMEOUT {
                return Err(Failure::Silent);
            }
            std::thread::yield_now();
        }
    }
}

/// Copies `target.len()` bytes past the CPU's caches. An ordinary store first fetches the cache line that it changes; a
/// streaming store does not. This halves the traffic to memory, and doubles the speed if that traffic limits the copy.
///
/// # Safety
///
/// That many bytes at `source` must be readable, ordinary memory, must not be written during the copy and must not
/// overlap `target`.
unsafe fn copy_past_caches(source: *const u8, target: &mut [u8]) {
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

/// As [`copy_past_caches`].
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
    use std::sync::Arc;

    use super::*;
    use crate::adapter::nvgpu::Nvgpu;

    #[test]
    fn any_number_of_bytes_from_and_to_any_place_arrives() {
        let orin = orin_sim::SoftwareOrin::new(orin_sim::Config::default()).unwrap();
        let driver = Nvgpu::open(&(Arc::new(orin) as _), None).unwrap();
        let mut staging = Staging::open(&driver).unwrap();
        let bytes = STREAMED_FROM + 6 * PIECE;
        let memory = driver.allocate(bytes as u64, MemoryUse::Device, "test").unwrap();
        let expected: Vec<u8> = (0..bytes).map(|at| (at * 7 + at / 1000) as u8).collect();
        // SAFETY: the memory has the same length and has no other users.
        unsafe { volatile::store(memory.cpu().unwrap().as_ptr(), &expected) };
        for (start, len) in [
            (0, bytes),
            (3, 1),
            (1, PIECE),
            (PIECE - 1, PIECE + 2),
            (5, 4 * PIECE),
            (77, 5 * PIECE + 9),
            (3, STREAMED_FROM + 99),
            (9, 0),
        ] {
            let mut target = vec![0; len];
            staging.read(memory.gpu_va() + start as u64, &mut target).unwrap();
            assert!(target == expected[start..start + len], "{len} bytes from {start}");

            let changed: Vec<u8> = target.iter().map(|byte| !byte).collect();
            staging.write(memory.gpu_va() + start as u64, &changed).unwrap();
            let mut after = vec![0; bytes];
            staging.read(memory.gpu_va(), &mut after).unwrap();
            assert!(after[start..start + len] == changed, "{len} bytes to {start}");
            assert!(after[..start] == expected[..start], "bytes before {start}");
            assert!(after[start + len..] == expected[start + len..], "bytes behind {start} + {len}");
            staging.write(memory.gpu_va() + start as u64, &target).unwrap();
        }
    }

    #[test]
    fn an_address_without_memory_is_an_error() {
        let orin = orin_sim::SoftwareOrin::new(orin_sim::Config::default()).unwrap();
        let driver = Nvgpu::open(&(Arc::new(orin) as _), None).unwrap();
        let mut staging = Staging::open(&driver).unwrap();
        let error = staging.read(0x70_0000_0000, &mut [0; 64]).unwrap_err().to_string();
        assert!(error.contains("the copy engine cannot access"), "{error}");
        let mut staging = Staging::open(&driver).unwrap();
        let error = staging.write(0x70_0000_0000, &[0; 64]).unwrap_err().to_string();
        assert!(error.contains("the copy engine cannot access"), "{error}");
    }

    #[test]
    fn all_bytes_arrive_and_no_others_change() {
        let source: Vec<u8> = (0..1000_u32).map(|at| (at * 31) as u8).collect();
        for start in [0, 1, 15, 63] {
            for len in [0, 1, 63, 64, 65, 500, 900] {
                let mut target = vec![0xaa; 1000];
                // SAFETY: the bytes are inside the source.
                unsafe {
                    copy_past_caches(source.as_ptr().add(start), &mut target[start + 7..start + 7 + len])
                };
                assert_eq!(target[start + 7..start + 7 + len], source[start..start + len]);
                assert!(
                    target[..start + 7].iter().chain(&target[start + 7 + len..]).all(|&byte| byte == 0xaa)
                );
            }
        }
    }
}
