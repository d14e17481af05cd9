//! The crate against a real GPU of the Hopper generation. Without the driver's nodes it says so and passes.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ampere_cmd::command::{LinearCopy, Payload, SemaphoreRelease};
use ampere_cmd::gpfifo::{Entry, Segment};
use ampere_cmd::pushbuffer::{Encoder, SliceSink, Subchannel};
use kernel_door::{Door, LinuxDoor};
use nvrm::{ChannelGroup, Engine, Gpu, HostImport, Memory, Place, RING_ENTRIES};

/// Longest wait for the GPU.
const TIMEOUT: Duration = Duration::from_secs(2);

fn gpu() -> Option<Arc<Gpu>> {
    if !Path::new("/dev/nvidiactl").exists() {
        eprintln!("SKIPPED: there is no /dev/nvidiactl");
        return None;
    }
    let door: Arc<dyn Door> = Arc::new(LinuxDoor);
    Some(Gpu::open(&door, 0).unwrap())
}

/// One channel, fed by hand.
struct Feeder<'a> {
    group: &'a ChannelGroup,
    gpu: &'a Gpu,
    engine: Engine,
    commands: Memory,
    put: u32,
}

impl<'a> Feeder<'a> {
    fn new(gpu: &'a Arc<Gpu>, group: &'a ChannelGroup, engine: Engine) -> Self {
        let commands = Memory::new(gpu, Place::Video, 4096).unwrap();
        Self { group, gpu, engine, commands, put: 0 }
    }

