//! The encoder: writes headers and data to a sink.

use alloc::vec::Vec;

use super::{Header, MAX_COUNT, Mode, Subchannel};
use crate::error::{Error, FieldError, Full};
use crate::method::Method;

/// Destination of an [`Encoder`]'s words.
///
/// ```
/// # fn main() -> Result<(), ampere_cmd::Error> {
/// # use ampere_cmd::{Encoder, SliceSink, Subchannel};
/// # let mut words = [0_u32; 64];
/// # let mut encoder = Encoder::new(SliceSink::new(&mut words));
/// use ampere_cmd::Sink;
///
/// fn encode_to<S: Sink>(encoder: &mut Encoder<S>) -> Result<(), ampere_cmd::Error> {
///     encoder.immediate(Subchannel::COMPUTE, 0x0110, 0)
/// }
/// encode_to(&mut encoder)?;
/// assert_eq!(encoder.sink().len(), 1);
/// # Ok(())
/// # }
/// ```
pub trait Sink {
    /// Appends a word.
    ///
    /// # Errors
    ///
    /// [`Full`] if there is no room for it.
    fn word(&mut self, word: u32) -> Result<(), Full>;

    /// Number of words written so far: the index of the next word.
    fn position(&self) -> usize;

    /// Number of words for which there is room. The encoder checks it before each command, so a command is never
    /// written partly.
    #[inline]
    fn room(&self) -> usize {
        usize::MAX
    }
}

impl<S: Sink + ?Sized> Sink for &mut S {
    #[inline]
    fn word(&mut self, word: u32) -> Result<(), Full> {
        (**self).word(word)
    }

    #[inline]
    fn position(&self) -> usize {
        (**self).position()
    }

    #[inline]
    fn room(&self) -> usize {
        (**self).room()
    }
}

impl Sink for Vec<u32> {
    #[inline]
    fn word(&mut self, word: u32) -> Result<(), Full> {
        self.push(word);
        Ok(())
    }

    #[inline]
    fn position(&self) -> usize {
        self.len()
    }
}

/// A sink that writes to a borrowed slice.
#[derive(Debug)]
pub struct SliceSink<'a> {
    words: &'a mut [u32],
    len: usize,
}

impl<'a> SliceSink<'a> {
    /// A sink that fills `words` from the start.
    #[inline]
    pub const fn new(words: &'a mut [u32]) -> Self {
        Self { words, len: 0 }
    }

    /// Number of words written so far.
    #[must_use]
    #[inline]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether no word was written yet.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The words written so far.
    #[must_use]
    pub fn written(&self) -> &[u32] {
        &self.words[..self.len]
    }
}

impl Sink for SliceSink<'_> {
    #[inline]
    fn word(&mut self, word: u32) -> Result<(), Full> {
        let slot = self.words.get_mut(self.len).ok_or(Full)?;
        *slot = word;
        self.len += 1;
        Ok(())
    }

    #[inline]
    fn position(&self) -> usize {
        self.len
    }

    #[inline]
    fn room(&self) -> usize {
        self.words.len() - self.len
    }
}

/// The GPU that executes the commands. It decides how many address bits they have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Target {
    /// Classes c56f or c76f, c7c0, c7b5: semaphores below 2^40, copies below 2^49.
    #[default]
    Ampere,
    /// Classes c86f, cbc0, c8b5: semaphores and copies below 2^57.
    Hopper,
}

/// Writes commands to a sink without allocating. A command that is refused, or for which there is no room, does not
/// change the sink.
#[derive(Debug)]
pub struct Encoder<S> {
    sink: S,
    target: Target,
}

impl<S: Sink> Encoder<S> {
    /// An encoder for Ampere.
    #[inline]
    pub const fn new(sink: S) -> Self {
        Self::for_target(sink, Target::Ampere)
    }

    /// An encoder for a GPU.
    pub const fn for_target(sink: S, target: Target) -> Self {
        Self { sink, target }
    }

    /// The GPU that executes the commands.
    pub const fn target(&self) -> Target {
        self.target
    }

