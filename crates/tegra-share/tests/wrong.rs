//! Peers that send rubbish.

use std::path::Path;
use std::time::Duration;

use rustix::io::IoSlice;
use rustix::net::{
    AddressFamily, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, SocketFlags,
    SocketType, connect, sendmsg, socket_with, socketpair,
};
use std::os::fd::{AsFd, OwnedFd};
use tegra_share::wire::{
    EndMessage, FrameMessage, Hello, MAGIC, MAX_MESSAGE, Message, Reason, ReleaseMessage, VERSION, Violation,
    Welcome,
};
use tegra_share::{Cause, Consumer, Ended, Error, Event, FrameInfo};

use super::rules::{SOON, left, memory, producer};
use super::{runner, share};

#[test]
fn arbitrary_packets_break_neither_end() {
    runner::run(&[Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/share")], share::run);
}

fn send(socket: &OwnedFd, bytes: &[u8], descriptors: usize) {
    let memory = memory(1);
    let copies = vec![memory.as_fd(); descriptors];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(80))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if descriptors > 0 {
        assert!(control.push(SendAncillaryMessage::ScmRights(&copies)));
    }
    sendmsg(socket, &[IoSlice::new(bytes)], &mut control, SendFlags::NOSIGNAL).unwrap();
}

fn bytes(message: &Message<'_>) -> Vec<u8> {
    message.parts().concat()
}

/// A message with one byte changed.
fn changed(message: &Message<'_>, at: usize, byte: u8) -> Vec<u8> {
    let mut bytes = bytes(message);
    bytes[at] = byte;
    bytes
}

#[test]
fn a_consumer_that_sends_rubbish_loses_its_part_and_is_named() {
    let hello = Message::Hello(Hello::new(2));
    let release = Message::Release(ReleaseMessage::new(0, 1));
    let frame = |index| bytes(&Message::Release(ReleaseMessage::new(index, 1)));
    let not_held = |index| Violation::NotHeld { index, sequence: 1 };
    let value = |field, value| Violation::Value { field, value };
    let held = "the number of held frames";
    // (first message, its descriptors), (second one, its descriptors), what is wrong.
    type Packet = (Vec<u8>, usize);
    let valid = || (bytes(&hello), 0);
    let table: Vec<(Packet, Option<Packet>, Violation)> = vec![
        (
            (b"GET / HTTP/1.1\r\n\r\n".to_vec(), 0),
            None,
            Violation::Kind { kind: u32::from_le_bytes(*b"GET ") },
        ),
        ((bytes(&hello)[..23].to_vec(), 0), None, Violation::Length { bytes: 23 }),
        ((vec![1], 0), None, Violation::Length { bytes: 1 }),
        ((vec![0; MAX_MESSAGE + 1], 0), None, Violation::Length { bytes: 0 }),
        ((changed(&hello, 4, 9), 0), None, Violation::Version { theirs: 9 }),
        ((changed(&hello, 15, 0), 0), None, Violation::Magic),
        ((changed(&hello, 16, 0), 0), None, value(held, 0)),
        ((changed(&hello, 16, 65), 0), None, value(held, 65)),
        ((bytes(&hello), 3), None, Violation::Descriptors { kind: Hello::KIND, given: 3 }),
        ((bytes(&hello), 70), None, Violation::Length { bytes: 0 }),
        ((bytes(&release), 0), None, Violation::Kind { kind: ReleaseMessage::KIND }),
        (valid(), Some(valid()), Violation::Kind { kind: Hello::KIND }),
        (valid(), Some((changed(&release, 0, 77), 0)), Violation::Kind { kind: 77 }),
        (valid(), Some((frame(9), 0)), not_held(9)),
        (valid(), Some((frame(64), 0)), value("the buffer's index", 64)),
        (valid(), Some((frame(1), 0)), not_held(1)),
        (valid(), Some((bytes(&release)[..15].to_vec(), 0)), Violation::Length { bytes: 15 }),
        (valid(), Some((frame(0), 2)), Violation::Descriptors { kind: ReleaseMessage::KIND, given: 2 }),
    ];
    let folder = tempfile::tempdir().unwrap();
    for (first, second, violation) in table {
        let (mut producer, path) = producer(&folder, 2);
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        connect(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
        send(&socket, &first.0, first.1);
        producer.wait(SOON).unwrap();
        producer.wait(SOON).unwrap();
        if let Some(second) = second {
            let buffer = producer.acquire(SOON).unwrap();
            producer.publish(buffer, FrameInfo::default(), None).unwrap();
            send(&socket, &second.0, second.1);
        }
        let (consumer, cause) = left(&mut producer);
        assert_eq!(cause, Cause::Violation(violation));
        assert_eq!(consumer.pid, i32::try_from(std::process::id()).unwrap());
        assert_eq!(producer.consumers().count(), 0);
        // Its part is free again.
        let all = [producer.acquire(Duration::ZERO).unwrap(), producer.acquire(Duration::ZERO).unwrap()];
        assert_ne!(all[0].index(), all[1].index());
    }
}

#[test]
fn a_consumer_refuses_a_wrong_producer() {
    let welcome = |buffers: u32, bytes: u64, meta: u32| {
        let (kind, version) = (Welcome::KIND.into(), VERSION.into());
        let (buffers, bytes, meta) = (buffers.into(), bytes.into(), meta.into());
        Message::Welcome(
            Welcome { kind, version, magic: MAGIC, buffers, meta, bytes, lease_us: 1.into() },
            b"",
        )
    };
    let frame = |index: u32, bytes: u64| {
        let (kind, sequence, time_ns) = (FrameMessage::KIND.into(), 1.into(), 1.into());
        let (index, bytes, flags, dropped) = (index.into(), bytes.into(), 0.into(), 0.into());
        Message::Frame(FrameMessage { kind, index, sequence, time_ns, bytes, flags, dropped })
    };
    let end = |reason: u32| changed(&Message::End(EndMessage::new(Reason::Closed)), 16, reason as u8);
    let good = (bytes(&welcome(2, 1, 0)), 2);
    let wrong = |violation: Violation| format!("{:?}", Error::Producer(violation));
    let ended = |ended: Ended| format!("{:?}", Error::Ended(ended));
    let short = format!("{:?}", Error::Short { index: 0, actual: 1, bytes: 2 });
    let table = [
        (vec![(bytes(&welcome(2, 2, 0)), 2)], short),
        (
            vec![(bytes(&welcome(2, 1, 0)), 1)],
            wrong(Violation::Descriptors { kind: Welcome::KIND, given: 1 }),
        ),
        (vec![(bytes(&welcome(2, 1, 7)), 2)], wrong(Violation::Length { bytes: 40 })),
        (
            vec![(bytes(&welcome(0, 1, 0)), 0)],
            wrong(Violation::Value { field: "the number of buffers", value: 0 }),
        ),
        (
            vec![(bytes(&welcome(2, 0, 0)), 2)],
            wrong(Violation::Value { field: "the size of the buffers", value: 0 }),
        ),
        (vec![(changed(&welcome(2, 1, 0), 4, 2), 2)], wrong(Violation::Version { theirs: 2 })),
        (vec![(bytes(&frame(0, 1)), 0)], wrong(Violation::Kind { kind: FrameMessage::KIND })),
        (vec![(end(5), 0)], ended(Ended::Version { theirs: VERSION })),
        (vec![(end(99), 0)], ended(Ended::Other(99))),
        (
            vec![good.clone(), (bytes(&frame(2, 1)), 0)],
            wrong(Violation::Value { field: "the buffer's index", value: 2 }),
        ),
        (
            vec![good.clone(), (bytes(&frame(0, 2)), 0)],
            wrong(Violation::Value { field: "the number of bytes", value: 2 }),
        ),
        (
            vec![good.clone(), (bytes(&frame(0, 1)), 2)],
            wrong(Violation::Descriptors { kind: FrameMessage::KIND, given: 2 }),
        ),
        (vec![good.clone(), (bytes(&frame(0, 1))[..39].to_vec(), 0)], wrong(Violation::Length { bytes: 39 })),
        (vec![good.clone(), good.clone()], wrong(Violation::Kind { kind: Welcome::KIND })),
        (vec![good.clone(), (end(2), 0)], ended(Ended::Lease)),
        (vec![good], ended(Ended::Died)),
    ];
    for (packets, expected) in table {
        let flags = SocketFlags::CLOEXEC;
        let (peer, socket) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        packets.iter().for_each(|(bytes, descriptors)| send(&peer, bytes, *descriptors));
        drop(peer);
        let result = Consumer::on_socket(socket, 1, SOON);
        let error = match result {
            Ok(mut consumer) => consumer.recv(SOON).unwrap_err(),
            Err(error) => error,
        };
        assert_eq!(format!("{error:?}"), expected);
    }
}

#[test]
fn each_side_learns_of_another_version() {
    let folder = tempfile::tempdir().unwrap();
    let (mut producer, path) = producer(&folder, 1);
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    connect(&socket, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    // A later version may have more fields.
    send(&socket, &[&changed(&Message::Hello(Hello::new(1)), 4, 2)[..], &[0; 8]].concat(), 0);
    let (_, cause) = left(&mut producer);
    assert_eq!(cause, Cause::Violation(Violation::Version { theirs: 2 }));
    let mut answer = [0; 64];
    let (length, _) = rustix::net::recv(&socket, &mut answer, rustix::net::RecvFlags::empty()).unwrap();
    let Ok(Message::End(end)) = Message::parse(&answer[..length], 0) else { panic!("{answer:?}") };
    assert_eq!((end.reason(), end.version.get()), (Some(Reason::Version), VERSION));
    assert!(matches!(producer.next_event(), None | Some(Event::Joined(_))));
}
