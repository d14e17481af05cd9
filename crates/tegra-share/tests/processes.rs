//! Producer and consumer in two processes: many frames, and processes that are killed.
//!
//! A program of its own, whose tests run one after the other, because they count the descriptors of the process.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use orin_sim::serve::{self, Options, Session};
use orin_sim::{Config, SoftwareOrin};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::{pread, pwrite};
use tegra_hcq::{Device, DeviceKind};
use tegra_share::{
    Cause, Consumer, Ended, Error, Event, FrameInfo, GpuConsumer, GpuProducer, Layout, Policy, Producer,
    ProducerOptions,
};

/// Longest wait for what must happen.
const SOON: Duration = Duration::from_secs(30);
/// Frames of the long run, and those after which nothing may grow any more.
const FRAMES: u64 = 10_000;
const WARM_UP: u64 = 1000;
/// Names the part of a child, and the path of its socket.
const PART: &str = "TEGRA_SHARE_TEST_PART";
const SOCKET: &str = "TEGRA_SHARE_TEST_SOCKET";
static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

fn bind(path: &Path, buffers: usize) -> Producer {
    let memory = || -> OwnedFd {
        let memory = memfd_create("share", MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&memory, 4096).unwrap();
        memory
    };
    let layout = Layout { buffers: (0..buffers).map(|_| memory()).collect(), bytes: 4096, meta: Vec::new() };
    let options = ProducerOptions { policy: Policy::Wait, lease: SOON, ..ProducerOptions::default() };
    Producer::bind(path, layout, options).unwrap()
}

/// This test once more, as a child that plays `part`.
fn command(part: &str, path: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "the_part_of_a_child", "--nocapture", "--test-threads", "1"]);
    command.env(PART, part).env(SOCKET, path);
    command
}

fn child(part: &str, path: &Path) -> Child {
    command(part, path).stdout(Stdio::piped()).spawn().unwrap()
}

