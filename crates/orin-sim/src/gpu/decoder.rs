//! Method decoding shared by all engines: the methods of a class, and their state.
//!
//! All data comes from the class tables of `ampere-cmd`. The model is stricter than silicon: it refuses undefined bits
//! instead of ignoring them.

use ampere_cmd::method::{Class, Method, MethodInfo};

use crate::gpu::{ChannelFault, Refusal};

/// Number of method words that a pushbuffer header can address (byte offsets up to 0x3ffc).
const METHOD_WORDS: usize = 0x1000;

/// One method word for an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MethodWord {
    pub(super) subchannel: u8,
    /// Byte offset of the method.
    pub(super) address: u32,
    pub(super) data: u32,
}

impl MethodWord {
    /// The fault that ends the channel at this method because of its data.
    pub(super) fn fault(self, reason: impl Into<String>) -> ChannelFault {
        self.refused(Refusal::Data, reason)
    }

    /// The fault that ends the channel at this method.
    pub(super) fn refused(self, refusal: Refusal, reason: impl Into<String>) -> ChannelFault {
        ChannelFault::Method {
            refusal,
            subchannel: self.subchannel,
            address: self.address,
            data: self.data,
            reason: reason.into(),
        }
    }
}

/// The engine's handling of a method address.
#[derive(Clone, Copy, Debug)]
enum Slot {
    /// The class has no such method.
    Undefined,
    /// The method exists.
    Known(&'static MethodInfo),
    /// The method exists, but its effect is not modelled.
    Unmodelled(&'static MethodInfo),
}

/// All method words of one class, indexed by their offset.
#[derive(Debug)]
pub(super) struct Decoder {
    name: &'static str,
    slots: Vec<Slot>,
}

impl Decoder {
    /// Creates a decoder of `class` that refuses methods whose names begin with one of `unmodelled`.
    pub(super) fn new(class: &'static Class, unmodelled: &[&str]) -> Self {
        let slot = |word: usize| {
            // CAST: below METHOD_WORDS * 4.
            let Some((info, _)) = class.method_at(word as u32 * 4) else { return Slot::Undefined };
            if unmodelled.iter().any(|prefix| info.name.starts_with(prefix)) {
                return Slot::Unmodelled(info);
            }
            Slot::Known(info)
        };
        Self { name: class.name, slots: (0..METHOD_WORDS).map(slot).collect() }
    }

    /// Returns the method that a word addresses.
    ///
    /// # Errors
    ///
    /// The fault of a method that is undefined or not modelled, and of data with undefined bits.
    pub(super) fn check(&self, word: MethodWord) -> Result<&'static MethodInfo, ChannelFault> {
        // CAST: an offset of a header is below 0x4000.
        let info = match self.slots.get((word.address / 4) as usize) {
            Some(Slot::Known(info)) => info,
            Some(Slot::Unmodelled(info)) => {
                return Err(word.fault(format!("{} of {} is not modelled", info.name, self.name)));
            }
            Some(Slot::Undefined) | None => {
                return Err(word.refused(Refusal::Undefined, format!("{} has no such method", self.name)));
            }
        };
        let stray = word.data & !info.named_bits();
        if stray != 0 {
            return Err(word.fault(format!("{} has no field at bits {stray:#010x}", info.name)));
        }
        Ok(info)
    }
}

/// The last value of each method of an engine, read when an action starts.
#[derive(Debug)]
pub(super) struct Shadow {
    words: Box<[u32]>,
}

impl Shadow {
    /// Creates the state of `class` with all methods at zero, as after the creation of a context.
    pub(super) fn new(class: &'static Class) -> Self {
        let end = |method: &MethodInfo| method.address + (method.count - 1) * method.stride + 4;
        let bytes = class.methods.iter().map(end).max().unwrap_or_default();
        // CAST: at most METHOD_WORDS.
        Self { words: vec![0; bytes as usize / 4].into_boxed_slice() }
    }

    /// Records a word.
    pub(super) fn set(&mut self, word: MethodWord) {
        // CAST: an offset of a header is below 0x4000.
        if let Some(slot) = self.words.get_mut((word.address / 4) as usize) {
            *slot = word.data;
        }
    }

    /// The last data word of a method.
    pub(super) fn word<M: Method>(&self) -> u32 {
        // CAST: method offsets are below 0x4000.
        self.words[(M::ADDRESS / 4) as usize]
    }

    /// The last value of a method.
    pub(super) fn get<M: Method>(&self) -> M {
        M::decode(self.word::<M>())
    }
}
