//! Pushbuffer words: headers, the encoder's raw layer, and the decoder.
//!
//! A pushbuffer is a stream of headers. A method header carries a mode, a subchannel, a method
//! address and a count of data words that follow it; the immediate form carries 13 bits of data in
//! place of the count. A few words control the stream itself. Bit layout: `dma_formats` of
//! `clc56f.h` and `clc76f.h`.
//!
//! * [`Header`] encodes and decodes one header.
//! * [`Encoder`] writes methods to a [`Sink`] without allocating; the driver's usual commands
//!   (semaphores, launches, copies) are its methods too.
//! * [`MethodStream`] is the host engine's view: fed word by word, it says which method is written
//!   with what. A method's data may continue in the next segment, so its state outlives one.

use alloc::vec::Vec;
use core::fmt;

use crate::error::{Error, FieldError, Full};
use crate::method::Method;

/// Highest method address, in bytes.
pub const MAX_METHOD_ADDRESS: u32 = 0x3ffc;
/// Most data words behind one header.
pub const MAX_COUNT: u32 = (1 << 13) - 1;
/// Largest data of an immediate method.
pub const MAX_IMMEDIATE: u32 = (1 << 13) - 1;
/// The word that does nothing.
pub const NOP: u32 = 0;
/// Methods below this byte offset belong to the host engine, whatever the subchannel.
pub const HOST_METHODS_END: u32 = 0x100;

/// Which engine a method goes to; fixed by the hardware on the graphics and compute runlist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Subchannel(u8);

impl Subchannel {
    /// Where host methods are sent by habit; the host ignores their subchannel.
    pub const HOST: Self = Self(0);
    /// 3D.
    pub const THREE_D: Self = Self(0);
    /// Compute.
    pub const COMPUTE: Self = Self(1);
    /// Inline-to-memory.
    pub const INLINE_TO_MEMORY: Self = Self(2);
    /// 2D.
    pub const TWO_D: Self = Self(3);
    /// Copy engine.
    pub const COPY: Self = Self(4);

    /// Subchannel 0 to 7.
    ///
    /// # Errors
    ///
    /// [`Error::Subchannel`] above 7.
    pub const fn new(index: u8) -> Result<Self, Error> {
        if index > 7 { Err(Error::Subchannel { index }) } else { Ok(Self(index)) }
    }

    /// 0 to 7.
    #[must_use]
    pub const fn index(self) -> u8 {
        self.0
    }

    const fn from_header(word: u32) -> Self {
        Self((word >> 13 & 7) as u8)
    }
}

/// Which address each data word of a header goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Each 4 bytes after the one before.
    Incrementing,
    /// All to the same.
    NonIncrementing,
    /// The first to the address, all others to the address plus 4.
    IncrementOnce,
}

impl Mode {
    const fn bits(self) -> u32 {
        match self {
            Self::Incrementing => 1,
            Self::NonIncrementing => 3,
            Self::IncrementOnce => 5,
        }
    }

    /// Address of data word `index`, `None` past [`MAX_METHOD_ADDRESS`].
    const fn address(self, base: u32, index: u32) -> Option<u32> {
        let address = match self {
            Self::Incrementing => base + 4 * index,
            Self::NonIncrementing => base,
            Self::IncrementOnce => base + if index == 0 { 0 } else { 4 },
        };
        if address > MAX_METHOD_ADDRESS { None } else { Some(address) }
    }
}

/// What a word in header position means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// The zero word: nothing.
    Nop,
    /// `count` data words follow.
    Methods {
        /// How addresses proceed.
        mode: Mode,
        /// Target engine.
        subchannel: Subchannel,
        /// Byte offset of the first method.
        address: u32,
        /// Number of data words, 0 to [`MAX_COUNT`]. With 0 the header does nothing.
        count: u32,
    },
    /// One method with its data in the header.
    Immediate {
        /// Target engine.
        subchannel: Subchannel,
        /// Byte offset of the method.
        address: u32,
        /// Data, at most [`MAX_IMMEDIATE`].
        data: u32,
    },
    /// Sets the active sub-device mask (12 bits).
    SetSubdeviceMask(u16),
    /// Stores a sub-device mask for later use (12 bits).
    StoreSubdeviceMask(u16),
    /// Makes the stored sub-device mask the active one.
    UseSubdeviceMask,
    /// The rest of the segment is dropped.
    EndSegment,
}

/// What is wrong with a word in header position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderFault {
    /// Mode 0 or 2 with the shape of NV04-style headers, which this hardware calls obsolete.
    Obsolete,
    /// Mode 6.
    ReservedMode,
    /// A bit without meaning is set.
    ReservedBits,
}