    /// The sink.
    pub const fn sink(&self) -> &S {
        &self.sink
    }

    /// Returns the sink.
    pub fn into_sink(self) -> S {
        self.sink
    }

    /// Writes incrementing methods: data word i goes to `address + 4 * i`.
    ///
    /// # Errors
    ///
    /// As [`Header::encode`], or [`Error::Full`].
    #[inline]
    pub fn methods(&mut self, subchannel: Subchannel, address: u32, data: &[u32]) -> Result<(), Error> {
        self.run(Mode::Incrementing, subchannel, address, data)
    }

    /// Writes non-incrementing methods: every data word goes to `address`. Data that exceeds one header gets several.
    ///
    /// # Errors
    ///
    /// As [`Header::encode`], or [`Error::Full`].
    #[inline]
    pub fn non_incrementing(
        &mut self,
        subchannel: Subchannel,
        address: u32,
        data: &[u32],
    ) -> Result<(), Error> {
        self.run(Mode::NonIncrementing, subchannel, address, data)
    }

    /// Writes increment-once methods: the first data word goes to `address`, all others to `address + 4`. Data that
    /// exceeds one header gets several.
    ///
    /// # Errors
    ///
    /// As [`Header::encode`], or [`Error::Full`].
    #[inline]
    pub fn increment_once(
        &mut self,
        subchannel: Subchannel,
        address: u32,
        data: &[u32],
    ) -> Result<(), Error> {
        self.run(Mode::IncrementOnce, subchannel, address, data)
    }

    /// Writes one method whose data, at most 13 bits, is in the header.
    ///
    /// # Errors
    ///
    /// As [`Header::encode`], or [`Error::Full`].
    #[inline]
    pub fn immediate(&mut self, subchannel: Subchannel, address: u32, data: u32) -> Result<(), Error> {
        self.header(Header::Immediate { subchannel, address, data })
    }

    /// Writes a typed method, or element 0 of an array method.
    ///
    /// # Errors
    ///
    /// [`Error::Field`] for a value that does not fit, or [`Error::Full`].
    #[inline]
    pub fn method<M: Method>(&mut self, subchannel: Subchannel, method: &M) -> Result<(), Error> {
        self.methods(subchannel, M::ADDRESS, &[method.encode()?])
    }

    /// Writes element `index` of a typed array method.
    ///
    /// # Errors
    ///
    /// [`Error::Field`] for an element that does not exist or a value that does not fit, or [`Error::Full`].
    #[inline]
    pub fn method_at<M: Method>(
        &mut self,
        subchannel: Subchannel,
        index: u32,
        method: &M,
    ) -> Result<(), Error> {
        self.methods(subchannel, M::address(index)?, &[method.encode()?])
    }

    /// Writes a tuple of typed methods at consecutive addresses, with one header. The compiler checks that the
    /// addresses are consecutive.
    ///
    /// # Errors
    ///
    /// [`Error::Field`] for a value that does not fit, or [`Error::Full`].
    #[inline]
    pub fn sequence<Q: Sequence>(&mut self, subchannel: Subchannel, methods: &Q) -> Result<(), Error> {
        let mut data = [0; MAX_SEQUENCE];
        let data = &mut data[..Q::LEN];
        methods.encode(data)?;
        self.methods(subchannel, Q::ADDRESS, data)
    }

    /// Writes a header without data. The methods above write method headers with their data.
    ///
    /// # Errors
    ///
    /// As [`Header::encode`], or [`Error::Full`].
    #[inline]
    pub fn header(&mut self, header: Header) -> Result<(), Error> {
        let word = header.encode()?;
        self.sink.word(word)?;
        Ok(())
    }

    /// Writes words that are already encoded: all or none.
    ///
    /// # Errors
    ///
    /// [`Error::Full`].
    #[inline]
    pub fn words(&mut self, words: &[u32]) -> Result<(), Error> {
        self.fits(words.len())?;
        for word in words {
            self.sink.word(*word)?;
        }
        Ok(())
    }

    /// As [`increment_once`](Self::increment_once), with the first data word as a separate argument.
    #[inline]
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