    /// Sends commands; nothing of an earlier call may be in flight.
    fn send<R>(&mut self, encode: impl Fn(&mut Encoder<&mut SliceSink<'_>>) -> R) {
        let mut words = [0; 256];
        let mut sink = SliceSink::new(&mut words);
        encode(&mut Encoder::new(&mut sink));
        let len = sink.len();
        for (at, word) in words[..len].iter().enumerate() {
            // SAFETY: inside the commands' memory.
            unsafe { self.commands.cpu().unwrap().cast::<u32>().add(at).write_volatile(*word) };
        }
        let segment = Segment::new(self.commands.gpu_va(), u32::try_from(len).unwrap());
        let entry = Entry::from(segment).encode().unwrap();
        // SAFETY: the slot lies in the ring.
        unsafe { self.group.ring(self.engine).add(self.put as usize).write_volatile(entry) };
        self.put = (self.put + 1) % RING_ENTRIES;
        fence();
        // SAFETY: GP_PUT lies in USERD.
        unsafe { self.group.userd(self.engine).add(0x8c).cast::<u32>().write_volatile(self.put) };
        fence();
        // SAFETY: the doorbell lives as long as the GPU.
        unsafe { self.gpu.doorbell().write_volatile(self.group.token(self.engine)) };
    }
}

/// Orders write-combined stores.
fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every x86-64 has the instruction.
    unsafe {
        core::arch::x86_64::_mm_sfence();
    }
    #[cfg(not(target_arch = "x86_64"))]
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

fn release(va: u64, value: u64) -> SemaphoreRelease {
    SemaphoreRelease { va, payload: Payload::Bits64(value), wait_for_idle: true, timestamp: true }
}

/// Waits until the first word of the memory has a value; what the group's notifier says otherwise.
fn wait(group: &ChannelGroup, memory: &Memory, value: u64) {
    let (start, first) = (Instant::now(), memory.cpu().unwrap().cast::<u64>());
    // SAFETY: the word lies in the memory.
    while unsafe { first.read_volatile() } != value {
        assert!(
            start.elapsed() < TIMEOUT,
            "no answer; notifier {:?}, MMU fault {:?}, SMs {:?}",
            group.error(),
            group.mmu_fault(),
            group.sm_errors()
        );
    }
}

#[test]
fn both_engines_answer_and_copy() {
    let Some(gpu) = gpu() else { return };
    println!("{:#?}", gpu.properties());
    println!("video memory {:?}, time {} ns", gpu.video_memory().unwrap(), gpu.time_ns());
    let group = ChannelGroup::open(&gpu).unwrap();
    let flag = Memory::new(&gpu, Place::System, 4096).unwrap();
    let mut compute = Feeder::new(&gpu, &group, Engine::Compute);
    compute.send(|encoder| {
        encoder.set_object(Subchannel::COMPUTE, 0xcbc0).unwrap();
        encoder.semaphore_release(&release(flag.gpu_va(), 1)).unwrap();
    });
    wait(&group, &flag, 1);

    const BYTES: usize = 5 << 20;
    let source = Memory::new(&gpu, Place::System, BYTES as u64).unwrap();
    let middle = Memory::new(&gpu, Place::Video, BYTES as u64).unwrap();
    // SAFETY: fresh memory of at least that length; the process does not use the vector after the import.
    let (source_bytes, mut target) = unsafe {
        (std::slice::from_raw_parts_mut(source.cpu().unwrap().as_ptr(), BYTES), vec![0_u8; BYTES + 4096])
    };
    source_bytes
        .iter_mut()
        .zip(0_u32..)
        .for_each(|(byte, at)| *byte = (at.wrapping_mul(0x9e37_79b9) >> 24) as u8);
    let aligned = target.as_mut_ptr().wrapping_add(target.as_ptr().align_offset(4096));
    let pointer = std::ptr::NonNull::new(aligned).unwrap();
    // SAFETY: the vector lives longer than the import and is not moved.
    let import = unsafe { HostImport::new(&gpu, pointer, BYTES).unwrap() };
    let mut copy = Feeder::new(&gpu, &group, Engine::Copy);
    let copies = [(source.gpu_va(), middle.gpu_va()), (middle.gpu_va(), import.gpu_va())];
    copy.send(|encoder| {
        encoder.set_object(Subchannel::COPY, 0xc8b5).unwrap();
        for (source, destination) in copies {
            encoder.linear_copy(&LinearCopy { source, destination, bytes: BYTES as u64 }).unwrap();
        }
        encoder.semaphore_release(&release(flag.gpu_va(), 2)).unwrap();
    });
    wait(&group, &flag, 2);
    // SAFETY: the GPU has finished.
    let copied = unsafe { std::slice::from_raw_parts(aligned, BYTES) };
    assert!(copied == source_bytes, "the bytes arrive");
    drop(import);

    let mut times: Vec<_> = (3..2003_u64)
        .map(|value| {
            let start = Instant::now();
            compute.send(|encoder| encoder.semaphore_release(&release(flag.gpu_va(), value)).unwrap());
            wait(&group, &flag, value);
            start.elapsed()
        })
        .collect();
    times.sort();
    println!("round trip min {:?}, p50 {:?}, p99 {:?}", times[0], times[1000], times[1980]);
    // SAFETY: the second word of the semaphore.
    let stamp = unsafe { flag.cpu().unwrap().cast::<u64>().add(1).read_volatile() };
    let now = gpu.time_ns();
    assert!(now >= stamp && now - stamp < 1_000_000_000, "one clock: {now} {stamp}");
}

#[test]
fn a_bad_address_is_reported_and_another_group_goes_on() {
    let Some(gpu) = gpu() else { return };
    let flag = Memory::new(&gpu, Place::System, 4096).unwrap();
    let group = ChannelGroup::open(&gpu).unwrap();
    let mut copy = Feeder::new(&gpu, &group, Engine::Copy);
    copy.send(|encoder| {
        encoder.set_object(Subchannel::COPY, 0xc8b5).unwrap();
        let copy = LinearCopy { source: 0x30_0000_0000, destination: flag.gpu_va(), bytes: 64 };
        encoder.linear_copy(&copy).unwrap();
        encoder.semaphore_release(&release(flag.gpu_va(), 1)).unwrap();
    });
    let start = Instant::now();
    while group.error().is_none() {
        assert!(start.elapsed() < TIMEOUT, "an error is reported");
        std::thread::sleep(Duration::from_millis(1));
    }
    println!("after {:?}: {:?}, {:?}", start.elapsed(), group.error(), group.mmu_fault());
    drop(group);

    let group = ChannelGroup::open(&gpu).unwrap();
    let mut compute = Feeder::new(&gpu, &group, Engine::Compute);
    compute.send(|encoder| encoder.semaphore_release(&release(flag.gpu_va(), 7)).unwrap());
    wait(&group, &flag, 7);
}

#[test]
fn memory_is_given_back() {
    let Some(gpu) = gpu() else { return };
    drop(Memory::new(&gpu, Place::Video, 64 << 20).unwrap());
    let before = gpu.video_memory().unwrap().1;
    for round in 0..8 {
        let memory = Memory::new(&gpu, Place::Video, 256 << 20).unwrap();
        if round == 0 {
            assert!(gpu.video_memory().unwrap().1 < before);
        }
        drop(memory);
    }
    assert!(gpu.video_memory().unwrap().1 + (64 << 20) > before);
}
