//! The decoder: converts the words of a channel to method writes.

use super::{HOST_METHODS_END, Header, Mode, Subchannel};
use crate::error::Error;

/// One method write, as the host engine executes it.
///
/// ```
/// # fn main() -> Result<(), ampere_cmd::Error> {
/// use ampere_cmd::{Encoder, MethodStream, SliceSink, Subchannel};
///
/// let mut words = [0_u32; 2];
/// Encoder::new(SliceSink::new(&mut words)).methods(Subchannel::COMPUTE, 0x02b4, &[0x15])?;
/// let mut stream = MethodStream::new();
/// assert_eq!(stream.push(words[0])?, None);
/// let write = stream.push(words[1])?.expect("a write");
/// assert_eq!((write.address, write.data, write.is_host()), (0x02b4, 0x15, false));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MethodWrite {
    /// Target engine. Ignored below [`HOST_METHODS_END`].
    pub subchannel: Subchannel,
    /// Byte offset of the method.
    pub address: u32,
    /// Data word.
    pub data: u32,
    /// Index among the data words of the header; 0 for immediate data.
    pub index: u32,
    /// Number of data words that the same header still expects.
    pub remaining: u32,
}

impl MethodWrite {
    /// Whether the host engine itself executes it.
    #[must_use]
    pub const fn is_host(&self) -> bool {
        self.address < HOST_METHODS_END
    }
}