impl fmt::Display for HeaderFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Obsolete => "obsolete header format",
            Self::ReservedMode => "reserved mode 6",
            Self::ReservedBits => "reserved bits are set",
        })
    }
}

fn check_address(address: u32) -> Result<(), Error> {
    if address > MAX_METHOD_ADDRESS || !address.is_multiple_of(4) {
        return Err(Error::MethodAddress { address });
    }
    Ok(())
}

fn check_field(field: &'static str, value: u32, bits: u32) -> Result<(), Error> {
    if value >> bits != 0 {
        return Err(FieldError::TooWide { field, value: u64::from(value), bits }.into());
    }
    Ok(())
}

impl Header {
    /// The header word.
    ///
    /// # Errors
    ///
    /// [`Error::MethodAddress`] for an address that a header cannot carry, [`Error::Field`] for a
    /// count, data or mask that is too wide, [`Error::MethodOverflow`] when an incrementing run
    /// would pass the last address.
    pub fn encode(&self) -> Result<u32, Error> {
        match *self {
            Self::Nop => Ok(NOP),
            Self::Methods { mode, subchannel, address, count } => {
                check_address(address)?;
                check_field("METHOD_COUNT", count, 13)?;
                let word = mode.bits() << 29 | count << 16 | u32::from(subchannel.0) << 13 | address >> 2;
                if count > 0 && mode.address(address, count - 1).is_none() {
                    let reachable = (MAX_METHOD_ADDRESS - address) / 4 + 1;
                    return Err(Error::MethodOverflow { header: word, index: reachable });
                }
                Ok(word)
            }
            Self::Immediate { subchannel, address, data } => {
                check_address(address)?;
                check_field("IMMD_DATA", data, 13)?;
                Ok(4 << 29 | data << 16 | u32::from(subchannel.0) << 13 | address >> 2)
            }
            Self::SetSubdeviceMask(mask) => {
                check_field("SUBDEVICE_MASK", u32::from(mask), 12)?;
                Ok(1 << 16 | u32::from(mask) << 4)
            }
            Self::StoreSubdeviceMask(mask) => {
                check_field("SUBDEVICE_MASK", u32::from(mask), 12)?;
                Ok(2 << 16 | u32::from(mask) << 4)
            }
            Self::UseSubdeviceMask => Ok(3 << 16),
            Self::EndSegment => Ok(7 << 29),
        }
    }

    /// Takes a word in header position apart.
    ///
    /// # Errors
    ///
    /// [`Error::Header`] when it is no header that this hardware takes.
    pub fn decode(word: u32) -> Result<Self, Error> {
        let fail = |fault| Err(Error::Header { word, fault });
        let mode = match word >> 29 {
            0 => return Self::decode_control(word),
            1 => Mode::Incrementing,
            3 => Mode::NonIncrementing,
            5 => Mode::IncrementOnce,
            4 => {
                if word & 1 << 12 != 0 {
                    return fail(HeaderFault::ReservedBits);
                }
                return Ok(Self::Immediate {
                    subchannel: Subchannel::from_header(word),
                    address: (word & 0xfff) << 2,
                    data: word >> 16 & MAX_IMMEDIATE,
                });
            }
            7 if word << 3 == 0 => return Ok(Self::EndSegment),
            7 => return fail(HeaderFault::ReservedBits),
            2 => return fail(HeaderFault::Obsolete),
            _ => return fail(HeaderFault::ReservedMode),
        };
        if word & 1 << 12 != 0 {
            return fail(HeaderFault::ReservedBits);
        }
        Ok(Self::Methods {
            mode,
            subchannel: Subchannel::from_header(word),
            address: (word & 0xfff) << 2,
            count: word >> 16 & MAX_COUNT,
        })
    }

    fn decode_control(word: u32) -> Result<Self, Error> {
        if word == NOP {
            return Ok(Self::Nop);
        }
        let mask = (word >> 4 & 0xfff) as u16;
        let (header, used) = match word >> 16 & 3 {
            1 => (Self::SetSubdeviceMask(mask), 0x0003_fff0),
            2 => (Self::StoreSubdeviceMask(mask), 0x0003_fff0),
            3 => (Self::UseSubdeviceMask, 0x0003_0000),
            _ => return Err(Error::Header { word, fault: HeaderFault::Obsolete }),
        };
        if word & !used != 0 {
            return Err(Error::Header { word, fault: HeaderFault::ReservedBits });
        }
        Ok(header)
    }
}

