//! Measures each copy engine of the first GPU: copies inside its memory, and to and from the memory of the second
//! GPU, if there is one that it can map.

use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ampere_cmd::command::{LinearCopy, Payload, SemaphoreRelease};
use ampere_cmd::gpfifo::{Entry, Segment};
use ampere_cmd::pushbuffer::{Encoder, SliceSink, Subchannel};
use gpu_hal::{SubmitPointers, SubmitRing};
use kernel_door::{Door, LinuxDoor};
use nvrm::{ChannelGroup, Engine, Gpu, Memory, PeerMemory, Place, RING_ENTRIES};

/// Sizes of the copies in bytes.
const SIZES: [u64; 4] = [4 << 10, 1 << 20, 16 << 20, 256 << 20];
/// Copies per size; the fastest counts.
const ROUNDS: u32 = 20;
/// Longest wait for the GPU.
const TIMEOUT: Duration = Duration::from_secs(2);
/// Distance of two commands in bytes.
const SLOT_BYTES: usize = 1024;

/// A copy channel on one engine.
struct Lane {
    group: Arc<ChannelGroup>,
    ring: SubmitRing,
    commands: Memory,
    done: Memory,
    value: u64,
}

impl Lane {
    fn open(gpu: &Arc<Gpu>, number: u32) -> Result<Self, Box<dyn Error>> {
        let group = Arc::new(ChannelGroup::open_copy_on(gpu, number)?);
        let engine = Engine::Copy;
        let pointers = SubmitPointers {
            slots: group.ring(engine),
            entries: RING_ENTRIES,
            userd: group.userd(engine),
            doorbell: gpu.doorbell(),
            token: group.token(engine),
        };
        // SAFETY: the group, which the ring keeps, keeps ring and USERD mapped, and through its GPU the doorbell.
        // There is one ring per channel.
        let ring = unsafe { SubmitRing::new(pointers, Arc::<ChannelGroup>::clone(&group)) }.write_combined();
        let commands = Memory::new(gpu, Place::Video, 1 << 16)?;
        let done = Memory::new(gpu, Place::System, 16)?;
        let mut lane = Self { group, ring, commands, done, value: 0 };
        let class = gpu.chip().classes.value.copy.number;
        lane.run(|encoder| encoder.set_object(Subchannel::COPY, class))?;
        Ok(lane)
    }

    /// Runs commands and waits for their end; returns the time.
    fn run(
        &mut self,
        encode: impl Fn(&mut Encoder<&mut SliceSink<'_>>) -> Result<(), ampere_cmd::Error>,
    ) -> Result<Duration, Box<dyn Error>> {
        self.value += 1;
        let (value, va) = (self.value, self.done.gpu_va());
        let mut words = [0; SLOT_BYTES / 4];
        let mut sink = SliceSink::new(&mut words);
        let mut encoder = Encoder::new(&mut sink);
        encode(&mut encoder)?;
        let payload = Payload::Bits64(value);
        encoder.semaphore_release(&SemaphoreRelease {
            va,
            payload,
            wait_for_idle: true,
            timestamp: false,
        })?;
        let len = sink.len();
        let offset = (value % 16) as usize * SLOT_BYTES;
        let answer = self.done.cpu()?.cast::<u64>();
        let start = Instant::now();
        // SAFETY: the slot lies in the commands' memory; the GPU does not write it.
        unsafe {
            let target = self.commands.cpu()?.as_ptr().add(offset).cast::<u32>();
            core::ptr::copy_nonoverlapping(words.as_ptr(), target, len);
        }
        let segment = Segment::new(self.commands.gpu_va() + offset as u64, u32::try_from(len)?);
        // SAFETY: no reference covers memory that the commands write.
        unsafe { self.ring.submit(Entry::from(segment).encode()?)? };
        // SAFETY: the word lies in the memory.
        while unsafe { answer.read_volatile() } != value {
            if start.elapsed() > TIMEOUT {
                return Err(format!("no answer: {:?}", self.group.error()).into());
            }
        }
        Ok(start.elapsed())
    }

    /// The fastest of several copies.
    fn copy(&mut self, source: u64, destination: u64, bytes: u64) -> Result<Duration, Box<dyn Error>> {
        let mut best = Duration::MAX;
        for _ in 0..ROUNDS {
            let copy = LinearCopy { source, destination, bytes };
            best = best.min(self.run(|encoder| encoder.linear_copy(&copy))?);
        }
        Ok(best)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let door: Arc<dyn Door> = Arc::new(LinuxDoor);
    let list = Gpu::list(&door)?;
    println!("GPUs: {list:?}");
    let gpu = Gpu::open(&door, 0)?;
    let largest = SIZES[SIZES.len() - 1];
    let own = [Memory::new(&gpu, Place::Video, largest)?, Memory::new(&gpu, Place::Video, largest)?];
    let mut ways = vec![("local", own[0].gpu_va(), own[1].gpu_va())];
    let mut peer = None;
    if list.len() > 1 {
        let other = Gpu::open(&door, 1)?;
        println!("to the second GPU: {:?}, back: {:?}", gpu.connect(&other)?, other.connect(&gpu)?);
        let theirs = Memory::new(&other, Place::Video, largest)?;
        match PeerMemory::new(&gpu, &theirs.share()) {
            Ok(mapping) => {
                ways.push(("push", own[0].gpu_va(), mapping.gpu_va()));
                ways.push(("pull", mapping.gpu_va(), own[1].gpu_va()));
                peer = Some((mapping, theirs));
            }
            Err(error) => println!("the second GPU's memory cannot be mapped: {error}"),
        }
    }
    for engine in gpu.copy_engines()? {
        println!("{engine:?}");
        let mut lane = match Lane::open(&gpu, engine.number) {
            Ok(lane) => lane,
            Err(error) => {
                println!("  {error}");
                continue;
            }
        };
        for (name, source, destination) in &ways {
            print!("  {name:6}");
            for bytes in SIZES {
                let time = lane.copy(*source, *destination, bytes)?;
                let rate = bytes as f64 / time.as_nanos() as f64;
                print!("  {:>5} KiB {:>9.2} µs {rate:>7.1} GB/s", bytes >> 10, time.as_nanos() as f64 / 1e3);
            }
            println!();
        }
    }
    drop(peer);
    Ok(())
}
