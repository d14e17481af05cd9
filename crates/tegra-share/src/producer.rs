//! The producer's end: buffers to write, consumers, events.

use core::fmt;
use core::time::Duration;
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::event::epoll;
use rustix::fs::{FileType, Mode, fstat};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen, socket_with,
    sockopt,
};
use rustix::time::{ClockId, clock_gettime};
use zerocopy::little_endian::{U32, U64};

use crate::error::Error;
use crate::ring::{Published, Ring, Writable};
use crate::socket;
use crate::wire::{
    EndMessage, FrameMessage, MAGIC, MAX_BUFFERS, MAX_META, Message, Reason, VERSION, Violation, Welcome,
};

/// Mark of the listening socket among the epoll events; consumers have the index of their seat.
const LISTENER: u64 = u64::MAX;
/// Events that are kept until they are taken; older ones are discarded.
const EVENTS: usize = 256;

/// The buffers of a ring.
#[derive(Debug)]
pub struct Layout {
    /// The descriptors that consumers get: dma-bufs or memfds, read-only ones if the exporter has such. Up to
    /// [`MAX_BUFFERS`].
    pub buffers: Vec<OwnedFd>,
    /// Size of each in bytes.
    pub bytes: u64,
    /// What the buffers contain, such as the description of a surface, for the application; up to [`MAX_META`] bytes.
    pub meta: Vec<u8>,
}

impl Layout {
    /// Checks the numbers, and the sizes of descriptors that have one.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let Self { buffers, bytes, meta } = self;
        if buffers.is_empty() || buffers.len() > MAX_BUFFERS || *bytes == 0 || meta.len() > MAX_META {
            return Err(Error::Layout { buffers: buffers.len(), bytes: *bytes, meta: meta.len() });
        }
        for (index, buffer) in buffers.iter().enumerate() {
            let file = fstat(buffer).map_err(io("fstat of a buffer"))?;
            // Memory of NVIDIA's desktop driver is a device, whose size is not known here.
            let sized = FileType::from_raw_mode(file.st_mode) != FileType::CharacterDevice;
            let actual = u64::try_from(file.st_size).unwrap_or(0);
            if sized && actual < *bytes {
                return Err(Error::Short { index, actual, bytes: *bytes });
            }
        }
        Ok(())
    }
}

/// What happens to frames for which a consumer is too slow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Policy {
    /// [`Producer::acquire`] drops the oldest frame that no consumer has yet, if it needs the buffer.
    #[default]
    DropOldest,
    /// [`Producer::acquire`] waits until all consumers have released a buffer.
    Wait,
}

/// How a producer serves its consumers.
#[derive(Clone, Debug)]
pub struct ProducerOptions {
    /// What happens to frames for which a consumer is too slow.
    pub policy: Policy,
    /// How long a consumer may keep a frame while the producer has newer ones for it or needs the buffer, how long the
    /// fence of a release may take, and how long the first message of a consumer may take.
    pub lease: Duration,
    /// Largest number of consumers, at most [`MAX_BUFFERS`].
    pub consumers: usize,
    /// Rights of the socket's file, less the umask: 0o600 for processes of the same user, 0o660 for the group too.
    pub mode: u32,
}

impl Default for ProducerOptions {
    /// [`Policy::DropOldest`], a lease of one second, 16 consumers of the same user.
    fn default() -> Self {
        Self { policy: Policy::default(), lease: Duration::from_secs(1), consumers: 16, mode: 0o600 }
    }
}

/// What is known of a frame beside its data.
#[derive(Clone, Copy, Debug, Default)]
pub struct FrameInfo {
    /// Bytes used.
    pub bytes: u64,
    /// Time stamp, `CLOCK_MONOTONIC` in nanoseconds; `None` for the time of [`Producer::publish`].
    pub time_ns: Option<u64>,
    /// Flags of the application.
    pub flags: u32,
}

/// A consumer, as a producer names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConsumerId {
    /// Number of the connection, from 1; never used twice.
    pub number: u64,
    /// The process that connected, as the kernel reports it; 0 if it is outside of the producer's PID namespace.
    pub pid: i32,
}

impl fmt::Display for ConsumerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (process {})", self.number, self.pid)
    }
}