/// Where an [`Encoder`] puts its words.
pub trait Sink {
    /// Takes the next word.
    ///
    /// # Errors
    ///
    /// [`Full`] when there is no room; the word is not taken then.
    fn word(&mut self, word: u32) -> Result<(), Full>;

    /// Number of words that will still be taken. The encoder asks before it writes a command, so
    /// that a command is written whole or not at all.
    fn room(&self) -> usize {
        usize::MAX
    }
}

impl<S: Sink + ?Sized> Sink for &mut S {
    fn word(&mut self, word: u32) -> Result<(), Full> {
        (**self).word(word)
    }

    fn room(&self) -> usize {
        (**self).room()
    }
}

impl Sink for Vec<u32> {
    fn word(&mut self, word: u32) -> Result<(), Full> {
        self.push(word);
        Ok(())
    }
}

/// A sink over a slice that somebody else owns.
#[derive(Debug)]
pub struct SliceSink<'a> {
    words: &'a mut [u32],
    len: usize,
}

impl<'a> SliceSink<'a> {
    /// Fills `words` from its start.
    pub const fn new(words: &'a mut [u32]) -> Self {
        Self { words, len: 0 }
    }

    /// Number of words written.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing has been written.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The words written.
    #[must_use]
    pub fn written(&self) -> &[u32] {
        &self.words[..self.len]
    }
}

impl Sink for SliceSink<'_> {
    fn word(&mut self, word: u32) -> Result<(), Full> {
        let slot = self.words.get_mut(self.len).ok_or(Full)?;
        *slot = word;
        self.len += 1;
        Ok(())
    }

    fn room(&self) -> usize {
        self.words.len() - self.len
    }
}

/// Which GPU the commands are for: how many address bits its classes take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Target {
    /// Classes c56f or c76f, c7c0, c7b5: semaphores below 2^40, copies below 2^49.
    #[default]
    Ampere,
    /// Classes c86f, cbc0, c8b5: semaphores and copies below 2^57.
    Hopper,
}

/// Writes commands to a sink. Nothing is allocated, and a command that is refused or does not fit
/// leaves the sink as it was.
#[derive(Debug)]
pub struct Encoder<S> {
    sink: S,
    target: Target,
}

impl<S: Sink> Encoder<S> {
    /// An encoder for Ampere.
    pub const fn new(sink: S) -> Self {
        Self::for_target(sink, Target::Ampere)
    }

    /// An encoder for a given GPU.
    pub const fn for_target(sink: S, target: Target) -> Self {
        Self { sink, target }
    }

    /// Which GPU the commands are for.
    pub const fn target(&self) -> Target {
        self.target
    }

    /// The sink.
    pub const fn sink(&self) -> &S {
        &self.sink
    }

    /// Ends encoding.
    pub fn into_sink(self) -> S {
        self.sink
    }

    /// Incrementing methods: data word i goes to `address + 4 * i`.
    ///
    /// # Errors
    ///
    /// As [`Header::encode`], or [`Error::Full`].
    pub fn methods(&mut self, subchannel: Subchannel, address: u32, data: &[u32]) -> Result<(), Error> {
        self.run(Mode::Incrementing, subchannel, address, data)
    }

    /// Non-incrementing methods: every data word goes to `address`.
    ///
    /// # Errors
    ///
    /// As [`Header::encode`], or [`Error::Full`].
    pub fn non_incrementing(
        &mut self,
        subchannel: Subchannel,
        address: u32,
        data: &[u32],
    ) -> Result<(), Error> {
        self.run(Mode::NonIncrementing, subchannel, address, data)
    }

    /// The first data word goes to `address`, all others to `address + 4`.
    ///
    /// # Errors
    ///
    /// As [`Header::encode`], or [`Error::Full`].
    pub fn increment_once(
        &mut self,
        subchannel: Subchannel,
        address: u32,
        data: &[u32],
    ) -> Result<(), Error> {
        self.run(Mode::IncrementOnce, subchannel, address, data)
    }

    /// One method with data of at most 13 bits in the header itself.
    ///
    /// # Errors
    ///
    /// As [`Header::encode`], or [`Error::Full`].
    pub fn immediate(&mut self, subchannel: Subchannel, address: u32, data: u32) -> Result<(), Error> {
        self.header(Header::Immediate { subchannel, address, data })
    }

    /// A typed method, or element 0 of an array.
    ///
    /// # Errors
    ///
    /// [`Error::Field`] for a value that does not fit, or [`Error::Full`].
    pub fn method<M: Method>(&mut self, subchannel: Subchannel, method: &M) -> Result<(), Error> {
        self.methods(subchannel, M::ADDRESS, &[method.encode()?])
    }

