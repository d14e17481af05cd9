//! The consumer's end: frames to read.

use core::time::Duration;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{SocketAddrUnix, connect};

use crate::error::{Ended, Error};
use crate::producer::{Layout, io, new_socket};
use crate::socket;
use crate::wire::{EndMessage, FrameMessage, Hello, Message, Reason, ReleaseMessage, Violation};

/// The consuming end of a ring of buffers. Its descriptor ([`AsFd`]) is readable when a frame waits, or the connection
/// has ended.
#[derive(Debug)]
pub struct Consumer {
    link: Arc<Link>,
}

/// The connection, which lasts until the last frame is released.
#[derive(Debug)]
struct Link {
    socket: OwnedFd,
    layout: Layout,
    lease: Duration,
    ended: OnceLock<Ended>,
}

impl Consumer {
    /// Connects to the producer at `path`. Waits for it, and for its answer, at most for `timeout`. The consumer gets
    /// no more frames than `hold` before it releases one; with 1, the next frame is sent when the last one was
    /// released.
    ///
    /// # Errors
    ///
    /// [`Error::NoProducer`]; [`Error::Ended`] if the producer refuses; [`Error::Producer`], [`Error::Short`],
    /// [`Error::TimedOut`], [`Error::Path`], [`Error::Io`].
    pub fn connect(path: impl AsRef<Path>, hold: u32, timeout: Duration) -> Result<Self, Error> {
        /// Time between two attempts.
        const PAUSE: Duration = Duration::from_millis(5);
        let path = path.as_ref();
        let deadline = socket::deadline(timeout);
        let failed = |errno| Error::Path { call: "connect", path: path.to_owned(), errno };
        let address = SocketAddrUnix::new(path).map_err(failed)?;
        let socket = new_socket()?;
        loop {
            match connect(&socket, &address) {
                Ok(()) => break,
                // It does not run yet, or has too many connections to accept.
                Err(Errno::NOENT | Errno::CONNREFUSED | Errno::AGAIN | Errno::INTR) => {}
                Err(errno) => return Err(failed(errno)),
            }
            if Instant::now() >= deadline {
                return Err(Error::NoProducer { path: path.to_owned(), waited: timeout });
            }
            std::thread::sleep(PAUSE.min(deadline.saturating_duration_since(Instant::now())));
        }
        Self::greet(socket, hold, deadline, timeout)
    }

    /// As [`Consumer::connect`], on a connected socket of type `SOCK_SEQPACKET`.
    ///
    /// # Errors
    ///
    /// As [`Consumer::connect`].
    pub fn on_socket(socket: OwnedFd, hold: u32, timeout: Duration) -> Result<Self, Error> {
        Self::greet(socket, hold, socket::deadline(timeout), timeout)
    }

    fn greet(socket: OwnedFd, hold: u32, deadline: Instant, timeout: Duration) -> Result<Self, Error> {
        // The producer may have refused the connection already, and said why.
        match socket::send(&socket, &Message::Hello(Hello::new(hold)), &[]) {
            Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => {}
            Err(errno) => return Err(Error::Io { call: "sendmsg to the producer", errno }),
        }
        let ready = socket::wait(&socket, PollFlags::IN, deadline).map_err(io("poll of the socket"))?;
        if !ready {
            return Err(Error::TimedOut { what: "the producer did not answer", waited: timeout });
        }
        let Some(packet) = receive(&socket)? else {
            return Err(Error::TimedOut { what: "the producer did not answer", waited: timeout });
        };
        let (bytes, meta, lease) = match packet.parse()? {
            Message::Welcome(welcome, meta) => {
                (welcome.bytes.get(), meta.to_vec(), Duration::from_micros(welcome.lease_us.get()))
            }
            Message::End(end) => return Err(Error::Ended(ended(&end))),
            other => return Err(unexpected(&other)),
        };
        let layout = Layout { buffers: packet.descriptors, bytes, meta };
        layout.check()?;
        Ok(Self { link: Arc::new(Link { socket, layout, lease, ended: OnceLock::new() }) })
    }