/// Waits until the child prints a line that contains `word`.
fn hear(child: &mut Child, word: &str) -> String {
    let lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    lines.map(Result::unwrap).find(|line| line.contains(word)).expect("the child says so")
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Resident memory of the process in KiB.
fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

/// What must not grow after the warm-up.
struct Growth(Option<(usize, u64)>);

impl Growth {
    fn check(&mut self, frame: u64) {
        if frame == WARM_UP {
            self.0 = Some((descriptors(), resident()));
        }
        if frame == FRAMES {
            let (before, memory) = self.0.unwrap();
            assert_eq!(descriptors(), before, "descriptors after {WARM_UP} and {FRAMES} frames");
            assert!(resident() <= memory + 512, "{memory} KiB grew to {}", resident());
        }
    }
}

fn publish(producer: &mut Producer) -> u64 {
    let buffer = producer.acquire(SOON).unwrap();
    buffer.wait(SOON).unwrap();
    producer.publish(buffer, FrameInfo::default(), None).unwrap()
}

fn wait_for_consumer(producer: &mut Producer) {
    let begun = Instant::now();
    while producer.consumers().next().is_none() {
        assert!(begun.elapsed() < SOON, "no consumer came");
        producer.wait(Duration::from_millis(50)).unwrap();
    }
}

/// The test that a child runs; without a part it has nothing to do.
#[test]
fn the_part_of_a_child() {
    let (Ok(part), Ok(path)) = (std::env::var(PART), std::env::var(SOCKET)) else { return };
    let path = Path::new(&path);
    match part.as_str() {
        "read all" => read_all(path),
        "hold one" => {
            let mut consumer = Consumer::connect(path, 1, SOON).unwrap();
            let _frame = consumer.recv(SOON).unwrap().unwrap();
            say("holding");
            std::thread::sleep(SOON);
        }
        "produce one" => {
            let mut producer = bind(path, 2);
            wait_for_consumer(&mut producer);
            publish(&mut producer);
            say("published");
            std::thread::sleep(SOON);
        }
        part => {
            let (write, device) = part.split_once(" on ").expect("a part");
            let device = Device::open(device.parse::<DeviceKind>().unwrap()).unwrap();
            if write == "gpu write" { gpu_write(&device, path) } else { gpu_read(&device, path) }
        }
    }
}

fn say(word: &str) {
    println!("{word}");
    std::io::stdout().flush().unwrap();
}

/// Reads all frames, and compares each with its number. Half of the releases have a fence that has signalled.
fn read_all(path: &Path) {
    let mut consumer = Consumer::connect(path, 2, SOON).unwrap();
    let mut growth = Growth(None);
    for number in 1..=FRAMES {
        let frame = consumer.recv(SOON).unwrap().expect("a frame in time");
        frame.wait(SOON).unwrap();
        let mut bytes = [0; 8];
        pread(frame.buffer(), &mut bytes[..], 0).unwrap();
        assert_eq!((frame.sequence(), u64::from_le_bytes(bytes), frame.dropped()), (number, number, 0));
        let fence = (number % 2 == 0).then(|| eventfd(1, EventfdFlags::CLOEXEC).unwrap());
        frame.release(fence.as_ref().map(AsFd::as_fd)).unwrap();
        growth.check(number);
    }
    say("all read");
    // Until the producer has counted its descriptors, of which this connection is one.
    assert!(matches!(consumer.recv(SOON), Err(Error::Ended(Ended::Closed))));
}

/// Number of frames, and of their words.
const GPU_FRAMES: u32 = 40;
const WORDS: usize = 5000;

fn gpu_write(device: &Device, path: &Path) {
    let options = ProducerOptions { policy: Policy::Wait, lease: SOON, ..ProducerOptions::default() };
    let mut producer = GpuProducer::<u32>::bind(device, path, (3, WORDS), b"words", options).unwrap();
    let mut queue = device.queue().unwrap();
    wait_for_consumer(producer.producer());
    for number in 1..=GPU_FRAMES {
        let buffer = producer.acquire(&mut queue, SOON).unwrap();
        queue.fill(producer.memory(&buffer).unwrap(), number).unwrap();
        let info = FrameInfo { bytes: 4 * WORDS as u64, ..FrameInfo::default() };
        assert_eq!(producer.publish(&mut queue, buffer, info, SOON).unwrap(), u64::from(number));
    }
    assert!(producer.producer().flush(SOON).unwrap());
}

fn gpu_read(device: &Device, path: &Path) {
    let mut consumer = GpuConsumer::<u32>::connect(device, path, 2, SOON).unwrap();
    assert_eq!(consumer.consumer().layout().meta, b"words");
    let mut queue = device.queue().unwrap();
    let mut copies = Vec::new();
    for _ in 1..=GPU_FRAMES {
        let frame = consumer.recv(&mut queue, SOON).unwrap().expect("a frame in time");
        assert_eq!(frame.fence().is_some(), device.info().kind == DeviceKind::Nvgpu);
        let mut copy = device.alloc::<u32>(WORDS).unwrap();
        queue.copy(consumer.memory(&frame).unwrap(), &mut copy).unwrap();
        consumer.release(&mut queue, frame, SOON).unwrap();
        copies.push(copy);
    }
    for (copy, number) in copies.iter().zip(1..) {
        assert_eq!(copy.to_vec().unwrap(), vec![number; WORDS]);
    }
    assert!(matches!(consumer.recv(&mut queue, SOON), Err(Error::Ended(Ended::Closed))));
}

/// The CPU waits: each process has a software Orin of its own.
#[test]
fn frames_of_a_gpu_go_to_the_gpu_of_another_process() {
    let _alone = ONE_AT_A_TIME.lock();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let mut writer = child("gpu write on sim", &path);
    let mut reader = child("gpu read on sim", &path);
    assert!(reader.wait().unwrap().success() && writer.wait().unwrap().success());
}

/// The GPU waits: both processes see an Orin, and its fences travel as files.
#[test]
fn frames_of_one_orin_are_waited_for_by_its_gpu() {
    let _alone = ONE_AT_A_TIME.lock();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let board = SoftwareOrin::new(Config::default()).unwrap();
    let start = |part| Session::start(&board, command(part, &path), &Options::default());
    let mut writer = match start("gpu write on nvgpu") {
        Err(error @ (serve::Error::Filter { .. } | serve::Error::OldKernel { .. })) => {
            return println!("SKIPPED: {error}");
        }
        started => started.unwrap(),
    };
    let mut reader = start("gpu read on nvgpu").unwrap();
    assert!(reader.wait().unwrap().success() && writer.wait().unwrap().success(), "{:?}", board.kernel_log());
}

#[test]
fn ten_thousand_frames_leave_nothing_behind() {
    let _alone = ONE_AT_A_TIME.lock();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let mut producer = bind(&path, 4);
    let mut reader = child("read all", &path);
    wait_for_consumer(&mut producer);
    let mut growth = Growth(None);
    for number in 1..=FRAMES {
        let buffer = producer.acquire(SOON).unwrap();
        buffer.wait(SOON).unwrap();
        let place = &producer.layout().buffers[buffer.index()];
        pwrite(place, &number.to_le_bytes(), 0).unwrap();
        let fence = (number % 3 == 0).then(|| eventfd(1, EventfdFlags::CLOEXEC).unwrap());
        assert_eq!(producer.publish(buffer, FrameInfo::default(), fence).unwrap(), number);
        if number == WARM_UP || number == FRAMES {
            // All frames have come back, and fences that have signalled are closed.
            let all: Vec<_> = (0..4).map(|_| producer.acquire(SOON).unwrap()).collect();
            assert!(all.iter().all(|buffer| buffer.fences().len() == 0));
        }
        growth.check(number);
    }
    hear(&mut reader, "all read");
    drop(producer);
    assert!(reader.wait().unwrap().success());
}

#[test]
fn a_killed_consumer_loses_its_part_and_is_named() {
    let _alone = ONE_AT_A_TIME.lock();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let mut producer = bind(&path, 1);
    for round in 1..=3 {
        let before = descriptors();
        let mut holder = child("hold one", &path);
        wait_for_consumer(&mut producer);
        publish(&mut producer);
        hear(&mut holder, "holding");
        assert!(matches!(producer.acquire(Duration::ZERO), Err(Error::NoBuffer { .. })), "round {round}");
        holder.kill().unwrap();
        holder.wait().unwrap();
        drop(producer.acquire(SOON).unwrap());
        let events: Vec<Event> = std::iter::from_fn(|| producer.next_event()).collect();
        let [Event::Joined(joined), Event::Left { consumer, cause: Cause::HungUp }] = &events[..] else {
            panic!("{events:?}")
        };
        assert_eq!(
            (joined, consumer.number, consumer.pid),
            (consumer, round, i32::try_from(holder.id()).unwrap())
        );
        drop(holder);
        assert_eq!(descriptors(), before, "round {round}");
    }
}

#[test]
fn consumers_learn_that_their_producer_was_killed_and_find_the_next_one() {
    let _alone = ONE_AT_A_TIME.lock();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let before = descriptors();
    // The second producer replaces the socket that the first one left.
    for _ in 0..2 {
        let mut producer = child("produce one", &path);
        let mut consumer = Consumer::connect(&path, 2, SOON).unwrap();
        hear(&mut producer, "published");
        producer.kill().unwrap();
        producer.wait().unwrap();
        let frame = consumer.recv(SOON).unwrap().expect("what was published is there");
        assert!(matches!(consumer.recv(SOON), Err(Error::Ended(Ended::Died))));
        assert!(matches!(frame.release(None), Err(Error::Ended(Ended::Died))));
        assert!(path.exists());
    }
    assert_eq!(descriptors(), before);
}

/// The consumer in Python: as `read_all`, and a release with a fence for each third frame.
const PYTHON_READER: &str = r#"
import mmap, os, sys
from tegra_hcq.share import Consumer, Ended
with Consumer(sys.argv[1], timeout=30) as consumer:
    images = [mmap.mmap(fd, consumer.nbytes, prot=mmap.PROT_READ) for fd in consumer.buffers]
    assert consumer.meta == b"" and consumer.nbytes == 4096
    for number in range(1, 501):
        frame = consumer.recv(30)
        frame.wait(30)
        got = int.from_bytes(images[frame.index][:8], "little")
        assert (frame.sequence, got, frame.nbytes, frame.dropped) == (number, number, 8, 0)
        if number == 101:
            before = len(os.listdir("/proc/self/fd"))
        fence = os.eventfd(1) if number % 3 == 0 else None
        frame.release(fence)
        if fence is not None:
            os.close(fence)
    assert len(os.listdir("/proc/self/fd")) == before
    print("all read", flush=True)
    try:
        consumer.recv(30)
    except Ended as ended:
        assert ended.reason == "closed"
        sys.exit(0)
sys.exit("the producer has not ended")
"#;

/// The producer in Python, which ends after 500 frames, or is killed.
const PYTHON_WRITER: &str = r#"
import mmap, os, sys
from tegra_hcq.share import Producer
buffers = [os.memfd_create("share") for _ in range(3)]
for fd in buffers:
    os.ftruncate(fd, 4096)
images = [mmap.mmap(fd, 4096) for fd in buffers]
with Producer(sys.argv[1], buffers, 4096, b"from Python", drop_oldest=False, lease=30) as producer:
    while not producer.consumers:
        producer.wait(30)
    for number in range(1, 501):
        buffer = producer.acquire(30)
        buffer.wait(30)
        images[buffer.index][:8] = number.to_bytes(8, "little")
        fence = os.eventfd(1) if number % 2 == 0 else None
        producer.publish(buffer, 8, flags=number % 7, fence=fence)
        if fence is not None:
            os.close(fence)
    assert producer.flush(30)
"#;

/// A program in Python with the package of this repository; `None`, with a message, without a Python for it.
fn python(program: &str, path: &Path) -> Option<Child> {
    let version = "import os, sys; sys.exit(sys.version_info < (3, 10) or not hasattr(os, 'eventfd'))";
    let found = Command::new("python3").args(["-c", version]).status();
    if !found.is_ok_and(|status| status.success()) {
        println!("SKIPPED: there is no Python 3.10 or newer");
        return None;
    }
    let package = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bindings/python/src");
    let mut command = Command::new("python3");
    command.args(["-W", "error", "-c", program]).arg(path).env("PYTHONPATH", package);
    Some(command.env("PYTHONDONTWRITEBYTECODE", "1").stdout(Stdio::piped()).spawn().unwrap())
}

#[test]
fn python_reads_what_rust_writes() {
    let _alone = ONE_AT_A_TIME.lock();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let mut producer = bind(&path, 4);
    let Some(mut reader) = python(PYTHON_READER, &path) else { return };
    wait_for_consumer(&mut producer);
    for number in 1..=500_u64 {
        let buffer = producer.acquire(SOON).unwrap();
        buffer.wait(SOON).unwrap();
        pwrite(&producer.layout().buffers[buffer.index()], &number.to_le_bytes(), 0).unwrap();
        let fence = (number % 2 == 0).then(|| eventfd(1, EventfdFlags::CLOEXEC).unwrap());
        producer.publish(buffer, FrameInfo { bytes: 8, ..FrameInfo::default() }, fence).unwrap();
    }
    // Serves until the last frame has come back.
    let all: Vec<_> = (0..4).map(|_| producer.acquire(SOON).unwrap()).collect();
    hear(&mut reader, "all read");
    drop((all, producer));
    assert!(reader.wait().unwrap().success());
}

#[test]
fn rust_reads_what_python_writes() {
    let _alone = ONE_AT_A_TIME.lock();
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let Some(mut writer) = python(PYTHON_WRITER, &path) else { return };
    let mut consumer = Consumer::connect(&path, 2, SOON).unwrap();
    assert_eq!((&consumer.layout().meta[..], consumer.lease()), (&b"from Python"[..], SOON));
    for number in 1..=500 {
        let frame = consumer.recv(SOON).unwrap().expect("a frame in time");
        frame.wait(SOON).unwrap();
        let mut bytes = [0; 8];
        pread(frame.buffer(), &mut bytes[..], 0).unwrap();
        assert_eq!((frame.sequence(), u64::from_le_bytes(bytes), frame.bytes()), (number, number, 8));
        assert_eq!((u64::from(frame.flags()), frame.fence().is_some()), (number % 7, number % 2 == 0));
        let fence = (number % 3 == 0).then(|| eventfd(1, EventfdFlags::CLOEXEC).unwrap());
        frame.release(fence.as_ref().map(AsFd::as_fd)).unwrap();
    }
    assert!(matches!(consumer.recv(SOON), Err(Error::Ended(Ended::Closed))));
    assert!(writer.wait().unwrap().success());
}