    /// Refuses a command of `words` words if the sink has no room for all of them.
    #[inline]
    pub(crate) fn fits(&self, words: usize) -> Result<(), Error> {
        if self.sink.room() < words { Err(Full.into()) } else { Ok(()) }
    }

    #[inline]
    fn run(&mut self, mode: Mode, subchannel: Subchannel, address: u32, data: &[u32]) -> Result<(), Error> {
        if data.len() > MAX_COUNT as usize {
            return self.long_run(mode, subchannel, address, data);
        }
        // CAST: at most 8191.
        let count = data.len() as u32;
        let header = Header::Methods { mode, subchannel, address, count }.encode()?;
        self.fits(data.len() + 1)?;
        self.sink.word(header)?;
        for word in data {
            self.sink.word(*word)?;
        }
        Ok(())
    }
}

impl<S: Sink> Encoder<S> {
    /// Writes a run that exceeds one header.
    #[cold]
    fn long_run(
        &mut self,
        mode: Mode,
        subchannel: Subchannel,
        address: u32,
        data: &[u32],
    ) -> Result<(), Error> {
        let parts = data.chunks(MAX_COUNT as usize);
        self.fits(data.len() + parts.len())?;
        let (mut mode, mut address) = (mode, address);
        for part in parts {
            // An incrementing run of this length passes the last address; its first part is refused.
            self.run(mode, subchannel, address, part)?;
            if mode == Mode::IncrementOnce {
                (mode, address) = (Mode::NonIncrementing, address + 4);
            }
        }
        Ok(())
    }
}

/// Longest [`Sequence`].
pub const MAX_SEQUENCE: usize = 6;

/// Typed methods at consecutive addresses, as a tuple of two to six.
pub trait Sequence {
    /// Byte offset of the first method.
    const ADDRESS: u32;
    /// Number of methods.
    const LEN: usize;
    /// Writes one data word per method to `data`, which has [`LEN`](Self::LEN) words.
    ///
    /// # Errors
    ///
    /// [`FieldError`] if a value does not fit its field.
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

            #[inline]
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

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;
    use crate::compute_c7c0::{LoadInlineQmdData, SendPcasA, SetShaderLocalMemoryNonThrottledA};
    use crate::copy_c7b5::{LineCount, LineLengthIn};
    use crate::host_c76f::SetObject;

    #[test]
    fn a_command_is_written_whole_or_not_at_all() {
        let mut words = [0xdead_beef; 4];
        let mut encoder = Encoder::new(SliceSink::new(&mut words));
        encoder.methods(Subchannel::COPY, 0x400, &[1, 2]).unwrap();
        assert_eq!(encoder.methods(Subchannel::COPY, 0x400, &[3]), Err(Full.into()));
        assert_eq!(encoder.words(&[1, 2]), Err(Full.into()));
        assert_eq!(encoder.sink().written(), [0x2002_8100, 1, 2]);
        encoder.immediate(Subchannel::HOST, 0x20, 0).unwrap();
        assert_eq!(encoder.immediate(Subchannel::HOST, 0x20, 0), Err(Full.into()));
        assert_eq!(encoder.into_sink().len(), 4);
    }

    #[test]
    fn the_modes() {
        let mut encoder = Encoder::new(Vec::new());
        encoder.methods(Subchannel::COMPUTE, 0x100, &[1]).unwrap();
        encoder.non_incrementing(Subchannel::COMPUTE, 0x1b4, &[2, 3]).unwrap();
        encoder.increment_once(Subchannel::COMPUTE, 0x1b0, &[4, 5]).unwrap();
        encoder.immediate(Subchannel::COMPUTE, 0x1698, 0x1011).unwrap();
        encoder.header(Header::EndSegment).unwrap();
        let expected = [0x2001_2040, 1, 0x6002_206d, 2, 3, 0xa002_206c, 4, 5, 0x9011_25a6, 0xe000_0000];
        assert_eq!(encoder.into_sink(), expected);
    }