    /// The buffers that the producer has sent.
    pub fn layout(&self) -> &Layout {
        &self.link.layout
    }

    /// How long a frame may be kept while the producer has newer ones or needs the buffer.
    pub fn lease(&self) -> Duration {
        self.link.lease
    }

    /// The next frame, or `None` if none came within `timeout`.
    ///
    /// # Errors
    ///
    /// [`Error::Ended`] if the producer has ended, died or taken this consumer's part back; [`Error::Producer`],
    /// [`Error::Io`].
    pub fn recv(&mut self, timeout: Duration) -> Result<Option<Frame>, Error> {
        let deadline = socket::deadline(timeout);
        loop {
            if let Some(packet) = self.link.receive()? {
                return self.frame(packet).map(Some);
            }
            let ready = socket::wait(&self.link.socket, PollFlags::IN, deadline);
            if !ready.map_err(io("poll of the socket"))? {
                return Ok(None);
            }
        }
    }

    /// Whether the frame was received by this consumer.
    #[cfg(feature = "tegra-hcq")]
    pub(crate) fn has_received(&self, frame: &Frame) -> bool {
        Arc::ptr_eq(&self.link, &frame.link)
    }

    fn frame(&self, mut packet: socket::Packet) -> Result<Frame, Error> {
        let message = match packet.parse()? {
            Message::Frame(message) => message,
            Message::End(end) => return Err(self.link.end(ended(&end))),
            other => return Err(unexpected(&other)),
        };
        let (index, bytes) = (message.index.get(), message.bytes.get());
        if index as usize >= self.link.layout.buffers.len() {
            return Err(Violation::Value { field: "the buffer's index", value: index.into() }.into());
        }
        if bytes > self.link.layout.bytes {
            return Err(Violation::Value { field: "the number of bytes", value: bytes }.into());
        }
        Ok(Frame { link: Arc::clone(&self.link), message, fence: packet.descriptors.pop(), released: false })
    }
}

impl AsFd for Consumer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.link.socket.as_fd()
    }
}

impl Link {
    fn receive(&self) -> Result<Option<socket::Packet>, Error> {
        if let Some(ended) = self.ended.get() {
            return Err(Error::Ended(*ended));
        }
        receive(&self.socket).map_err(|error| match error {
            Error::Ended(ended) => self.end(ended),
            other => other,
        })
    }

    /// Notes the end of the connection; the first reason counts.
    fn end(&self, ended: Ended) -> Error {
        Error::Ended(*self.ended.get_or_init(|| ended))
    }

    /// Why the connection, on which nothing can be sent, has ended. Frames that were not received yet are lost.
    fn why_ended(&self) -> Error {
        loop {
            match self.receive() {
                Ok(Some(packet)) => {
                    if let Ok(Message::End(end)) = packet.parse() {
                        return self.end(ended(&end));
                    }
                }
                Ok(None) => return self.end(Ended::Died),
                Err(error) => return error,
            }
        }
    }
}

/// Receives a packet; `None` if none waits. The end of the connection is an error.
fn receive(socket: &OwnedFd) -> Result<Option<socket::Packet>, Error> {
    let mut reset = false;
    loop {
        match socket::receive(socket) {
            Ok(Some(packet)) => return Ok(Some(packet)),
            Ok(None) => return Err(Error::Ended(Ended::Died)),
            Err(Errno::AGAIN) => return Ok(None),
            Err(Errno::INTR) => {}
            // The kernel reports once that the producer has not read everything; its last message may follow.
            Err(Errno::CONNRESET) if !reset => reset = true,
            Err(Errno::CONNRESET | Errno::PIPE) => return Err(Error::Ended(Ended::Died)),
            Err(errno) => return Err(Error::Io { call: "recvmsg from the producer", errno }),
        }
    }
}

