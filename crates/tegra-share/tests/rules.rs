//! Two ends that keep to the protocol, and are slow, many or gone.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use tegra_share::{
    Cause, Consumer, ConsumerId, Ended, Error, Event, Frame, FrameInfo, Layout, Policy, Producer,
    ProducerOptions, monotonic_ns,
};
use tempfile::TempDir;

/// Longest wait for what must happen.
pub(crate) const SOON: Duration = Duration::from_secs(20);
/// A lease that a test waits for.
const LEASE: Duration = Duration::from_millis(200);

pub(crate) fn memory(bytes: u64) -> OwnedFd {
    let memory = memfd_create("share", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&memory, bytes).unwrap();
    memory
}

fn layout(buffers: usize) -> Layout {
    Layout { buffers: (0..buffers).map(|_| memory(4096)).collect(), bytes: 4096, meta: b"meta".to_vec() }
}

fn bind(folder: &TempDir, buffers: usize, options: ProducerOptions) -> (Producer, PathBuf) {
    let path = folder.path().join("socket");
    (Producer::bind(&path, layout(buffers), options).unwrap(), path)
}

/// A producer with a lease that no test waits for.
pub(crate) fn producer(folder: &TempDir, buffers: usize) -> (Producer, PathBuf) {
    bind(folder, buffers, ProducerOptions { lease: SOON, ..ProducerOptions::default() })
}

/// Connects while the producer, in this thread, serves.
fn join(producer: &mut Producer, path: &Path, hold: u32) -> Result<Consumer, Error> {
    let path = path.to_owned();
    let connecting = thread::spawn(move || Consumer::connect(path, hold, SOON));
    while !connecting.is_finished() {
        producer.wait(Duration::from_millis(1)).unwrap();
    }
    connecting.join().unwrap()
}

/// The next consumer that leaves, and why.
pub(crate) fn left(producer: &mut Producer) -> (ConsumerId, Cause) {
    let begun = Instant::now();
    while begun.elapsed() < SOON {
        while let Some(event) = producer.next_event() {
            if let Event::Left { consumer, cause } = event {
                return (consumer, cause);
            }
        }
        producer.wait(Duration::from_millis(5)).unwrap();
    }
    panic!("no consumer left")
}

fn publish(producer: &mut Producer) -> u64 {
    let buffer = producer.acquire(SOON).unwrap();
    producer.publish(buffer, FrameInfo::default(), None).unwrap()
}

fn recv(consumer: &mut Consumer) -> Frame {
    consumer.recv(SOON).unwrap().expect("a frame in time")
}

