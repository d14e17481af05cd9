//! The packer: encodes methods in the fewest words.

use super::{HOST_METHODS_END, Header, MAX_COUNT, MAX_IMMEDIATE, Mode, Subchannel};
use crate::error::{Error, Full};
use crate::method::Method;

/// A header that may still get more data words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    /// Index of the header's word.
    at: usize,
    mode: Mode,
    subchannel: Subchannel,
    address: u32,
    count: u32,
}

impl Run {
    /// The same run with one method more; `None` if the method needs another header.
    fn joined_by(self, subchannel: Subchannel, address: u32) -> Option<Self> {
        let same_engine = (self.address < HOST_METHODS_END) == (address < HOST_METHODS_END);
        if self.subchannel != subchannel || self.count >= MAX_COUNT || !same_engine {
            return None;
        }
        // One method is a run of any mode. Two methods that are 4 bytes apart can continue in two modes.
        let modes: &[Mode] = match (self.count, self.mode) {
            (1, _) => &[Mode::Incrementing, Mode::NonIncrementing],
            (2, Mode::Incrementing) => &[Mode::Incrementing, Mode::IncrementOnce],
            (_, Mode::Incrementing) => &[Mode::Incrementing],
            (_, Mode::NonIncrementing) => &[Mode::NonIncrementing],
            (_, Mode::IncrementOnce) => &[Mode::IncrementOnce],
        };
        let mode = modes.iter().find(|mode| mode.address(self.address, self.count) == Some(address))?;
        Some(Self { mode: *mode, count: self.count + 1, ..self })
    }

    fn header(&self) -> Header {
        let Self { mode, subchannel, address, count, .. } = *self;
        Header::Methods { mode, subchannel, address, count }
    }
}

/// Writes methods one by one to a slice, in the fewest words.
///
/// Methods with consecutive addresses in one of the three modes (incrementing, non-incrementing, increment-once)
/// share a header of up to [`MAX_COUNT`] data words; longer runs get another header. A method that begins a run and
/// whose data has at most 13 bits is encoded in the header itself (the immediate form). Methods are not reordered,
/// and a host method never shares a header with a method of an engine. A method that is refused, or for which there
/// is no room, changes nothing.
///
/// [`Encoder`](super::Encoder) writes the words that each call asks for, so a driver's hot path chooses the encoding.
/// Use the packer for methods from another source.
///
/// ```
/// use ampere_cmd::copy_c7b5::{LineCount, LineLengthIn, OffsetInLower, OffsetInUpper};
/// use ampere_cmd::pushbuffer::Packer;
/// use ampere_cmd::Subchannel;
///
/// let mut words = [0; 16];
/// let mut packer = Packer::new(&mut words);
/// packer.method(Subchannel::COPY, &OffsetInUpper { upper: 0x1_0000 })?;
/// packer.method(Subchannel::COPY, &OffsetInLower { value: 0x2000_0000 })?; // joins the one before
/// packer.method(Subchannel::COPY, &LineLengthIn { value: 64 })?; // immediate
/// packer.method(Subchannel::COPY, &LineCount { value: 1 })?; // immediate
/// assert_eq!(packer.written(), [0x2002_8100, 0x1_0000, 0x2000_0000, 0x8040_8106, 0x8001_8107]);
/// # Ok::<(), ampere_cmd::Error>(())
/// ```
#[derive(Debug)]
pub struct Packer<'a> {
    words: &'a mut [u32],
    len: usize,
    run: Option<Run>,
    methods: usize,
}

impl<'a> Packer<'a> {
    /// A packer that fills `words` from the start.
    #[must_use]
    pub const fn new(words: &'a mut [u32]) -> Self {
        Self { words, len: 0, run: None, methods: 0 }
    }

    /// The words written so far.
    #[must_use]
    pub fn written(&self) -> &[u32] {
        &self.words[..self.len]
    }

    /// Number of words written so far.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether no word was written yet.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Number of methods written so far.
    #[must_use]
    pub const fn methods(&self) -> usize {
        self.methods
    }

    /// Writes one method: `data` to a byte offset.
    ///
    /// # Errors
    ///
    /// [`Error::MethodAddress`] for an address that does not fit a header, or [`Error::Full`].
    #[inline]
    pub fn raw(&mut self, subchannel: Subchannel, address: u32, data: u32) -> Result<(), Error> {
        let joined = self.run.and_then(|run| run.joined_by(subchannel, address));
        if let Some(run) = joined {
            let header = run.header().encode()?;
            self.push([data])?;
            self.words[run.at] = header;
            self.run = Some(run);
        } else if data <= MAX_IMMEDIATE {
            let header = Header::Immediate { subchannel, address, data }.encode()?;
            self.push([header])?;
            self.run = None;
        } else {
            let run = Run { at: self.len, mode: Mode::Incrementing, subchannel, address, count: 1 };
            self.push([run.header().encode()?, data])?;
            self.run = Some(run);
        }
        self.methods += 1;
        Ok(())
    }

