//! What a submission costs on a real GPU: the time from the first store of a submission until the CPU sees the value
//! that its last command releases, for different commands and places of memory.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ampere_cmd::command::{Payload, SemaphoreRelease};
use ampere_cmd::gpfifo::{Entry, Segment};
use ampere_cmd::pushbuffer::{Encoder, SliceSink, Subchannel};
use nvgpu_sys::{Door, LinuxDoor};
use nvrm::{ChannelGroup, Engine, Gpu, Memory, Place, RING_ENTRIES};

/// Samples of a row.
const SAMPLES: u64 = 20_000;
/// Longest wait for the GPU.
const TIMEOUT: Duration = Duration::from_secs(2);
/// SET_REPORT_SEMAPHORE_A of the compute engine; B, C and D follow.
const REPORT_SEMAPHORE: u32 = 0x1b00;

/// What the commands of a row are.
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
    /// Words of no meaning before the release.
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

fn drain() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has the instruction.
    unsafe {
        core::arch::x86_64::_mm_sfence();
    }
    #[cfg(not(target_arch = "x86_64"))]
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

/// Channels with a position in each ring.
struct Feeder {
    gpu: Arc<Gpu>,
    group: ChannelGroup,
    put: [u32; 2],
}

impl Feeder {
    /// Stores commands, ring entry, GP_PUT and doorbell; returns the time at the doorbell.
    fn send(&mut self, engine: Engine, memory: &Memory, offset: usize, words: &[u32]) -> Instant {
        let put = &mut self.put[engine as usize];
        // SAFETY: offset and words lie in the memory, the slot in the ring, GP_PUT in USERD; the doorbell lives
        // as long as the GPU.
        unsafe {
            let target = memory.cpu().as_ptr().add(offset).cast::<u32>();
            core::ptr::copy_nonoverlapping(words.as_ptr(), target, words.len());
            let segment = Segment::new(memory.gpu_va() + offset as u64, words.len() as u32);
            let entry = Entry::from(segment).encode().unwrap();
            self.group.ring(engine).add(*put as usize).write_volatile(entry);
            *put = (*put + 1) % RING_ENTRIES;
            drain();
            self.group.userd(engine).add(0x8c).cast::<u32>().write_volatile(*put);
            drain();
            self.gpu.doorbell().write_volatile(self.group.token(engine));
        }
        Instant::now()
    }
}

fn main() {
    let door: Arc<dyn Door> = Arc::new(LinuxDoor);
    let start = Instant::now();
    let gpu = Gpu::open(&door, 0).unwrap();
    let opened = start.elapsed();
    let group = ChannelGroup::open(&gpu).unwrap();
    println!("GPU opened in {opened:?}, channels in {:?}", start.elapsed() - opened);
    let flag = Memory::new(&gpu, Place::System, 4096).unwrap();
    let places = [Place::Video, Place::System].map(|place| Memory::new(&gpu, place, 1 << 20).unwrap());
    let mut feeder = Feeder { gpu, group, put: [0; 2] };
    let mut value = 0_u64;
    for (engine, subchannel, class) in
        [(Engine::Compute, Subchannel::COMPUTE, 0xcbc0), (Engine::Copy, Subchannel::COPY, 0xc8b5)]
    {
        let mut words = [0; 16];
        let mut sink = SliceSink::new(&mut words);
        Encoder::new(&mut sink).set_object(subchannel, class).unwrap();
        let len = sink.len();
        feeder.send(engine, &places[0], 0, &words[..len]);
    }
    std::thread::sleep(Duration::from_millis(10));
    println!("{:42} {:>8} {:>8} {:>8} {:>10}", "ns", "min", "p50", "p99", "CPU p50");
    for row in ROWS {
        let memory = &places[usize::from(row.commands == Place::System)];
        let (mut times, mut cpu) = (Vec::new(), Vec::new());
        for sample in 0..SAMPLES {
            value += 1;
            let mut words = [0; 256];
            let mut sink = SliceSink::new(&mut words);
            let mut encoder = Encoder::new(&mut sink);
            for _ in 0..row.padding {
                // A header that counts no words.
                encoder.words(&[0x2000_0000]).unwrap();
            }
            let va = flag.gpu_va();
            match row.kind {
                Kind::Host { wait_for_idle, timestamp } => {
                    let payload = Payload::Bits64(value);
                    encoder
                        .semaphore_release(&SemaphoreRelease { va, payload, wait_for_idle, timestamp })
                        .unwrap();
                }
                Kind::Report => {
                    let data = [(va >> 32) as u32, va as u32, value as u32, 1 << 28];
                    encoder.methods(Subchannel::COMPUTE, REPORT_SEMAPHORE, &data).unwrap();
                }
            }
            let len = sink.len();
            let start = Instant::now();
            let rung = feeder.send(row.engine, memory, (sample as usize % 256) * 1024, &words[..len]);
            // SAFETY: the word lies in the flag's memory.
            while unsafe { flag.cpu().cast::<u32>().read_volatile() } != value as u32 {
                if start.elapsed() > TIMEOUT {
                    println!("{}: no answer: {:?}", row.name, feeder.group.error());
                    std::process::exit(1);
                }
            }
            times.push(start.elapsed().as_nanos());
            cpu.push((rung - start).as_nanos());
        }
        times.sort_unstable();
        cpu.sort_unstable();
        let at = |of: &[u128], share: f64| of[(of.len() as f64 * share) as usize];
        println!(
            "{:42} {:8} {:8} {:8} {:10}",
            row.name,
            times[0],
            at(&times, 0.5),
            at(&times, 0.99),
            at(&cpu, 0.5)
        );
    }
}
