//! The protocol: its messages as fixed little-endian structs, one per packet of a `SOCK_SEQPACKET` socket.
//!
//! | message | from | bytes | descriptors |
//! |---|---|---|---|
//! | [`Hello`] | consumer | 24 | none |
//! | [`Welcome`] and the meta | producer | 40 and up to [`MAX_META`] | one per buffer |
//! | [`FrameMessage`] | producer | 40 | the fence that signals when the data is ready, or none |
//! | [`ReleaseMessage`] | consumer | 16 | the fence after which the buffer may be overwritten, or none |
//! | [`EndMessage`] | producer | 24 | none |
//!
//! A consumer sends one [`Hello`] and receives [`Welcome`] or [`EndMessage`]. The first 16 bytes of these three are the
//! same in all versions of the protocol.

use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Start of each first message.
pub const MAGIC: [u8; 8] = *b"TGRSHARE";
/// Version of the protocol.
pub const VERSION: u32 = 1;
/// Largest number of buffers of a ring, and of consumers of a producer.
pub const MAX_BUFFERS: usize = 64;
/// Largest meta, in bytes.
pub const MAX_META: usize = 4096;
/// Largest message, in bytes.
pub const MAX_MESSAGE: usize = size_of::<Welcome>() + MAX_META;

/// What is wrong with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Violation {
    /// The message is truncated, too long or empty.
    #[error("a message has {bytes} bytes")]
    Length {
        /// Its length in bytes.
        bytes: usize,
    },
    /// The first message does not start with [`MAGIC`].
    #[error("the first message is not of this protocol")]
    Magic,
    /// The peer has another version of the protocol.
    #[error("the peer has version {theirs} of the protocol, this side {VERSION}")]
    Version {
        /// The peer's version.
        theirs: u32,
    },
    /// There is no such message, or not here.
    #[error("message {kind} is unknown or unexpected")]
    Kind {
        /// Its kind.
        kind: u32,
    },
    /// The message has too many or too few descriptors.
    #[error("message {kind} has {given} descriptors")]
    Descriptors {
        /// Its kind.
        kind: u32,
        /// Number of descriptors received.
        given: usize,
    },
    /// A field is out of range.
    #[error("{field} is {value}, out of range")]
    Value {
        /// Name of the field.
        field: &'static str,
        /// Its value.
        value: u64,
    },
    /// The consumer released a frame that it does not hold: twice, or one that it never got.
    #[error("frame {sequence} in buffer {index} was released and is not held")]
    NotHeld {
        /// The buffer.
        index: u32,
        /// The frame.
        sequence: u64,
    },
}

/// Why a producer ended a connection: [`EndMessage::reason`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
#[non_exhaustive]
pub enum Reason {
    /// The producer ended.
    Closed = 1,
    /// The consumer kept a frame longer than the lease.
    Lease = 2,
    /// A fence of the consumer did not signal within the lease.
    Fence = 3,
    /// The consumer sent a wrong message.
    Violation = 4,
    /// The producer has another version: that of the message.
    Version = 5,
    /// The producer has its largest number of consumers.
    Full = 6,
}

impl Reason {
    const ALL: [Self; 6] =
        [Self::Closed, Self::Lease, Self::Fence, Self::Violation, Self::Version, Self::Full];
}

/// The first message of a consumer.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Hello {
    /// [`Hello::KIND`].
    pub kind: U32,
    /// [`VERSION`].
    pub version: U32,
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// Largest number of frames that the consumer holds at once, 1 to [`MAX_BUFFERS`].
    pub hold: U32,
    /// 0.
    pub reserved: U32,
}

/// The answer to [`Hello`]; the meta follows, and the buffers' descriptors are attached.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct Welcome {
    /// [`Welcome::KIND`].
    pub kind: U32,
    /// [`VERSION`].
    pub version: U32,
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// Number of buffers, 1 to [`MAX_BUFFERS`].
    pub buffers: U32,
    /// Length of the meta in bytes, at most [`MAX_META`].
    pub meta: U32,
    /// Size of each buffer in bytes, at least 1.
    pub bytes: U64,
    /// How long the consumer may keep a frame while the producer needs its buffer, in microseconds.
    pub lease_us: U64,
}

/// A frame is in a buffer, which belongs to the consumer until its [`ReleaseMessage`].
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct FrameMessage {
    /// [`FrameMessage::KIND`].
    pub kind: U32,
    /// Index of the buffer.
    pub index: U32,
    /// Number of the frame, from 1; frames that a consumer does not get have numbers, too.
    pub sequence: U64,
    /// Time stamp of the producer, `CLOCK_MONOTONIC` in nanoseconds.
    pub time_ns: U64,
    /// Bytes used, at most the size of the buffer.
    pub bytes: U64,
    /// Flags of the application.
    pub flags: U32,
    /// Frames dropped for this consumer since the last one that it got.
    pub dropped: U32,
}

/// The consumer no longer uses a frame once the attached fence, if any, has signalled.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct ReleaseMessage {
    /// [`ReleaseMessage::KIND`].
    pub kind: U32,
    /// Index of the buffer.
    pub index: U32,
    /// Number of the frame.
    pub sequence: U64,
}

/// The last message of a producer.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct EndMessage {
    /// [`EndMessage::KIND`].
    pub kind: U32,
    /// [`VERSION`].
    pub version: U32,
    /// [`MAGIC`].
    pub magic: [u8; 8],
    /// A [`Reason`].
    pub reason: U32,
    /// 0.
    pub reserved: U32,
}

