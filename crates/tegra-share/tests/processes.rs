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

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::{pread, pwrite};
use tegra_share::{
    Cause, Consumer, Ended, Error, Event, FrameInfo, Layout, Policy, Producer, ProducerOptions,
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

/// Starts this test once more, as a child that plays `part`.
fn child(part: &str, path: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "the_part_of_a_child", "--nocapture", "--test-threads", "1"]);
    command.env(PART, part).env(SOCKET, path).stdout(Stdio::piped()).spawn().unwrap()
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
        other => panic!("no part {other}"),
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
