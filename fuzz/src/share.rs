//! Packets from a wrong peer, for both ends of tegra-share.
//!
//! The first byte selects the end. Against a producer, the bytes are calls of it, and packets with descriptors of two
//! consumers; against a consumer, they are packets of its producer. For any input, a packet that is accepted is encoded
//! to the same bytes, no end panics or waits, and after the peers are gone all buffers are free.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::io::IoSlice;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType, bind, connect, getsockname, listen, sendmsg, socket_with, socketpair,
};
use tegra_share::wire::{Hello, Message, ReleaseMessage};
use tegra_share::{Consumer, Event, FrameInfo, Layout, Policy, Producer, ProducerOptions};

const BUFFERS: usize = 3;
const BYTES: u64 = 64;
/// Most steps of an input.
const STEPS: usize = 64;

/// The bytes of a program, consumed from the front; zeros after the end.
struct Program<'a>(&'a [u8]);

impl<'a> Program<'a> {
    fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    fn take(&mut self, count: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken
    }

    /// A packet and its number of descriptors.
    fn packet(&mut self) -> (&'a [u8], usize) {
        let (length, descriptors) = (usize::from(self.byte()), usize::from(self.byte() % 6));
        (self.take(length), descriptors)
    }
}

fn new_socket() -> OwnedFd {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("a socket")
}

fn memory() -> OwnedFd {
    let memory = memfd_create("fuzz", MemfdFlags::CLOEXEC).expect("a memfd");
    ftruncate(&memory, BYTES).expect("it grows");
    memory
}

/// Sends a packet with copies of a descriptor, and checks that it is encoded to the same bytes if it is valid.
fn send(socket: &OwnedFd, bytes: &[u8], descriptors: usize, memory: &OwnedFd) {
    if let Ok(message) = Message::parse(bytes, descriptors) {
        assert_eq!(message.parts().concat(), bytes, "another packet");
    }
    let copies: Vec<BorrowedFd<'_>> = (0..descriptors).map(|_| memory.as_fd()).collect();
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if descriptors > 0 {
        assert!(control.push(SendAncillaryMessage::ScmRights(&copies)), "there is space");
    }
    // The peer may have closed the connection.
    let _ = sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
}

/// Attacks an end with an input. Returns the behaviour for the fuzzer.
pub(crate) fn run(data: &[u8]) -> BTreeSet<u64> {
    let mut behaviours = BTreeSet::new();
    let mut new = |behaviour: String| {
        let mut hasher = DefaultHasher::new();
        // The kind of result, without its numbers.
        behaviour.replace(|c: char| c.is_ascii_digit(), "").hash(&mut hasher);
        behaviours.insert(hasher.finish());
    };
    let mut program = Program(data);
    if program.byte().is_multiple_of(2) {
        attack_producer(&mut program, &mut new);
    } else {
        attack_consumer(&mut program, &mut new);
    }
    behaviours
}

fn attack_producer(program: &mut Program<'_>, new: &mut impl FnMut(String)) {
    let (listener, memory) = (new_socket(), memory());
    // Without a name, the kernel chooses an abstract one.
    bind(&listener, &SocketAddrUnix::new_unnamed()).expect("a free name");
    listen(&listener, 8).expect("it listens");
    let address = SocketAddrUnix::try_from(getsockname(&listener).expect("a name")).expect("a Unix socket");
    let layout =
        Layout { buffers: (0..BUFFERS).map(|_| self::memory()).collect(), bytes: BYTES, meta: Vec::new() };
    let policy = if program.byte().is_multiple_of(2) { Policy::DropOldest } else { Policy::Wait };
    let options = ProducerOptions { policy, ..ProducerOptions::default() };
    let mut producer = Producer::on_listener(listener, layout, options).expect("a valid layout");
    let mut peers: [Option<OwnedFd>; 2] = [None, None];
    let mut written = None;
    for _ in 0..STEPS {
        if program.0.is_empty() {
            break;
        }
        let step = program.byte();
        let peer = &mut peers[usize::from(step >> 7)];
        match (step % 8, &peer) {
            (0, _) => {
                let socket = new_socket();
                // The queue of connections may be full.
                *peer = connect(&socket, &address).is_ok().then_some(socket);
            }
            (1, Some(socket)) => {
                send(socket, Message::Hello(Hello::new(program.byte().into())).parts()[0], 0, &memory);
            }
            (2 | 3, Some(socket)) => {
                let release = ReleaseMessage::new(program.byte().into(), program.byte().into());
                let message = Message::Release(release);
                send(socket, message.parts()[0], usize::from(program.byte() % 3), &memory);
            }
            (4, Some(socket)) => {
                let (bytes, descriptors) = program.packet();
                send(socket, bytes, descriptors, &memory);
            }
            (5, _) => *peer = None,
            (6, _) => written = producer.acquire(Duration::ZERO).ok(),
            _ => {
                if let Some(buffer) = written.take() {
                    let info = FrameInfo { bytes: (step % 16).into(), ..FrameInfo::default() };
                    producer.publish(buffer, info, None).expect("a valid frame");
                }
            }
        }
        producer.wait(Duration::ZERO).expect("no failed call");
        while let Some(event) = producer.next_event() {
            match event {
                Event::Left { cause, .. } => new(format!("{cause:?}")),
                other => new(format!("{other:?}")),
            }
        }
    }
    new(format!("{} consumers", ["no", "one", "two"][producer.consumers().count().min(2)]));
    drop((peers, written));
    producer.wait(Duration::ZERO).expect("no failed call");
    let all: Vec<_> = (0..BUFFERS).map(|_| producer.acquire(Duration::ZERO).expect("all are free")).collect();
    assert!(producer.acquire(Duration::ZERO).is_err() && producer.consumers().next().is_none(), "{all:?}");
}

fn attack_consumer(program: &mut Program<'_>, new: &mut impl FnMut(String)) {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("a pair");
    let (producer, memory) = (pair.0, memory());
    for _ in 0..STEPS {
        if program.0.is_empty() {
            break;
        }
        let (bytes, descriptors) = program.packet();
        send(&producer, bytes, descriptors, &memory);
    }
    let hangs_up = program.byte().is_multiple_of(2);
    let producer = if hangs_up { None } else { Some(producer) };
    let mut consumer = match Consumer::on_socket(pair.1, 2, Duration::ZERO) {
        Ok(consumer) => consumer,
        Err(error) => return new(format!("{error:?}")),
    };
    for _ in 0..STEPS {
        let received = consumer.recv(Duration::ZERO);
        if let Ok(Some(frame)) = &received {
            let layout = consumer.layout();
            assert!(frame.index() < layout.buffers.len() && frame.bytes() <= layout.bytes, "{frame:?}");
        }
        new(match received {
            Ok(frame) => format!("{:?}", frame.map(|frame| frame.fence().is_some())),
            Err(error) => format!("{error:?}"),
        });
    }
    drop(producer);
}