impl Hello {
    /// Kind of this message.
    pub const KIND: u32 = 1;

    /// The message of a consumer that holds up to `hold` frames.
    pub fn new(hold: u32) -> Self {
        let (kind, version) = (U32::new(Self::KIND), U32::new(VERSION));
        Self { kind, version, magic: MAGIC, hold: U32::new(hold), reserved: U32::ZERO }
    }
}

impl Welcome {
    /// Kind of this message.
    pub const KIND: u32 = 2;
}

impl FrameMessage {
    /// Kind of this message.
    pub const KIND: u32 = 3;
}

impl ReleaseMessage {
    /// Kind of this message.
    pub const KIND: u32 = 4;

    /// The release of frame `sequence` in buffer `index`.
    pub fn new(index: u32, sequence: u64) -> Self {
        Self { kind: U32::new(Self::KIND), index: U32::new(index), sequence: U64::new(sequence) }
    }
}

impl EndMessage {
    /// Kind of this message.
    pub const KIND: u32 = 5;

    /// The end of a connection.
    pub fn new(reason: Reason) -> Self {
        let (kind, version) = (U32::new(Self::KIND), U32::new(VERSION));
        // CAST: the discriminants are the numbers of the protocol.
        Self { kind, version, magic: MAGIC, reason: U32::new(reason as u32), reserved: U32::ZERO }
    }

    /// The reason; `None` for a number that this version does not know.
    pub fn reason(&self) -> Option<Reason> {
        // CAST: as above.
        Reason::ALL.into_iter().find(|reason| *reason as u32 == self.reason.get())
    }
}

/// A valid message.
#[derive(Clone, Copy, Debug)]
pub enum Message<'a> {
    /// The first message of a consumer.
    Hello(Hello),
    /// The answer, with the meta.
    Welcome(Welcome, &'a [u8]),
    /// A frame.
    Frame(FrameMessage),
    /// A frame is no longer used.
    Release(ReleaseMessage),
    /// The end of the connection.
    End(EndMessage),
}

impl<'a> Message<'a> {
    /// Checks the bytes and the number of descriptors of one packet. Values that depend on the ring, such as an index,
    /// are only checked against the protocol's limits.
    ///
    /// # Errors
    ///
    /// The first rule that the message violates.
    pub fn parse(packet: &'a [u8], descriptors: usize) -> Result<Self, Violation> {
        let length = Violation::Length { bytes: packet.len() };
        let (kind, _) = U32::read_from_prefix(packet).map_err(|_| length)?;
        let kind = kind.get();
        if matches!(kind, Hello::KIND | Welcome::KIND | EndMessage::KIND) {
            let (version, magic) = (packet.get(4..8).ok_or(length)?, packet.get(8..16).ok_or(length)?);
            if magic != MAGIC {
                return Err(Violation::Magic);
            }
            let theirs = U32::read_from_bytes(version).map_err(|_| length)?.get();
            // The end of a connection is understood from all versions.
            if theirs != VERSION && kind != EndMessage::KIND {
                return Err(Violation::Version { theirs });
            }
        }
        let (message, allowed) = match kind {
            Hello::KIND => (Self::Hello(read(packet)?), 0..=0),
            Welcome::KIND => {
                let (welcome, meta) = Welcome::read_from_prefix(packet).map_err(|_| length)?;
                if meta.len() != welcome.meta.get() as usize || meta.len() > MAX_META {
                    return Err(length);
                }
                let buffers = welcome.buffers.get() as usize;
                (Self::Welcome(welcome, meta), buffers..=buffers)
            }
            FrameMessage::KIND => (Self::Frame(read(packet)?), 0..=1),
            ReleaseMessage::KIND => (Self::Release(read(packet)?), 0..=1),
            EndMessage::KIND => (Self::End(read(packet)?), 0..=0),
            _ => return Err(Violation::Kind { kind }),
        };
        message.check_values()?;
        if !allowed.contains(&descriptors) {
            return Err(Violation::Descriptors { kind, given: descriptors });
        }
        Ok(message)
    }

    fn check_values(&self) -> Result<(), Violation> {
        let limit = MAX_BUFFERS as u64;
        let range = |field, value: u64, valid: bool| {
            if valid { Ok(()) } else { Err(Violation::Value { field, value }) }
        };
        let count =
            |field, value: U32| range(field, value.get().into(), (1..=limit).contains(&value.get().into()));
        let index =
            |value: U32| range("the buffer's index", value.get().into(), u64::from(value.get()) < limit);
        match self {
            Self::Hello(hello) => count("the number of held frames", hello.hold),
            Self::Welcome(welcome, _) => {
                count("the number of buffers", welcome.buffers)?;
                range("the size of the buffers", welcome.bytes.get(), welcome.bytes.get() > 0)
            }
            Self::Frame(frame) => index(frame.index),
            Self::Release(release) => index(release.index),
            Self::End(_) => Ok(()),
        }
    }

    /// The bytes of the packet, in two parts.
    pub fn parts(&self) -> [&[u8]; 2] {
        match self {
            Self::Hello(hello) => [hello.as_bytes(), &[]],
            Self::Welcome(welcome, meta) => [welcome.as_bytes(), meta],
            Self::Frame(frame) => [frame.as_bytes(), &[]],
            Self::Release(release) => [release.as_bytes(), &[]],
            Self::End(end) => [end.as_bytes(), &[]],
        }
    }
}

fn read<T: FromBytes>(packet: &[u8]) -> Result<T, Violation> {
    T::read_from_bytes(packet).map_err(|_| Violation::Length { bytes: packet.len() })
}