fn ended(message: &EndMessage) -> Ended {
    match message.reason() {
        Some(Reason::Closed) => Ended::Closed,
        Some(Reason::Lease) => Ended::Lease,
        Some(Reason::Fence) => Ended::Fence,
        Some(Reason::Violation) => Ended::Violation,
        Some(Reason::Version) => Ended::Version { theirs: message.version.get() },
        Some(Reason::Full) => Ended::Full,
        None => Ended::Other(message.reason.get()),
    }
}

fn unexpected(message: &Message<'_>) -> Error {
    Violation::Kind { kind: message.parts()[0].first().copied().unwrap_or(0).into() }.into()
}

/// A frame that this consumer holds: the producer does not write its buffer. Dropped, it is released without a fence.
#[derive(Debug)]
pub struct Frame {
    link: Arc<Link>,
    message: FrameMessage,
    fence: Option<OwnedFd>,
    released: bool,
}

impl Frame {
    /// Index of the buffer in [`Layout::buffers`].
    pub fn index(&self) -> usize {
        self.message.index.get() as usize
    }

    /// The buffer's descriptor.
    pub fn buffer(&self) -> BorrowedFd<'_> {
        self.link.layout.buffers[self.index()].as_fd()
    }

    /// Number of the frame, from 1. Numbers of dropped frames are left out.
    pub fn sequence(&self) -> u64 {
        self.message.sequence.get()
    }

    /// Time stamp of the producer, `CLOCK_MONOTONIC` in nanoseconds.
    pub fn time_ns(&self) -> u64 {
        self.message.time_ns.get()
    }

    /// Bytes used, at most [`Layout::bytes`].
    pub fn bytes(&self) -> u64 {
        self.message.bytes.get()
    }

    /// Flags of the application.
    pub fn flags(&self) -> u32 {
        self.message.flags.get()
    }

    /// Frames that were dropped since the last one because this consumer was slow.
    pub fn dropped(&self) -> u32 {
        self.message.dropped.get()
    }

    /// The sync-file that signals when the data is ready; `None` if it is ready.
    pub fn fence(&self) -> Option<BorrowedFd<'_>> {
        self.fence.as_ref().map(AsFd::as_fd)
    }

    /// Waits on the CPU until the data is ready, at most for `timeout`.
    ///
    /// # Errors
    ///
    /// [`Error::TimedOut`], [`Error::Io`].
    pub fn wait(&self, timeout: Duration) -> Result<(), Error> {
        let Some(fence) = &self.fence else { return Ok(()) };
        socket::wait_fence(fence, socket::deadline(timeout), timeout)
    }

    /// Gives the buffer back. With a fence, a sync-file, the producer may write it once that has signalled.
    ///
    /// # Errors
    ///
    /// [`Error::Ended`] if the producer did not wait for this release, or is gone: the data may have been overwritten
    /// while it was read. [`Error::Io`].
    pub fn release(mut self, fence: Option<BorrowedFd<'_>>) -> Result<(), Error> {
        self.send_release(fence)
    }

    fn send_release(&mut self, fence: Option<BorrowedFd<'_>>) -> Result<(), Error> {
        // Even if it fails: to drop the frame must not release it without the fence.
        self.released = true;
        let message = ReleaseMessage::new(self.message.index.get(), self.sequence());
        match socket::send(&self.link.socket, &Message::Release(message), fence.as_slice()) {
            Ok(()) => Ok(()),
            Err(Errno::PIPE | Errno::CONNRESET) => Err(self.link.why_ended()),
            Err(errno) => Err(Error::Io { call: "sendmsg to the producer", errno }),
        }
    }
}

impl Drop for Frame {
    fn drop(&mut self) {
        if !self.released {
            // A connection that has ended needs no release.
            let _ = self.send_release(None);
        }
    }
}