    /// Element `index` of a typed array method.
    ///
    /// # Errors
    ///
    /// [`Error::Field`] for an element or value that does not exist, or [`Error::Full`].
    pub fn method_at<M: Method>(
        &mut self,
        subchannel: Subchannel,
        index: u32,
        method: &M,
    ) -> Result<(), Error> {
        self.methods(subchannel, M::address(index)?, &[method.encode()?])
    }

    /// Several typed methods at consecutive addresses behind one header, as a tuple. That the
    /// addresses are consecutive is checked when the program is compiled.
    ///
    /// # Errors
    ///
    /// [`Error::Field`] for a value that does not fit, or [`Error::Full`].
    pub fn sequence<Q: Sequence>(&mut self, subchannel: Subchannel, methods: &Q) -> Result<(), Error> {
        let mut data = [0; MAX_SEQUENCE];
        let data = &mut data[..Q::LEN];
        methods.encode(data)?;
        self.methods(subchannel, Q::ADDRESS, data)
    }

    /// A header that stands alone. Method headers with a count are written by the methods above.
    ///
    /// # Errors
    ///
    /// As [`Header::encode`], or [`Error::Full`].
    pub fn header(&mut self, header: Header) -> Result<(), Error> {
        let word = header.encode()?;
        self.sink.word(word)?;
        Ok(())
    }

    /// Words that are already encoded, whole or not at all.
    ///
    /// # Errors
    ///
    /// [`Error::Full`].
    pub fn words(&mut self, words: &[u32]) -> Result<(), Error> {
        self.fits(words.len())?;
        for word in words {
            self.sink.word(*word)?;
        }
        Ok(())
    }

    /// [`increment_once`](Self::increment_once) with the first data word apart from the others.
    pub(crate) fn increment_once_with(
        &mut self,
        subchannel: Subchannel,
        address: u32,
        first: u32,
        data: &[u32],
    ) -> Result<(), Error> {
        let count = u32::try_from(data.len() + 1).unwrap_or(u32::MAX);
        let header = Header::Methods { mode: Mode::IncrementOnce, subchannel, address, count }.encode()?;
        self.fits(data.len() + 2)?;
        self.sink.word(header)?;
        self.sink.word(first)?;
        self.words(data)
    }

    /// Refuses before anything is written that the sink cannot take as a whole.
    pub(crate) fn fits(&self, words: usize) -> Result<(), Error> {
        if self.sink.room() < words { Err(Full.into()) } else { Ok(()) }
    }

    fn run(&mut self, mode: Mode, subchannel: Subchannel, address: u32, data: &[u32]) -> Result<(), Error> {
        let count = u32::try_from(data.len()).unwrap_or(u32::MAX);
        let header = Header::Methods { mode, subchannel, address, count }.encode()?;
        self.fits(data.len() + 1)?;
        self.sink.word(header)?;
        for word in data {
            self.sink.word(*word)?;
        }
        Ok(())
    }
}

/// Longest [`Sequence`].
pub const MAX_SEQUENCE: usize = 6;

/// Typed methods at consecutive addresses: a tuple of two to six.
pub trait Sequence {
    /// Byte offset of the first.
    const ADDRESS: u32;
    /// Number of methods.
    const LEN: usize;
    /// Writes one data word per method to `data`, which has [`LEN`](Self::LEN) words.
    ///
    /// # Errors
    ///
    /// [`FieldError`] when a value does not fit its field.
    fn encode(&self, data: &mut [u32]) -> Result<(), FieldError>;
}

macro_rules! sequence {
    ($($method:ident $index:tt),+) => {
        impl<$($method: Method),+> Sequence for ($($method,)+) {
            const ADDRESS: u32 = {
                let addresses = [$($method::ADDRESS),+];
                let mut index = 1;
                while index < addresses.len() {
                    assert!(addresses[index] == addresses[index - 1] + 4, "methods are not consecutive");
                    index += 1;
                }
                addresses[0]
            };
            const LEN: usize = [$($index),+].len();

            fn encode(&self, data: &mut [u32]) -> Result<(), FieldError> {
                $(data[$index] = self.$index.encode()?;)+
                Ok(())
            }
        }
    };
}

sequence!(A 0, B 1);
sequence!(A 0, B 1, C 2);
sequence!(A 0, B 1, C 2, D 3);
sequence!(A 0, B 1, C 2, D 3, E 4);
sequence!(A 0, B 1, C 2, D 3, E 4, F 5);

