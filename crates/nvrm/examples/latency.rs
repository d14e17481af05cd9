//! Measures submission latency on a real GPU: the time from the first store of a submission until the CPU sees the
//! value that the last command releases. Each row uses other commands or another kind of memory.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ampere_cmd::command::{Payload, SemaphoreRelease};
use ampere_cmd::compute_cbc0::{
    SetReportSemaphoreA, SetReportSemaphoreB, SetReportSemaphoreC, SetReportSemaphoreD,
    SetReportSemaphoreDOperation, SetReportSemaphoreDStructureSize,
};
use ampere_cmd::gpfifo::{Entry, Segment};
use ampere_cmd::pushbuffer::{Encoder, Header, Mode, SliceSink, Subchannel};
use gpu_hal::{SubmitPointers, SubmitRing};
use kernel_door::{Door, LinuxDoor};
use nvrm::{ChannelGroup, Engine, Gpu, Memory, Place, RING_ENTRIES};

/// Samples per row.
const SAMPLES: u32 = 20_000;
/// Longest wait for the GPU.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Time for the GPU to execute SET_OBJECT before the first row.
const SETTLE: Duration = Duration::from_millis(10);
/// Bytes of memory for commands.
const COMMAND_BYTES: u64 = 1 << 20;
/// Distance of two samples' commands in that memory, in bytes.
const SLOT_BYTES: usize = 1024;
/// Slots that the samples use in turn: the GPU may still fetch the previous ones.
const SLOTS: usize = 256;
/// Longest commands of a sample in words.
const MAX_WORDS: usize = SLOT_BYTES / size_of::<u32>();

/// The release at the end of a row's commands.
#[derive(Clone, Copy)]
enum Kind {
    /// A release by the host engine.
    Host { wait_for_idle: bool, timestamp: bool },
    /// A release by the compute engine, of one word.
    Report,
}

/// One row of the table.
struct Row {
    name: &'static str,
    commands: Place,
    kind: Kind,
    engine: Engine,
    /// Empty method headers before the release.
    padding: usize,
}

const PLAIN: Kind = Kind::Host { wait_for_idle: false, timestamp: false };
const ROWS: &[Row] = &[
    Row { name: "host release", commands: Place::Video, kind: PLAIN, engine: Engine::Compute, padding: 0 },
    Row {
        name: "host release, wait for idle",
        commands: Place::Video,
        kind: Kind::Host { wait_for_idle: true, timestamp: false },
        engine: Engine::Compute,
        padding: 0,
    },
    Row {
        name: "host release, time stamp",
        commands: Place::Video,
        kind: Kind::Host { wait_for_idle: false, timestamp: true },
        engine: Engine::Compute,
        padding: 0,
    },
    Row {
        name: "host release, wait for idle, time stamp",
        commands: Place::Video,
        kind: Kind::Host { wait_for_idle: true, timestamp: true },
        engine: Engine::Compute,
        padding: 0,
    },
    Row {
        name: "the same words in system memory",
        commands: Place::System,
        kind: PLAIN,
        engine: Engine::Compute,
        padding: 0,
    },
    Row {
        name: "100 words before it",
        commands: Place::Video,
        kind: PLAIN,
        engine: Engine::Compute,
        padding: 100,
    },
    Row {
        name: "100 words before it, system memory",
        commands: Place::System,
        kind: PLAIN,
        engine: Engine::Compute,
        padding: 100,
    },
    Row {
        name: "release by the compute engine",
        commands: Place::Video,
        kind: Kind::Report,
        engine: Engine::Compute,
        padding: 0,
    },
    Row {
        name: "host release on the copy channel",
        commands: Place::Video,
        kind: PLAIN,
        engine: Engine::Copy,
        padding: 0,
    },
];

/// The rings of both channels.
struct Feeder {
    compute: SubmitRing,
    copy: SubmitRing,
}

impl Feeder {
    fn new(gpu: &Arc<Gpu>, group: &Arc<ChannelGroup>) -> Self {
        let ring = |engine| {
            let pointers = SubmitPointers {
                slots: group.ring(engine),
                entries: RING_ENTRIES,
                userd: group.userd(engine),
                doorbell: gpu.doorbell(),
                token: group.token(engine),
            };
            // SAFETY: the group, which the ring keeps, keeps ring and USERD mapped, and through its GPU the doorbell.
            // There is one ring per channel.
            unsafe { SubmitRing::new(pointers, Arc::<ChannelGroup>::clone(group)) }.write_combined()
        };
        Self { compute: ring(Engine::Compute), copy: ring(Engine::Copy) }
    }