fn ended<T: std::fmt::Debug>(result: Result<T, Error>) -> Ended {
    match result {
        Err(Error::Ended(ended)) => ended,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_frame_arrives_with_all_that_was_said_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let (mut producer, path) = producer(&folder, 3);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let mut consumer = join(&mut producer, &path, 2).unwrap();
    assert_eq!((consumer.layout().buffers.len(), consumer.layout().bytes), (3, 4096));
    assert_eq!((&consumer.layout().meta[..], consumer.lease()), (&b"meta"[..], SOON));
    assert!(consumer.recv(Duration::from_millis(1)).unwrap().is_none());

    let buffer = producer.acquire(SOON).unwrap();
    let index = buffer.index();
    rustix::io::pwrite(&producer.layout().buffers[index], b"pixels", 0).unwrap();
    let fence = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    let signal = fence.try_clone().unwrap();
    let info = FrameInfo { bytes: 6, time_ns: Some(7), flags: 8 };
    assert_eq!(producer.publish(buffer, info, Some(fence)).unwrap(), 1);
    assert!(poll(&mut [PollFd::new(&consumer, PollFlags::IN)], None).is_ok());
    let frame = recv(&mut consumer);
    assert_eq!((frame.index(), frame.sequence(), frame.time_ns()), (index, 1, 7));
    assert_eq!((frame.bytes(), frame.flags(), frame.dropped()), (6, 8, 0));
    assert!(matches!(frame.wait(Duration::from_millis(1)), Err(Error::TimedOut { .. })));
    rustix::io::write(&signal, &1_u64.to_ne_bytes()).unwrap();
    frame.wait(SOON).unwrap();
    let mut data = [0; 6];
    rustix::io::pread(frame.buffer(), &mut data[..], 0).unwrap();
    assert_eq!(&data, b"pixels");

    // The fence of the release comes with the buffer.
    let reading = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    frame.release(Some(reading.as_fd())).unwrap();
    assert!(poll(&mut [PollFd::new(&producer, PollFlags::IN)], None).is_ok());
    let all: Vec<_> = (0..3).map(|_| producer.acquire(SOON).unwrap()).collect();
    let fences: Vec<_> = all.iter().map(|buffer| buffer.fences().len()).collect();
    assert_eq!((fences, all[2].index()), (vec![0, 0, 1], index), "buffers without fences come first");
    assert!(matches!(all[2].wait(Duration::from_millis(1)), Err(Error::TimedOut { .. })));
    rustix::io::write(&reading, &1_u64.to_ne_bytes()).unwrap();
    all[2].wait(SOON).unwrap();
    drop(all);

    let before = monotonic_ns();
    publish(&mut producer);
    let frame = recv(&mut consumer);
    assert!((before..=monotonic_ns()).contains(&frame.time_ns()) && frame.fence().is_none());
    drop(frame);
    drop(producer);
    assert_eq!(ended(consumer.recv(SOON)), Ended::Closed);
    assert_eq!(ended(consumer.recv(SOON)), Ended::Closed);
    assert!(!path.exists());
}

#[test]
fn a_slow_consumer_loses_the_oldest_frames_or_makes_the_producer_wait() {
    let folder = tempfile::tempdir().unwrap();
    let (mut dropping, path) = producer(&folder, 4);
    let (mut slow, mut fast) =
        (join(&mut dropping, &path, 1).unwrap(), join(&mut dropping, &path, 1).unwrap());
    for number in 1..=10 {
        assert_eq!(publish(&mut dropping), number);
        assert_eq!(recv(&mut fast).sequence(), number);
    }
    // One was sent; of the others, those that fitted into the other buffers were kept.
    let mut got = Vec::new();
    while let Some(frame) = slow.recv(Duration::from_millis(1)).unwrap() {
        got.push((frame.sequence(), frame.dropped()));
        frame.release(None).unwrap();
        dropping.wait(Duration::from_millis(50)).unwrap();
    }
    assert_eq!(got, [(1, 0), (8, 6), (9, 0), (10, 0)]);
    drop(dropping);

    let options = ProducerOptions { policy: Policy::Wait, lease: SOON, ..ProducerOptions::default() };
    let (mut waiting, path) = bind(&folder, 2, options);
    let mut slow = join(&mut waiting, &path, 1).unwrap();
    assert_eq!((publish(&mut waiting), publish(&mut waiting)), (1, 2));
    let begun = Instant::now();
    let error = waiting.acquire(Duration::from_millis(30)).unwrap_err();
    assert!(matches!(&error, Error::NoBuffer { holders, .. } if holders.len() == 1), "{error}");
    assert!((Duration::from_millis(30)..SOON).contains(&begun.elapsed()));
    let reader = thread::spawn(move || {
        let mut next = || recv(&mut slow).sequence();
        [next(), next()]
    });
    assert_eq!(publish(&mut waiting), 3);
    while !reader.is_finished() {
        waiting.wait(Duration::from_millis(5)).unwrap();
    }
    assert_eq!(reader.join().unwrap(), [1, 2]);
}

#[test]
fn a_consumer_that_hangs_loses_its_part_after_the_lease() {
    let folder = tempfile::tempdir().unwrap();
    let (mut producer, path) =
        bind(&folder, 2, ProducerOptions { lease: LEASE, ..ProducerOptions::default() });
    let mut consumer = join(&mut producer, &path, 2).unwrap();
    publish(&mut producer);
    let frame = recv(&mut consumer);
    // The last frame may be kept as long as it is in nobody's way.
    thread::sleep(2 * LEASE);
    producer.wait(Duration::ZERO).unwrap();
    assert_eq!(producer.consumers().count(), 1);
    // Both buffers at once: this consumer's is needed.
    let _other = producer.acquire(SOON).unwrap();
    let begun = Instant::now();
    producer.acquire(SOON).unwrap();
    assert!(begun.elapsed() < SOON / 2);
    assert_eq!(left(&mut producer).1, Cause::Lease);
    assert_eq!(ended(frame.release(None)), Ended::Lease);
    assert_eq!(ended(consumer.recv(SOON)), Ended::Lease);

    // A fence that never signals, and a connection that says nothing.
    let mut consumer = join(&mut producer, &path, 1).unwrap();
    publish(&mut producer);
    let never = eventfd(0, EventfdFlags::CLOEXEC).unwrap();
    recv(&mut consumer).release(Some(never.as_fd())).unwrap();
    assert_eq!(left(&mut producer).1, Cause::Fence);
    assert_eq!(ended(consumer.recv(SOON)), Ended::Fence);
    let silent = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    connect(&silent, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    assert_eq!(left(&mut producer).1, Cause::Silent);
}

#[test]
fn the_number_of_consumers_is_limited() {
    let folder = tempfile::tempdir().unwrap();
    let (mut producer, path) =
        bind(&folder, 2, ProducerOptions { consumers: 2, ..ProducerOptions::default() });
    let two = [join(&mut producer, &path, 1).unwrap(), join(&mut producer, &path, 1).unwrap()];
    assert_eq!(ended(join(&mut producer, &path, 1)), Ended::Full);
    assert_eq!(left(&mut producer).1, Cause::Full);
    drop(two);
    assert_eq!((left(&mut producer).1, left(&mut producer).1), (Cause::HungUp, Cause::HungUp));
    join(&mut producer, &path, 1).unwrap();
}

#[test]
fn what_cannot_be_served_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let try_bind = |buffers, bytes, meta| {
        let buffers = (0..buffers).map(|_| memory(64)).collect();
        let layout = Layout { buffers, bytes, meta: vec![0; meta] };
        Producer::bind(&path, layout, ProducerOptions::default())
    };
    for (buffers, bytes, meta) in [(0, 64, 0), (65, 64, 0), (1, 0, 0), (1, 64, 4097)] {
        assert!(matches!(try_bind(buffers, bytes, meta), Err(Error::Layout { .. })));
    }
    assert!(matches!(try_bind(2, 65, 0), Err(Error::Short { index: 0, actual: 64, bytes: 65 })));
    assert!(!path.exists());

    let (mut first, mut second) = (try_bind(64, 64, 4096).unwrap(), {
        let layout = Layout { buffers: vec![memory(64)], bytes: 64, meta: Vec::new() };
        Producer::bind(folder.path().join("other"), layout, ProducerOptions::default()).unwrap()
    });
    assert!(matches!(try_bind(1, 64, 0), Err(Error::InUse(_))));
    let consumer = join(&mut first, &path, 1).unwrap();
    assert_eq!((consumer.layout().buffers.len(), consumer.layout().meta.len()), (64, 4096));
    let info = FrameInfo { bytes: 65, ..FrameInfo::default() };
    let buffer = first.acquire(SOON).unwrap();
    assert!(matches!(first.publish(buffer, info, None), Err(Error::TooLong { used: 65, bytes: 64 })));
    let buffer = first.acquire(SOON).unwrap();
    assert!(matches!(second.publish(buffer, FrameInfo::default(), None), Err(Error::OtherProducer)));

    let nobody = folder.path().join("nobody");
    let refused = Consumer::connect(&nobody, 1, Duration::from_millis(10));
    assert!(matches!(refused, Err(Error::NoProducer { .. })));
    // A file that is no socket stays.
    std::fs::write(&nobody, "text").unwrap();
    let layout = layout(1);
    assert!(Producer::bind(&nobody, layout, ProducerOptions::default()).is_err());
    assert_eq!(std::fs::read(&nobody).unwrap(), b"text");
    let long = folder.path().join("x".repeat(120));
    assert!(matches!(Consumer::connect(long, 1, SOON), Err(Error::Path { .. })));
}