    #[test]
    fn typed_methods() {
        let mut encoder = Encoder::new(Vec::new());
        let object = SetObject { nvclass: 0xc7c0, ..SetObject::default() };
        encoder.method(Subchannel::COMPUTE, &object).unwrap();
        encoder.method_at(Subchannel::COMPUTE, 63, &LoadInlineQmdData { v: 5 }).unwrap();
        let lines = (LineLengthIn { value: 256 }, LineCount { value: 1 });
        encoder.sequence(Subchannel::COPY, &lines).unwrap();
        let expected = [0x2001_2000, 0xc7c0, 0x2001_2107, 5, 0x2002_8106, 256, 1];
        assert_eq!(encoder.sink(), &expected);
        let beyond = FieldError::NoSuchElement { field: "LOAD_INLINE_QMD_DATA", index: 64, count: 64 };
        let result = encoder.method_at(Subchannel::COMPUTE, 64, &LoadInlineQmdData { v: 5 });
        assert_eq!(result, Err(beyond.into()));
        let wide = SetShaderLocalMemoryNonThrottledA { size_upper: 0x100 };
        let refused = FieldError::TooWide { field: "SIZE_UPPER", value: 0x100, bits: 8 };
        assert_eq!(encoder.method(Subchannel::COMPUTE, &wide), Err(refused.into()));
        assert_eq!(encoder.sink(), &expected);
    }

    #[test]
    fn a_run_past_the_last_method_is_refused() {
        let mut encoder = Encoder::new(Vec::new());
        let error = encoder.methods(Subchannel::COMPUTE, 0x3ffc, &[1, 2]).unwrap_err();
        assert_eq!(error, Error::MethodOverflow { header: 0x2002_2fff, index: 1 });
        let error = encoder.increment_once(Subchannel::COMPUTE, 0x3ffc, &[1, 2, 3]).unwrap_err();
        assert_eq!(error, Error::MethodOverflow { header: 0xa003_2fff, index: 1 });
        encoder.non_incrementing(Subchannel::COMPUTE, 0x3ffc, &[1, 2]).unwrap();
        let long = encoder.methods(Subchannel::COMPUTE, 0, &vec![0; 8192]);
        assert!(matches!(long, Err(Error::MethodOverflow { index: 0x1000, .. })), "{long:?}");
        assert_eq!(encoder.into_sink().len(), 3);
    }

    #[test]
    fn more_words_than_a_header_counts_are_split() {
        let data: Vec<u32> = (0..20_000).collect();
        for (mode, first, others) in
            [(Mode::NonIncrementing, 0x1b0, 0x1b0), (Mode::IncrementOnce, 0x1b0, 0x1b4)]
        {
            let mut encoder = Encoder::new(Vec::new());
            encoder.run(mode, Subchannel::COMPUTE, 0x1b0, &data).unwrap();
            let words = encoder.into_sink();
            assert_eq!(words.len(), data.len() + 3);
            let mut stream = crate::pushbuffer::MethodStream::new();
            let writes: Vec<_> = words.iter().filter_map(|word| stream.push(*word).unwrap()).collect();
            assert!(writes.iter().map(|write| write.data).eq(data.iter().copied()));
            assert_eq!(writes[0].address, first);
            assert!(writes[1..].iter().all(|write| write.address == others));
        }
        let mut words = vec![0; data.len() + 2];
        let mut encoder = Encoder::new(SliceSink::new(&mut words));
        assert_eq!(encoder.non_incrementing(Subchannel::COMPUTE, 0x1b0, &data), Err(Full.into()));
        assert!(encoder.sink().is_empty());
    }

    #[test]
    fn sinks_can_be_borrowed() {
        let mut words = Vec::new();
        let pcas = SendPcasA { qmd_address_shifted8: 1 };
        Encoder::new(&mut words).method(Subchannel::COMPUTE, &pcas).unwrap();
        Encoder::new(&mut words).method(Subchannel::COMPUTE, &pcas).unwrap();
        assert_eq!(words, [0x2001_20ad, 1, 0x2001_20ad, 1]);
        assert!(SliceSink::new(&mut []).is_empty());
    }
}