    /// Writes a typed method, or element 0 of an array method.
    ///
    /// # Errors
    ///
    /// [`Error::Field`] for a value that does not fit, or [`Error::Full`].
    #[inline]
    pub fn method<M: Method>(&mut self, subchannel: Subchannel, method: &M) -> Result<(), Error> {
        self.raw(subchannel, M::ADDRESS, method.encode()?)
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
        self.raw(subchannel, M::address(index)?, method.encode()?)
    }

    /// Writes any number of data words, to addresses according to a mode.
    ///
    /// # Errors
    ///
    /// [`Error::MethodAddress`] if a word passes the last method address, or [`Error::Full`]; no data is written then.
    pub fn data(
        &mut self,
        mode: Mode,
        subchannel: Subchannel,
        address: u32,
        data: &[u32],
    ) -> Result<(), Error> {
        let (len, run, methods) = (self.len, self.run, self.methods);
        for (index, word) in (0..).zip(data) {
            let place = mode.address(address, index).unwrap_or(address.saturating_add(4 * index));
            if let Err(error) = self.raw(subchannel, place, *word) {
                (self.len, self.run, self.methods) = (len, run, methods);
                if let Some(run) = run {
                    // It was encoded before, with this very count.
                    self.words[run.at] = run.header().encode()?;
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// Ends the run, so the next method gets a header of its own. Use it before words that are patched later or fetched
    /// separately.
    pub const fn end_run(&mut self) {
        self.run = None;
    }

    fn push<const N: usize>(&mut self, words: [u32; N]) -> Result<(), Error> {
        let room = self.words.get_mut(self.len..).and_then(|rest| rest.first_chunk_mut());
        *room.ok_or(Full)? = words;
        self.len += N;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;
    use crate::pushbuffer::MethodStream;

    type Write = (u8, u32, u32);

    fn packed(writes: &[Write]) -> Vec<u32> {
        let mut words = vec![0; 2 * writes.len()];
        let mut packer = Packer::new(&mut words);
        for &(subchannel, address, data) in writes {
            packer.raw(Subchannel::new(subchannel).unwrap(), address, data).unwrap();
        }
        assert_eq!(packer.methods(), writes.len());
        packer.written().to_vec()
    }

    fn decoded(words: &[u32]) -> Vec<Write> {
        let mut stream = MethodStream::new();
        let writes = words.iter().filter_map(|word| stream.push(*word).unwrap());
        let writes = writes.map(|write| (write.subchannel.index(), write.address, write.data)).collect();
        assert_eq!(stream.owed(), 0);
        writes
    }

    /// The least number of words, by trying every way to cut the methods into runs.
    fn fewest_words(writes: &[Write]) -> usize {
        let is_run = |run: &[Write]| {
            let (subchannel, base, _) = run[0];
            let follows = |mode: Mode| {
                run.iter().zip(0..).all(|(write, index)| {
                    let same =
                        write.0 == subchannel && (write.1 < HOST_METHODS_END) == (base < HOST_METHODS_END);
                    same && mode.address(base, index) == Some(write.1)
                })
            };
            [Mode::Incrementing, Mode::NonIncrementing, Mode::IncrementOnce].into_iter().any(follows)
        };
        let mut fewest = vec![0];
        for end in 1..=writes.len() {
            let immediate = (writes[end - 1].2 <= MAX_IMMEDIATE).then(|| fewest[end - 1] + 1);
            let runs = (0..end)
                .filter(|start| is_run(&writes[*start..end]))
                .map(|start| fewest[start] + 1 + end - start);
            fewest.push(runs.chain(immediate).min().unwrap());
        }
        fewest[writes.len()]
    }

    #[test]
    fn the_three_modes_and_the_immediate_form() {
        const BIG: u32 = 0x2000;
        let compute = |address, data| (1, address, data);
        // Incrementing.
        let words = packed(&[compute(0x100, BIG), compute(0x104, 1), compute(0x108, 2)]);
        assert_eq!(words, [0x2003_2040, BIG, 1, 2]);
        // Non-incrementing.
        assert_eq!(packed(&[compute(0x1b4, BIG), compute(0x1b4, BIG)]), [0x6002_206d, BIG, BIG]);
        // Increment-once, known as such by its third word.
        let words = packed(&[compute(0x1b0, BIG), compute(0x1b4, 3), compute(0x1b4, BIG), compute(0x1b4, 5)]);
        assert_eq!(words, [0xa004_206c, BIG, 3, BIG, 5]);
        // 13 bits in the header; 14 in a word of their own.
        assert_eq!(packed(&[compute(0x1698, 0x1fff)]), [0x9fff_25a6]);
        assert_eq!(packed(&[compute(0x1698, BIG)]), [0x2001_25a6, BIG]);
        // Another subchannel, and the border between host and engine, begin anew.
        assert_eq!(packed(&[compute(0x100, BIG), (4, 0x104, BIG)]).len(), 4);
        assert_eq!(packed(&[compute(0xfc, BIG), compute(0x100, BIG)]).len(), 4);
    }

    #[test]
    fn a_header_counts_to_its_limit_and_another_follows() {
        let data = vec![0x1234_5678; 2 * MAX_COUNT as usize + 5];
        let mut words = vec![0; data.len() + 3];
        let mut packer = Packer::new(&mut words);
        packer.data(Mode::IncrementOnce, Subchannel::COMPUTE, 0x1b0, &data).unwrap();
        assert_eq!((packer.len(), packer.methods()), (data.len() + 3, data.len()));
        let written = decoded(packer.written());
        assert_eq!(written[0], (1, 0x1b0, 0x1234_5678));
        assert!(written[1..].iter().all(|write| *write == (1, 0x1b4, 0x1234_5678)));
        let count = |at: usize| packer.written()[at] >> 16 & 0x1fff;
        assert_eq!((count(0), count(8192), count(16384)), (8191, 8191, 5));
    }

    #[test]
    fn what_is_refused_leaves_nothing() {
        let mut words = [0; 4];
        let mut packer = Packer::new(&mut words);
        packer.raw(Subchannel::COPY, 0x400, 1 << 20).unwrap();
        assert_eq!(packer.raw(Subchannel::COPY, 0x402, 1), Err(Error::MethodAddress { address: 0x402 }));
        let long = packer.data(Mode::Incrementing, Subchannel::COPY, 0x404, &[1, 2, 3]);
        assert_eq!(long, Err(Full.into()));
        assert_eq!((packer.written(), packer.methods()), (&[0x2001_8100, 1 << 20][..], 1));
        packer.data(Mode::Incrementing, Subchannel::COPY, 0x404, &[1, 2]).unwrap();
        assert_eq!(packer.written(), [0x2003_8100, 1 << 20, 1, 2]);
        assert_eq!(packer.raw(Subchannel::COPY, 0x40c, 1), Err(Full.into()));
        let mut words = [0; 8];
        let mut packer = Packer::new(&mut words);
        let past = packer.data(Mode::Incrementing, Subchannel::COPY, 0x3ff8, &[1 << 20; 3]);
        assert_eq!(past, Err(Error::MethodAddress { address: 0x4000 }));
        assert!(packer.is_empty());
    }

    #[test]
    fn a_run_can_be_ended() {
        let mut words = [0; 4];
        let mut packer = Packer::new(&mut words);
        packer.raw(Subchannel::COPY, 0x400, 1 << 20).unwrap();
        packer.end_run();
        packer.raw(Subchannel::COPY, 0x404, 1 << 20).unwrap();
        assert_eq!(packer.written(), [0x2001_8100, 1 << 20, 0x2001_8101, 1 << 20]);
    }

    proptest! {
        #[test]
        fn the_words_say_the_same_and_are_the_fewest(
            steps in prop::collection::vec((0u8..8, -2i32..4, prop::bool::ANY, any::<u32>()), 0..40),
            start in prop::sample::select(vec![0xf0u32, 0x100, 0x1b0, 0x3ff0]),
        ) {
            // Addresses that wander in small steps, so that runs of every mode occur; data small and large.
            let mut address = start;
            let mut writes = Vec::new();
            for (subchannel, step, small, data) in steps {
                let distance = 4 * step.clamp(0, 1) - 8 * i32::from(step == 3);
                address = address.saturating_add_signed(distance).clamp(start - 8, 0x3ffc);
                let subchannel = if subchannel == 0 { 4 } else { 1 };
                writes.push((subchannel, address, if small { data & MAX_IMMEDIATE } else { data }));
            }
            let words = packed(&writes);
            prop_assert_eq!(words.len(), fewest_words(&writes), "{:x?} as {:x?}", writes, words);
            prop_assert_eq!(decoded(&words), writes);
        }
    }
}