/// Data words that a header still expects.
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

    /// Decodes the next word of the current segment. Returns `None` if the word writes no method: a header, a control
    /// word, a word after END_PB_SEGMENT, or data while the sub-device mask excludes this GPU.
    ///
    /// # Errors
    ///
    /// [`Error::Header`] for a word in header position that is not a header, [`Error::MethodOverflow`] for data past
    /// the last method address. On hardware both raise a PBENTRY interrupt, which kills the channel; the stream keeps
    /// its state.
    pub fn push(&mut self, word: u32) -> Result<Option<MethodWrite>, Error> {
        if self.dropping {
            return Ok(None);
        }
        match self.run {
            Some(run) => self.data(run, word),
            None => self.header(word),
        }
    }

    /// Ends the segment: words are no longer ignored. Data that a header still expects is read from the start of the
    /// next segment.
    pub const fn end_segment(&mut self) {
        self.dropping = false;
    }

    /// Number of data words that the last header still expects.
    #[must_use]
    pub const fn owed(&self) -> u32 {
        match self.run {
            Some(run) => run.count - run.index,
            None => 0,
        }
    }

    /// Whether the rest of the segment is ignored, after END_PB_SEGMENT.
    #[must_use]
    pub const fn is_dropping(&self) -> bool {
        self.dropping
    }

    /// Whether the sub-device mask includes this GPU, which is sub-device 0. Conditional segments are fetched only
    /// then.
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

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use proptest::prelude::*;

    use super::*;
    use crate::pushbuffer::Encoder;

    /// Feeds all words as one segment.
    fn writes(stream: &mut MethodStream, words: &[u32]) -> Vec<MethodWrite> {
        let writes = words.iter().filter_map(|word| stream.push(*word).unwrap()).collect();
        stream.end_segment();
        writes
    }

    fn addresses(words: &[u32]) -> Vec<(u32, u32)> {
        writes(&mut MethodStream::new(), words).iter().map(|write| (write.address, write.data)).collect()
    }

    #[test]
    fn the_modes() {
        assert_eq!(addresses(&[0x2002_0017, 7, 8]), [(0x5c, 7), (0x60, 8)]);
        assert_eq!(addresses(&[0x6002_0002, 7, 8]), [(8, 7), (8, 8)]);
        assert_eq!(addresses(&[0xa003_206c, 7, 8, 9]), [(0x1b0, 7), (0x1b4, 8), (0x1b4, 9)]);
        assert_eq!(addresses(&[0x9011_25a6]), [(0x1698, 0x1011)]);
        assert_eq!(addresses(&[0, 0x2000_4040, 0x8000_0008]), [(0x20, 0)]);
    }

    #[test]
    fn a_write_says_where_it_stands() {
        let mut stream = MethodStream::new();
        stream.push(0x2002_8100).unwrap();
        assert_eq!(stream.owed(), 2);
        let subchannel = Subchannel::COPY;
        let first = MethodWrite { subchannel, address: 0x400, data: 5, index: 0, remaining: 1 };
        assert_eq!(stream.push(5), Ok(Some(first)));
        assert!(!first.is_host());
        let second = MethodWrite { subchannel, address: 0x404, data: 6, index: 1, remaining: 0 };
        assert_eq!(stream.push(6), Ok(Some(second)));
        assert_eq!(stream.owed(), 0);
    }

    #[test]
    fn data_continues_in_the_next_segment() {
        let mut stream = MethodStream::new();
        assert_eq!(writes(&mut stream, &[0x2002_8100, 1]).len(), 1);
        let rest = writes(&mut stream, &[2, 0x8000_0008]);
        assert_eq!((rest[0].address, rest[0].data, rest[1].address), (0x404, 2, 0x20));
    }

    #[test]
    fn the_end_of_a_segment_can_come_early() {
        let mut stream = MethodStream::new();
        assert!(writes(&mut stream, &[0xe000_0000, 0x8000_0008, 0xffff_ffff]).is_empty());
        assert_eq!(writes(&mut stream, &[0x8000_0008]).len(), 1);
        stream.push(0xe000_0000).unwrap();
        assert!(stream.is_dropping());
    }

    #[test]
    fn the_subdevice_mask_silences_methods() {
        let mut stream = MethodStream::new();
        assert!(stream.is_active());
        // Only sub-device 1, so not this one; headers still consume their data.
        assert!(writes(&mut stream, &[0x0001_0020, 0x2001_0008, 0, 0x8000_0008]).is_empty());
        assert!(!stream.is_active());
        // Store sub-device 0 and use it.
        assert_eq!(writes(&mut stream, &[0x0002_0010, 0x8000_0008, 0x0003_0000, 0x8000_0008]).len(), 1);
        assert!(stream.is_active());
    }

    #[test]
    fn bad_words_are_named() {
        let mut stream = MethodStream::new();
        assert!(matches!(stream.push(0xc000_0000), Err(Error::Header { word: 0xc000_0000, .. })));
        let mut stream = MethodStream::new();
        stream.push(0x2002_2fff).unwrap();
        assert!(stream.push(1).unwrap().is_some());
        assert_eq!(stream.push(2), Err(Error::MethodOverflow { header: 0x2002_2fff, index: 1 }));
    }

    proptest! {
        #[test]
        fn what_is_encoded_comes_back_however_it_is_cut(
            runs in prop::collection::vec(
                (0u8..3, 0u8..8, 0u32..0xf00, prop::collection::vec(any::<u32>(), 0..6)), 0..8),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut encoder = Encoder::new(Vec::new());
            let mut expected = Vec::new();
            for (mode, index, address, data) in runs {
                let (subchannel, address) = (Subchannel::new(index)?, address * 4);
                let step: fn(u32) -> u32 = match mode {
                    0 => {
                        encoder.methods(subchannel, address, &data)?;
                        |index| 4 * index
                    }
                    1 => {
                        encoder.non_incrementing(subchannel, address, &data)?;
                        |_| 0
                    }
                    _ => {
                        encoder.increment_once(subchannel, address, &data)?;
                        |index| 4 * index.min(1)
                    }
                };
                expected.extend(
                    (0u32..).zip(data).map(|(index, data)| (subchannel, address + step(index), data)),
                );
            }
            let words = encoder.into_sink();
            let (first, second) = words.split_at(cut.index(words.len() + 1));
            let mut stream = MethodStream::new();
            let mut decoded = writes(&mut stream, first);
            decoded.extend(writes(&mut stream, second));
            let decoded: Vec<_> =
                decoded.iter().map(|write| (write.subchannel, write.address, write.data)).collect();
            prop_assert_eq!(decoded, expected);
            prop_assert_eq!(stream.owed(), 0);
        }
    }
}