/// A change among the consumers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A consumer gets all frames from now on.
    Joined(ConsumerId),
    /// A consumer has lost its part, and its buffers are free.
    Left {
        /// The consumer.
        consumer: ConsumerId,
        /// Why.
        cause: Cause,
    },
}

/// Why a consumer has lost its part.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// It closed the connection, or its process has ended.
    #[error("the connection was closed")]
    HungUp,
    /// It kept a frame longer than the lease.
    #[error("a frame was kept longer than the lease")]
    Lease,
    /// The fence of a release did not signal within the lease.
    #[error("a fence did not signal within the lease")]
    Fence,
    /// It sent no valid first message within the lease.
    #[error("no first message came within the lease")]
    Silent,
    /// It sent a wrong message.
    #[error("{0}")]
    Violation(#[from] Violation),
    /// The producer has its largest number of consumers.
    #[error("the producer has its largest number of consumers")]
    Full,
}

impl Cause {
    /// What the consumer gets to know.
    fn reason(&self) -> Option<Reason> {
        Some(match self {
            Self::HungUp => return None,
            Self::Lease => Reason::Lease,
            Self::Fence => Reason::Fence,
            Self::Violation(Violation::Version { .. }) => Reason::Version,
            Self::Violation(_) | Self::Silent => Reason::Violation,
            Self::Full => Reason::Full,
        })
    }
}

#[derive(Debug)]
struct Peer {
    socket: OwnedFd,
    id: ConsumerId,
    /// When it connected, until its first message has come.
    silent_since: Option<Instant>,
}

/// The producing end of a ring of buffers.
///
/// Consumers are served during its calls: [`acquire`](Self::acquire), [`publish`](Self::publish) and
/// [`wait`](Self::wait). Its descriptor ([`AsFd`]) is readable when something is to be served.
#[derive(Debug)]
pub struct Producer {
    layout: Layout,
    options: ProducerOptions,
    ring: Ring,
    epoll: OwnedFd,
    listener: OwnedFd,
    /// The socket's file, with device and inode.
    file: Option<(PathBuf, (u64, u64))>,
    peers: Vec<Option<Peer>>,
    events: VecDeque<Event>,
    connections: u64,
}

impl Producer {
    /// Serves consumers at a path, which must not exist, or be the socket of a producer that has died.
    ///
    /// # Errors
    ///
    /// [`Error::InUse`], [`Error::Layout`], [`Error::Short`], [`Error::Path`], [`Error::Io`].
    pub fn bind(path: impl AsRef<Path>, layout: Layout, options: ProducerOptions) -> Result<Self, Error> {
        let path = path.as_ref();
        layout.check()?;
        let failed = |call| move |errno| Error::Path { call, path: path.to_owned(), errno };
        let address = SocketAddrUnix::new(path).map_err(failed("bind"))?;
        let listener = new_socket()?;
        // The kernel gives these rights, less the umask, to the file that it makes.
        rustix::fs::fchmod(&listener, Mode::from_raw_mode(options.mode)).map_err(failed("fchmod"))?;
        match bind(&listener, &address) {
            Err(Errno::ADDRINUSE) => {
                // Only a socket that no process serves refuses a connection; no other file is removed.
                match connect(new_socket()?, &address) {
                    Err(Errno::CONNREFUSED) if is_socket(path) => {
                        rustix::fs::unlink(path).map_err(failed("unlink"))?;
                        bind(&listener, &address).map_err(failed("bind"))?;
                    }
                    _ => return Err(Error::InUse(path.to_owned())),
                }
            }
            result => result.map_err(failed("bind"))?,
        }
        let file =
            std::fs::symlink_metadata(path).ok().map(|file| (path.to_owned(), (file.dev(), file.ino())));
        // A smaller queue than the largest number of consumers would only make them try again.
        listen(&listener, i32::try_from(MAX_BUFFERS).unwrap_or(i32::MAX)).map_err(failed("listen"))?;
        let mut producer = Self::on_listener(listener, layout, options)?;
        producer.file = file;
        Ok(producer)
    }