    /// Stores the commands, submits them, and returns the time right after the doorbell.
    fn send(
        &mut self,
        engine: Engine,
        memory: &Memory,
        slot: usize,
        words: &[u32],
    ) -> Result<Instant, Box<dyn Error>> {
        let offset = slot * SLOT_BYTES;
        let bytes = size_of_val(words);
        if bytes > SLOT_BYTES || (offset + bytes) as u64 > memory.bytes() {
            return Err(format!("{bytes} bytes of commands do not fit slot {slot}").into());
        }
        // SAFETY: the commands lie in the memory, as checked; the GPU does not write it.
        unsafe {
            let target = memory.cpu()?.as_ptr().add(offset).cast::<u32>();
            core::ptr::copy_nonoverlapping(words.as_ptr(), target, words.len());
        }
        let segment = Segment::new(memory.gpu_va() + offset as u64, u32::try_from(words.len())?);
        let ring = if engine == Engine::Copy { &mut self.copy } else { &mut self.compute };
        // SAFETY: no reference covers memory that the commands write.
        unsafe { ring.submit(Entry::from(segment).encode()?)? };
        Ok(Instant::now())
    }
}

/// Writes the commands of one sample into `words`, and returns their number.
fn encode(row: &Row, words: &mut [u32], va: u64, value: u32) -> Result<usize, Box<dyn Error>> {
    let mut sink = SliceSink::new(words);
    let mut encoder = Encoder::new(&mut sink);
    let empty =
        Header::Methods { mode: Mode::Incrementing, subchannel: Subchannel::COMPUTE, address: 0, count: 0 };
    for _ in 0..row.padding {
        encoder.header(empty)?;
    }
    match row.kind {
        Kind::Host { wait_for_idle, timestamp } => {
            let payload = Payload::Bits64(value.into());
            encoder.semaphore_release(&SemaphoreRelease { va, payload, wait_for_idle, timestamp })?;
        }
        Kind::Report => {
            let release = SetReportSemaphoreD {
                operation: SetReportSemaphoreDOperation::Release,
                structure_size: SetReportSemaphoreDStructureSize::OneWord,
                ..Default::default()
            };
            encoder.sequence(
                Subchannel::COMPUTE,
                &(
                    SetReportSemaphoreA { offset_upper: u32::try_from(va >> 32)? },
                    SetReportSemaphoreB { offset_lower: u32::try_from(va & u64::from(u32::MAX))? },
                    SetReportSemaphoreC { payload: value },
                    release,
                ),
            )?;
        }
    }
    Ok(sink.len())
}

/// The value at `share` of sorted samples.
fn at(sorted: &[u128], share: f64) -> u128 {
    // CAST: an index below the number of samples.
    sorted[((sorted.len() as f64 * share) as usize).min(sorted.len() - 1)]
}

fn main() -> Result<(), Box<dyn Error>> {
    let door: Arc<dyn Door> = Arc::new(LinuxDoor);
    let start = Instant::now();
    let gpu = Gpu::open(&door, 0)?;
    let opened = start.elapsed();
    let group = Arc::new(ChannelGroup::open(&gpu)?);
    println!("GPU opened in {opened:?}, channels in {:?}", start.elapsed() - opened);
    let flag = Memory::new(&gpu, Place::System, size_of::<u64>() as u64)?;
    let video = Memory::new(&gpu, Place::Video, COMMAND_BYTES)?;
    let system = Memory::new(&gpu, Place::System, COMMAND_BYTES)?;
    let mut feeder = Feeder::new(&gpu, &group);
    let classes = gpu.chip().classes.value;
    for (engine, subchannel, class) in [
        (Engine::Compute, Subchannel::COMPUTE, classes.compute.number),
        (Engine::Copy, Subchannel::COPY, classes.copy.number),
    ] {
        let mut words = [0; MAX_WORDS];
        let mut sink = SliceSink::new(&mut words);
        Encoder::new(&mut sink).set_object(subchannel, class)?;
        let len = sink.len();
        feeder.send(engine, &video, 0, &words[..len])?;
    }
    std::thread::sleep(SETTLE);
    println!("{:42} {:>8} {:>8} {:>8} {:>10}", "ns", "min", "p50", "p99", "CPU p50");
    let mut value = 0_u32;
    let answer = flag.cpu()?.cast::<u32>();
    for row in ROWS {
        let memory = if row.commands == Place::System { &system } else { &video };
        let (mut times, mut cpu) = (Vec::new(), Vec::new());
        for slot in (0..SLOTS).cycle().take(SAMPLES as usize) {
            value += 1;
            let mut words = [0; MAX_WORDS];
            let len = encode(row, &mut words, flag.gpu_va(), value)?;
            let start = Instant::now();
            let rung = feeder.send(row.engine, memory, slot, &words[..len])?;
            // SAFETY: the word lies in the flag's memory.
            while unsafe { answer.read_volatile() } != value {
                if start.elapsed() > TIMEOUT {
                    return Err(format!("{}: no answer: {:?}", row.name, group.error()).into());
                }
            }
            times.push(start.elapsed().as_nanos());
            cpu.push((rung - start).as_nanos());
        }
        times.sort_unstable();
        cpu.sort_unstable();
        println!(
            "{:42} {:8} {:8} {:8} {:10}",
            row.name,
            times[0],
            at(&times, 0.5),
            at(&times, 0.99),
            at(&cpu, 0.5)
        );
    }
    Ok(())
}