/// One write to a method, as the host engine sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MethodWrite {
    /// Target engine. Without meaning below [`HOST_METHODS_END`].
    pub subchannel: Subchannel,
    /// Byte offset of the method.
    pub address: u32,
    /// Data word.
    pub data: u32,
    /// Position behind the header, 0 for the first data word and for immediate data.
    pub index: u32,
    /// Data words that still belong to the same header.
    pub remaining: u32,
}

impl MethodWrite {
    /// Whether the host engine itself executes it.
    #[must_use]
    pub const fn is_host(&self) -> bool {
        self.address < HOST_METHODS_END
    }
}

/// Data words that a header still owes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    header: u32,
    mode: Mode,
    subchannel: Subchannel,
    address: u32,
    count: u32,
    index: u32,
}

/// Decodes a channel's pushbuffer words one by one.
///
/// ```
/// use ampere_cmd::pushbuffer::MethodStream;
///
/// let mut stream = MethodStream::new();
/// assert_eq!(stream.push(0x2001_25a6)?, None);
/// let write = stream.push(0x1011)?.unwrap();
/// assert_eq!((write.subchannel.index(), write.address, write.data), (1, 0x1698, 0x1011));
/// # Ok::<(), ampere_cmd::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MethodStream {
    run: Option<Run>,
    dropping: bool,
    mask: u16,
    stored_mask: u16,
}

/// All sub-devices.
const ALL_SUBDEVICES: u16 = 0xfff;

impl Default for MethodStream {
    fn default() -> Self {
        Self::new()
    }
}

impl MethodStream {
    /// The state of a new channel.
    #[must_use]
    pub const fn new() -> Self {
        Self { run: None, dropping: false, mask: ALL_SUBDEVICES, stored_mask: ALL_SUBDEVICES }
    }

    /// Takes the next word of the current segment. `None` when the word writes no method: a
    /// header, a control word, a word after END_PB_SEGMENT, or data while the sub-device mask
    /// excludes this GPU.
    ///
    /// # Errors
    ///
    /// [`Error::Header`] for a word in header position that is none, [`Error::MethodOverflow`] for
    /// data past the last method address. Either is a PBENTRY interrupt on hardware, after which
    /// the channel is dead; the stream keeps its state.
    pub fn push(&mut self, word: u32) -> Result<Option<MethodWrite>, Error> {
        if self.dropping {
            return Ok(None);
        }
        match self.run {
            Some(run) => self.data(run, word),
            None => self.header(word),
        }
    }

    /// The segment has ended: words are no longer dropped. Data that a header still owes is
    /// expected at the start of the next segment.
    pub const fn end_segment(&mut self) {
        self.dropping = false;
    }

    /// Number of data words that the last header still owes.
    #[must_use]
    pub const fn owed(&self) -> u32 {
        match self.run {
            Some(run) => run.count - run.index,
            None => 0,
        }
    }

    /// Whether the rest of the segment is being dropped after END_PB_SEGMENT.
    #[must_use]
    pub const fn is_dropping(&self) -> bool {
        self.dropping
    }

    /// Whether the sub-device mask includes this GPU, which is sub-device 0. Conditional segments
    /// are fetched only then.
    #[must_use]
    pub const fn is_active(&self) -> bool {
        self.mask & 1 != 0
    }

    fn data(&mut self, run: Run, data: u32) -> Result<Option<MethodWrite>, Error> {
        let Run { header, mode, subchannel, address, count, index } = run;
        let address = mode.address(address, index).ok_or(Error::MethodOverflow { header, index })?;
        let remaining = count - index - 1;
        self.run = (remaining > 0).then_some(Run { index: index + 1, ..run });
        Ok(self.is_active().then_some(MethodWrite { subchannel, address, data, index, remaining }))
    }

    fn header(&mut self, word: u32) -> Result<Option<MethodWrite>, Error> {
        match Header::decode(word)? {
            Header::Nop | Header::Methods { count: 0, .. } => {}
            Header::Methods { mode, subchannel, address, count } => {
                self.run = Some(Run { header: word, mode, subchannel, address, count, index: 0 });
            }
            Header::Immediate { subchannel, address, data } => {
                let write = MethodWrite { subchannel, address, data, index: 0, remaining: 0 };
                return Ok(self.is_active().then_some(write));
            }
            Header::SetSubdeviceMask(mask) => self.mask = mask,
            Header::StoreSubdeviceMask(mask) => self.stored_mask = mask,
            Header::UseSubdeviceMask => self.mask = self.stored_mask,
            Header::EndSegment => self.dropping = true,
        }
        Ok(None)
    }
}
