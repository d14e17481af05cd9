//! Channels driven by hand: words in a pushbuffer, an entry, the doorbell. For the stages below `tegra-hcq`.

use core::ptr::NonNull;
use std::time::{Duration, Instant};

use ampere_cmd::Error as EncodeError;
use ampere_cmd::command::{Payload, SemaphoreRelease};
use ampere_cmd::gpfifo;
use ampere_cmd::pushbuffer::Encoder;
use anyhow::{Context as _, Result, bail, ensure};
use gpu_hal::ring::{USERD_GP_GET, USERD_GP_PUT};
use gpu_hal::{Channels, DeviceMemory, Driver, Engine, MemoryUse, volatile};
use serde_json::{Value, json};
use tegra_hcq::Device;

use super::Context;

/// Bytes of the pushbuffer, which is used from its start again when it is full.
const PUSHBUFFER_BYTES: u64 = 64 << 10;
/// How long a wait spins before it yields.
const SPIN: Duration = Duration::from_millis(1);

/// A GPU with a compute and a copy channel.
pub(super) struct Rig<'a> {
    context: &'a Context,
    pub(super) driver: Box<dyn Driver>,
    pub(super) channels: Channels,
    pushbuffer: Box<dyn DeviceMemory>,
    /// Offset of the next words in the pushbuffer.
    next: u64,
    /// The words of the last submission.
    last: Vec<u32>,
}

impl<'a> Rig<'a> {
    /// Runs `stage` on a rig. After a failure the state of the channels is recorded, and they are reset before they
    /// are closed: closing a channel with unfinished work may wedge the GPU.
    pub(super) fn run<T>(context: &'a Context, stage: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        context.recorder.step("opening the GPU")?;
        let driver = Device::driver_through(context.door(), context.device)?;
        let pushbuffer = driver.allocate(PUSHBUFFER_BYTES, MemoryUse::Commands, "pushbuffer")?;
        context.recorder.step("opening channels")?;
        let channels = driver.open_channels()?;
        let mut rig = Self { context, driver, channels, pushbuffer, next: 0, last: Vec::new() };
        let result = stage(&mut rig);
        if result.is_err() {
            rig.record();
            if let Err(error) = rig.channels.group.abort() {
                context.recorder.state("abort", error.to_string());
            }
        }
        result
    }

    /// Memory that CPU and GPU see, cleared.
    pub(super) fn memory(&self, bytes: u64, purpose: MemoryUse) -> Result<Memory> {
        let memory = self.driver.allocate(bytes, purpose, "bring-up")?;
        let len = usize::try_from(memory.bytes())?;
        let cpu = memory.cpu()?;
        // SAFETY: the memory is mapped for its length, and nothing else uses it yet.
        unsafe { volatile::fill(cpu.as_ptr(), 0, len) };
        Ok(Memory { memory, cpu })
    }

    /// Encodes words, gives them to an engine, and returns their number.
    pub(super) fn submit<R>(
        &mut self,
        engine: Engine,
        commands: impl FnOnce(&mut Encoder<Vec<u32>>) -> Result<R, EncodeError>,
    ) -> Result<usize> {
        let mut encoder = Encoder::new(Vec::new());
        commands(&mut encoder)?;
        let words = encoder.into_sink();
        let bytes = (words.len() * 4) as u64;
        ensure!(bytes <= PUSHBUFFER_BYTES, "{} words do not fit the pushbuffer", words.len());
        if self.next + bytes > PUSHBUFFER_BYTES {
            self.next = 0;
        }
        let source: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        // SAFETY: the words end inside the pushbuffer; callers wait for a submission before the next but one.
        unsafe { volatile::store(self.pushbuffer.cpu()?.as_ptr().add(usize::try_from(self.next)?), &source) };
        let segment = gpfifo::Segment::new(self.pushbuffer.gpu_va() + self.next, u32::try_from(words.len())?);
        let entry = gpfifo::Entry::from(segment).encode()?;
        let ring = match engine {
            Engine::Compute => &mut self.channels.compute,
            Engine::Copy => &mut self.channels.copy,
        };
        // SAFETY: the memory of the rig is accessed through pointers alone.
        unsafe { ring.submit(entry)? };
        self.next += bytes.next_multiple_of(64);
        self.last = words;
        Ok(self.last.len())
    }

