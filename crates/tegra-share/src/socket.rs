//! Packets with descriptors, and bounded waits.

use core::mem::MaybeUninit;
use core::time::Duration;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::cmsg_space;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

use crate::error::Error;
use crate::wire::{MAX_BUFFERS, MAX_MESSAGE, Message, Violation};

/// A received packet, not yet checked.
pub(crate) struct Packet {
    bytes: Vec<u8>,
    pub(crate) descriptors: Vec<OwnedFd>,
}

impl Packet {
    pub(crate) fn parse(&self) -> Result<Message<'_>, Violation> {
        Message::parse(&self.bytes, self.descriptors.len())
    }
}

/// Sends a message; never blocks.
pub(crate) fn send(
    socket: impl AsFd,
    message: &Message<'_>,
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), Errno> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_BUFFERS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !control.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(Errno::TOOMANYREFS);
    }
    let [head, tail] = message.parts();
    let parts = [IoSlice::new(head), IoSlice::new(tail)];
    sendmsg(socket, &parts, &mut control, SendFlags::NOSIGNAL | SendFlags::DONTWAIT).map(|_| ())
}

/// Receives a packet; never blocks. `None` at the end of the connection. A packet that
/// was cut off is shortened to nothing, which [`Message::parse`] refuses, and its descriptors are closed.
pub(crate) fn receive(socket: impl AsFd) -> Result<Option<Packet>, Errno> {
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(MAX_BUFFERS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut bytes = [0; MAX_MESSAGE];
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, flags)?;
    let mut descriptors = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Ok(Some(Packet { bytes: Vec::new(), descriptors: Vec::new() }));
    }
    if received.bytes == 0 {
        return Ok(None);
    }
    Ok(Some(Packet { bytes: bytes[..received.bytes].to_vec(), descriptors }))
}

/// Waits until `fd` has one of the events or an error, at most until `deadline`. Returns whether it has.
pub(crate) fn wait(fd: impl AsFd, events: PollFlags, deadline: Instant) -> Result<bool, Errno> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        match poll(&mut [PollFd::new(&fd, events)], Some(&timespec(left))) {
            Err(Errno::INTR) => {}
            Ok(0) if Instant::now() < deadline => {}
            result => return Ok(result? > 0),
        }
    }
}

/// A duration for the kernel.
pub(crate) fn timespec(duration: Duration) -> Timespec {
    Timespec::try_from(duration).unwrap_or(Timespec { tv_sec: i64::MAX, tv_nsec: 0 })
}

/// The end of a wait; a time-out beyond the clock's range is a year.
pub(crate) fn deadline(timeout: Duration) -> Instant {
    const YEAR: Duration = Duration::from_secs(365 * 86_400);
    Instant::now() + timeout.min(YEAR)
}

/// Waits on the CPU until a sync-file signals.
pub(crate) fn wait_fence(fence: impl AsFd, deadline: Instant, timeout: Duration) -> Result<(), Error> {
    match wait(fence, PollFlags::IN, deadline) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Error::TimedOut { what: "a fence did not signal", waited: timeout }),
        Err(errno) => Err(Error::Io { call: "poll of a fence", errno }),
    }
}