    /// Serves consumers at a listening socket of type `SOCK_SEQPACKET`, such as one from systemd.
    ///
    /// # Errors
    ///
    /// [`Error::Layout`], [`Error::Short`], [`Error::Io`].
    pub fn on_listener(listener: OwnedFd, layout: Layout, options: ProducerOptions) -> Result<Self, Error> {
        layout.check()?;
        rustix::io::ioctl_fionbio(&listener, true).map_err(io("ioctl FIONBIO of a socket"))?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(io("epoll_create1"))?;
        let mark = epoll::EventData::new_u64(LISTENER);
        epoll::add(&epoll, &listener, mark, epoll::EventFlags::IN).map_err(io("epoll_ctl"))?;
        let ring = Ring::new(layout.buffers.len());
        let (peers, events) = (Vec::new(), VecDeque::new());
        Ok(Self { layout, options, ring, epoll, listener, file: None, peers, events, connections: 0 })
    }

    /// The buffers.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Consumers that get frames.
    pub fn consumers(&self) -> impl Iterator<Item = ConsumerId> {
        self.peers.iter().flatten().filter(|peer| peer.silent_since.is_none()).map(|peer| peer.id)
    }

    /// The oldest event that was not taken yet. The last 256 are kept.
    pub fn next_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// Serves consumers, and returns a buffer that none of them uses, except for its [fences](Writable::fences). Waits
    /// at most for `timeout`. Several buffers may be acquired at a time.
    ///
    /// # Errors
    ///
    /// [`Error::NoBuffer`] after the time-out, [`Error::Io`].
    pub fn acquire(&mut self, timeout: Duration) -> Result<Writable, Error> {
        let deadline = socket::deadline(timeout);
        self.serve(Duration::ZERO, false)?;
        loop {
            let now = Instant::now();
            if let Some(buffer) = self.ring.acquire(self.options.policy == Policy::DropOldest, now) {
                return Ok(buffer);
            }
            if now >= deadline {
                let holders = self.ring.holders().filter_map(|seat| Some(self.peers.get(seat)?.as_ref()?.id));
                return Err(Error::NoBuffer { waited: timeout, holders: holders.collect() });
            }
            self.serve(self.step().min(deadline - now), true)?;
        }
    }

    /// Sends a frame to all consumers, and returns its number. `fence` is a sync-file that signals when the data is
    /// ready; without it, the data is ready now. A consumer that holds as many frames as it may gets this one after it
    /// has released one, unless it is dropped before.
    ///
    /// # Errors
    ///
    /// [`Error::TooLong`]; [`Error::OtherProducer`]; [`Error::Io`]: the frame was published then.
    pub fn publish(
        &mut self,
        buffer: Writable,
        info: FrameInfo,
        fence: Option<OwnedFd>,
    ) -> Result<u64, Error> {
        let FrameInfo { bytes, time_ns, flags } = info;
        if bytes > self.layout.bytes {
            return Err(Error::TooLong { used: bytes, bytes: self.layout.bytes });
        }
        let time_ns = time_ns.unwrap_or_else(monotonic_ns);
        let frame = Published { sequence: 0, time_ns, bytes, flags, fence };
        let sequence = self.ring.publish(buffer, frame, Instant::now())?;
        self.serve(Duration::ZERO, false)?;
        Ok(sequence)
    }

    /// Whether the buffer was acquired from this producer.
    #[cfg(feature = "tegra-hcq")]
    pub(crate) fn has_given(&self, buffer: &Writable) -> bool {
        self.ring.has_given(buffer)
    }