    /// Waits until `done`, at most `limit` on a board. Fails if the kernel ends the channels.
    pub(super) fn wait(&self, limit: Duration, mut done: impl FnMut() -> bool) -> Result<Duration> {
        let (start, limit) = (Instant::now(), self.context.patience(limit));
        while !done() {
            if let Some(code) = self.channels.group.error() {
                bail!("the kernel ended the channels: {code}");
            }
            let waited = start.elapsed();
            ensure!(waited < limit, "nothing happened within {} ms", limit.as_millis());
            if waited > SPIN { std::thread::yield_now() } else { core::hint::spin_loop() }
        }
        Ok(start.elapsed())
    }

    /// Submits commands and a release of `value` to `memory`, and waits for the value.
    pub(super) fn complete(
        &mut self,
        engine: Engine,
        memory: &Memory,
        value: u32,
        commands: impl FnOnce(&mut Encoder<Vec<u32>>) -> Result<(), EncodeError>,
    ) -> Result<Duration> {
        let release = SemaphoreRelease {
            va: memory.va(),
            payload: Payload::Bits32(value),
            wait_for_idle: true,
            timestamp: false,
        };
        self.submit(engine, |encoder| {
            commands(encoder)?;
            encoder.semaphore_release(&release)
        })?;
        self.wait(Duration::from_secs(5), || memory.load(0) == value).context("waiting for the release")
    }

    /// Records the state of both channels.
    fn record(&self) {
        let recorder = &self.context.recorder;
        recorder.state("error_notifier", self.channels.group.error().map(|code| code.to_string()));
        recorder.state("channel_ids", self.channels.group.channel_ids());
        recorder.state("last_pushbuffer_words", hex(&self.last));
        for (name, ring) in [("compute", &self.channels.compute), ("copy", &self.channels.copy)] {
            let view = ring.view();
            let userd = view.userd_words();
            let entries: Vec<_> = view.last_entries(8).iter().map(|entry| format!("{entry:#018x}")).collect();
            let state = json!({
                "gp_get": userd[USERD_GP_GET / 4],
                "gp_put": userd[USERD_GP_PUT / 4],
                "userd": hex(&userd),
                "last_entries": entries,
            });
            recorder.state(name, state);
        }
    }
}

/// Words as hexadecimal numbers.
pub(super) fn hex(words: &[u32]) -> Value {
    words.iter().map(|word| format!("{word:#x}")).collect()
}

/// Memory of a rig.
pub(super) struct Memory {
    memory: Box<dyn DeviceMemory>,
    /// Its first byte, mapped while `memory` lives.
    cpu: NonNull<u8>,
}

impl Memory {
    /// Its first GPU address.
    pub(super) fn va(&self) -> u64 {
        self.memory.gpu_va()
    }

    /// The 32-bit word at a byte offset, a multiple of 4.
    ///
    /// # Panics
    ///
    /// If the word is not inside the memory.
    pub(super) fn load(&self, offset: u64) -> u32 {
        self.word(offset)
    }

    /// The 64-bit word at a byte offset.
    pub(super) fn load64(&self, offset: u64) -> u64 {
        u64::from(self.word(offset + 4)) << 32 | u64::from(self.word(offset))
    }

    fn word(&self, offset: u64) -> u32 {
        assert!(offset.is_multiple_of(4) && offset + 4 <= self.memory.bytes(), "word at {offset}");
        // SAFETY: the word is inside the memory and aligned, because the memory is page-aligned.
        // CAST: the offset is below the size of a mapping.
        unsafe { self.cpu.as_ptr().add(offset as usize).cast::<u32>().read_volatile() }
    }

    /// Copies bytes to an offset.
    pub(super) fn write(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let end = offset.checked_add(bytes.len() as u64);
        ensure!(
            end.is_some_and(|end| end <= self.memory.bytes()),
            "{} bytes at {offset} do not fit",
            bytes.len()
        );
        // SAFETY: the range is inside the memory.
        unsafe { volatile::store(self.cpu.as_ptr().add(usize::try_from(offset)?), bytes) };
        Ok(())
    }

    /// Copies bytes from an offset.
    pub(super) fn read(&self, offset: u64, len: usize) -> Result<Vec<u8>> {
        let end = offset.checked_add(len as u64);
        ensure!(end.is_some_and(|end| end <= self.memory.bytes()), "{len} bytes at {offset} do not exist");
        let mut bytes = vec![0; len];
        // SAFETY: the range is inside the memory.
        unsafe { volatile::load(self.cpu.as_ptr().add(usize::try_from(offset)?), &mut bytes) };
        Ok(bytes)
    }
}