    /// Serves consumers: waits until something is to be done, at most for `timeout`, and does it.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]
    pub fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
        self.serve(timeout, false)
    }

    /// Serves consumers until they have received and released all frames, at most for `timeout`. Returns whether they
    /// have.
    ///
    /// # Errors
    ///
    /// [`Error::Io`]
    pub fn flush(&mut self, timeout: Duration) -> Result<bool, Error> {
        let deadline = socket::deadline(timeout);
        self.serve(Duration::ZERO, false)?;
        while self.ring.has_readers() && Instant::now() < deadline {
            let left = deadline.saturating_duration_since(Instant::now());
            self.serve(left.min(self.step()), false)?;
        }
        Ok(!self.ring.has_readers())
    }

    /// Longest wait for messages while leases run, which end without one.
    fn step(&self) -> Duration {
        (self.options.lease / 8).clamp(Duration::from_millis(1), Duration::from_millis(100))
    }

    fn serve(&mut self, timeout: Duration, needs_buffer: bool) -> Result<(), Error> {
        const NONE: epoll::Event =
            epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
        let mut ready = [NONE; MAX_BUFFERS + 1];
        let count = match epoll::wait(&self.epoll, &mut ready, Some(&socket::timespec(timeout))) {
            Err(Errno::INTR) => 0,
            result => result.map_err(io("epoll_wait"))?,
        };
        let now = Instant::now();
        for event in &ready[..count] {
            match event.data.u64() {
                LISTENER => self.accept(now)?,
                // CAST: the index of a vector.
                seat => self.receive(seat as usize, now),
            }
        }
        self.end_leases(needs_buffer, now);
        (0..self.peers.len()).for_each(|seat| self.send_frames(seat, now));
        Ok(())
    }

    /// Accepts the connections that wait, at most as many as there may be at a time.
    fn accept(&mut self, now: Instant) -> Result<(), Error> {
        for _ in 0..MAX_BUFFERS {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = match accept_with(&self.listener, flags) {
                Err(Errno::AGAIN | Errno::CONNABORTED | Errno::INTR) => return Ok(()),
                result => result.map_err(io("accept4"))?,
            };
            self.connections += 1;
            let pid = sockopt::socket_peercred(&socket).map_or(0, |peer| peer.pid.as_raw_pid());
            let id = ConsumerId { number: self.connections, pid };
            let seat = self.peers.iter().position(Option::is_none).unwrap_or(self.peers.len());
            let peer = Peer { socket, id, silent_since: Some(now) };
            if seat >= self.options.consumers.min(MAX_BUFFERS) {
                self.end(&peer, Cause::Full);
                continue;
            }
            let mark = epoll::EventData::new_u64(seat as u64);
            epoll::add(&self.epoll, &peer.socket, mark, epoll::EventFlags::IN).map_err(io("epoll_ctl"))?;
            if seat == self.peers.len() {
                self.peers.push(None);
            }
            self.peers[seat] = Some(peer);
        }
        Ok(())
    }

    /// Reads what a consumer has sent: each message is either owed by it or ends it, so there is an end.
    fn receive(&mut self, seat: usize, now: Instant) {
        while let Some(Some(peer)) = self.peers.get(seat) {
            let cause = match socket::receive(&peer.socket) {
                Err(Errno::AGAIN) => return,
                Err(Errno::INTR) => continue,
                Ok(None) | Err(_) => Cause::HungUp,
                Ok(Some(packet)) => match self.handle(seat, packet, now) {
                    Ok(()) => continue,
                    Err(cause) => cause,
                },
            };
            self.leave(seat, cause, now);
        }
    }

    fn handle(&mut self, seat: usize, mut packet: socket::Packet, now: Instant) -> Result<(), Cause> {
        let Some(Some(peer)) = self.peers.get_mut(seat) else { return Ok(()) };
        match (packet.parse()?, peer.silent_since) {
            (Message::Hello(hello), Some(_)) => {
                let welcome = Welcome {
                    kind: U32::new(Welcome::KIND),
                    version: U32::new(VERSION),
                    magic: MAGIC,
                    // CAST: checked when the producer was made.
                    buffers: U32::new(self.layout.buffers.len() as u32),
                    meta: U32::new(self.layout.meta.len() as u32),
                    bytes: U64::new(self.layout.bytes),
                    lease_us: U64::new(u64::try_from(self.options.lease.as_micros()).unwrap_or(u64::MAX)),
                };
                let descriptors: Vec<BorrowedFd<'_>> = self.layout.buffers.iter().map(AsFd::as_fd).collect();
                let message = Message::Welcome(welcome, &self.layout.meta);
                // The first packet of a connection: there is space.
                socket::send(&peer.socket, &message, &descriptors).map_err(|_| Cause::HungUp)?;
                peer.silent_since = None;
                // CAST: checked by the parser.
                self.ring.join(seat, hello.hold.get() as usize);
                let joined = Event::Joined(peer.id);
                self.note(joined);
                Ok(())
            }
            (Message::Release(release), None) => {
                let frame = (release.index.get(), release.sequence.get());
                Ok(self.ring.release(seat, frame, packet.descriptors.pop(), now)?)
            }
            (message, _) => {
                let kind = message.parts()[0].first().copied().unwrap_or(0).into();
                Err(Violation::Kind { kind }.into())
            }
        }
    }

    fn end_leases(&mut self, needs_buffer: bool, now: Instant) {
        let lease = self.options.lease;
        while let Some(seat) = self.ring.overdue(lease, needs_buffer, now) {
            self.leave(seat, Cause::Lease, now);
        }
        while let Some(seat) = self.ring.stuck(lease, now) {
            self.leave(seat, Cause::Fence, now);
        }
        let late =
            |peer: &Peer| peer.silent_since.is_some_and(|since| now.saturating_duration_since(since) > lease);
        while let Some(seat) = self.peers.iter().position(|peer| peer.as_ref().is_some_and(late)) {
            self.leave(seat, Cause::Silent, now);
        }
    }

    fn send_frames(&mut self, seat: usize, now: Instant) {
        while let (Some((index, frame, dropped)), Some(Some(peer))) =
            (self.ring.next(seat), self.peers.get(seat))
        {
            let message = FrameMessage {
                kind: U32::new(FrameMessage::KIND),
                // CAST: below `MAX_BUFFERS`.
                index: U32::new(index as u32),
                sequence: U64::new(frame.sequence),
                time_ns: U64::new(frame.time_ns),
                bytes: U64::new(frame.bytes),
                flags: U32::new(frame.flags),
                dropped: U32::new(dropped),
            };
            let fence = frame.fence.as_ref().map(AsFd::as_fd);
            match socket::send(&peer.socket, &Message::Frame(message), fence.as_slice()) {
                Ok(()) => self.ring.sent(seat, now),
                // The consumer does not read: the frame waits, as one beyond the number that it may hold.
                Err(Errno::AGAIN | Errno::NOBUFS | Errno::NOMEM | Errno::TOOMANYREFS | Errno::INTR) => return,
                Err(_) => return self.leave(seat, Cause::HungUp, now),
            }
        }
    }

    fn leave(&mut self, seat: usize, cause: Cause, now: Instant) {
        let Some(peer) = self.peers.get_mut(seat).and_then(Option::take) else { return };
        self.ring.leave(seat, cause == Cause::HungUp, now);
        self.end(&peer, cause);
    }

    /// Says why a connection ends; the caller closes it.
    fn end(&mut self, peer: &Peer, cause: Cause) {
        if let Some(reason) = cause.reason() {
            // A consumer that cannot be told sees the connection end.
            let _ = socket::send(&peer.socket, &Message::End(EndMessage::new(reason)), &[]);
        }
        self.note(Event::Left { consumer: peer.id, cause });
    }

    fn note(&mut self, event: Event) {
        if self.events.len() == EVENTS {
            self.events.pop_front();
        }
        self.events.push_back(event);
    }
}

impl AsFd for Producer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        for peer in self.peers.iter().flatten() {
            // As in `end`.
            let _ = socket::send(&peer.socket, &Message::End(EndMessage::new(Reason::Closed)), &[]);
        }
        if let Some((path, identity)) = &self.file
            && std::fs::symlink_metadata(path).is_ok_and(|file| (file.dev(), file.ino()) == *identity)
        {
            // A file that stays is replaced by the next producer.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// A new socket of the protocol's type.
pub(crate) fn new_socket() -> Result<OwnedFd, Error> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).map_err(io("socket"))
}

pub(crate) fn io(call: &'static str) -> impl Fn(Errno) -> Error {
    move |errno| Error::Io { call, errno }
}

/// `CLOCK_MONOTONIC` in nanoseconds, as the time stamps of frames have it.
pub fn monotonic_ns() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    // CAST: the clock starts at 0, and nanoseconds are below 10^9.
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

fn is_socket(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;
    std::fs::symlink_metadata(path).is_ok_and(|file| file.file_type().is_socket())
}
