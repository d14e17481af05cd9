//! The parser: header, keys and values, descriptions of tensors.
//!
//! Every length and count is compared with the rest of the file before memory is allocated for it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Range;

use super::fault::Fault;
use super::value::{Array, Texts, Value};
use crate::blocks::BlockType;
use crate::error::{Error, Result};

/// Bytes of the file header: magic, version, number of tensors, number of keys.
const HEADER_BYTES: usize = 24;

/// Longest key in bytes.
const MOST_KEY_BYTES: u64 = 65_535;

/// Longest name of a tensor in bytes.
const MOST_NAME_BYTES: u64 = 64;

/// Deepest array in arrays.
const MOST_NESTING: usize = 4;

/// Most dimensions of a tensor.
const MOST_DIMENSIONS: u32 = 4;

/// Alignment of a file without `general.alignment`.
const DEFAULT_ALIGNMENT: u64 = 32;

/// The description of a tensor.
#[derive(Clone, Debug)]
pub(super) struct Info {
    pub(super) dims: Vec<usize>,
    pub(super) block: BlockType,
    /// The data's bytes in the file.
    pub(super) range: Range<usize>,
}

/// What precedes the data of a file.
#[derive(Clone, Debug)]
pub(super) struct Header {
    pub(super) values: BTreeMap<String, Value>,
    /// Names of the tensors in the file's order.
    pub(super) order: Vec<String>,
    pub(super) tensors: BTreeMap<String, Info>,
}

/// An error at a byte of the file.
fn at(offset: usize, fault: Fault) -> Error {
    Error::Gguf { offset: offset as u64, fault }
}

/// A position in the file.
struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// The next `needed` bytes.
    fn take(&mut self, needed: u64, what: &'static str) -> Result<&'a [u8]> {
        let left = self.left();
        let whole = usize::try_from(needed).ok().filter(|needed| *needed <= left);
        let Some(whole) = whole else {
            return Err(at(self.at, Fault::Truncated { what, needed, left: left as u64 }));
        };
        let bytes = &self.bytes[self.at..self.at + whole];
        self.at += whole;
        Ok(bytes)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N as u64, what)?);
        Ok(array)
    }

    fn u32(&mut self, what: &'static str) -> Result<u32> {
        self.array(what).map(u32::from_le_bytes)
    }

    fn u64(&mut self, what: &'static str) -> Result<u64> {
        self.array(what).map(u64::from_le_bytes)
    }

    fn text(&mut self, what: &'static str) -> Result<String> {
        let length = self.u64(what)?;
        self.text_of(length, what)
    }

    /// Copies first and checks the copy: another program may change the file.
    fn text_of(&mut self, length: u64, what: &'static str) -> Result<String> {
        let start = self.at;
        let copy = self.take(length, what)?.to_vec();
        String::from_utf8(copy).map_err(|_| at(start, Fault::Text { what }))
    }

    /// A text of limited length that is not empty.
    fn name(&mut self, what: &'static str, most: u64) -> Result<String> {
        let start = self.at;
        let bytes = self.u64(what)?;
        if bytes == 0 || bytes > most {
            return Err(at(start, Fault::Name { what, bytes, most }));
        }
        self.text_of(bytes, what)
    }

    /// The elements of an array of numbers.
    fn numbers<const N: usize, T>(&mut self, count: u64, from: fn([u8; N]) -> T) -> Result<Vec<T>> {
        let needed = count.saturating_mul(N as u64);
        let bytes = self.take(needed, "an array")?;
        let (elements, _) = bytes.as_chunks();
        Ok(elements.iter().map(|element| from(*element)).collect())
    }

    fn value(&mut self) -> Result<Value> {
        let start = self.at;
        Ok(match self.u32("the type of a value")? {
            0 => Value::U8(self.array("a value").map(u8::from_le_bytes)?),
            1 => Value::I8(self.array("a value").map(i8::from_le_bytes)?),
            2 => Value::U16(self.array("a value").map(u16::from_le_bytes)?),
            3 => Value::I16(self.array("a value").map(i16::from_le_bytes)?),
            4 => Value::U32(self.u32("a value")?),
            5 => Value::I32(self.array("a value").map(i32::from_le_bytes)?),
            6 => Value::F32(self.array("a value").map(f32::from_le_bytes)?),
            7 => Value::Bool(self.bool()?),
            8 => Value::Text(self.text("a text")?),
            9 => Value::Array(self.elements(1)?),
            10 => Value::U64(self.u64("a value")?),
            11 => Value::I64(self.array("a value").map(i64::from_le_bytes)?),
            12 => Value::F64(self.array("a value").map(f64::from_le_bytes)?),
            kind => return Err(at(start, Fault::ValueType(kind))),
        })
    }

    fn bool(&mut self) -> Result<bool> {
        let start = self.at;
        match self.array("a truth value")? {
            [0] => Ok(false),
            [1] => Ok(true),
            [other] => Err(at(start, Fault::Bool(other))),
        }
    }

    /// An array's type, count and elements, `depth` arrays deep.
    fn elements(&mut self, depth: usize) -> Result<Array> {
        let start = self.at;
        let kind = self.u32("the type of an array")?;
        let count = self.u64("the length of an array")?;
        Ok(match kind {
            0 => Array::U8(self.numbers(count, u8::from_le_bytes)?),
            1 => Array::I8(self.numbers(count, i8::from_le_bytes)?),
            2 => Array::U16(self.numbers(count, u16::from_le_bytes)?),
            3 => Array::I16(self.numbers(count, i16::from_le_bytes)?),
            4 => Array::U32(self.numbers(count, u32::from_le_bytes)?),
            5 => Array::I32(self.numbers(count, i32::from_le_bytes)?),
            6 => Array::F32(self.numbers(count, f32::from_le_bytes)?),
            7 => {
                let first = self.at;
                let bytes = self.numbers(count, u8::from_le_bytes)?;
                if let Some(wrong) = bytes.iter().position(|byte| *byte > 1) {
                    return Err(at(first + wrong, Fault::Bool(bytes[wrong])));
                }
                Array::Bool(bytes.into_iter().map(|byte| byte == 1).collect())
            }
            8 => {
                self.fits(count, 8)?;
                let mut texts = Texts::default();
                for _ in 0..count {
                    texts.push(&self.text("a text")?);
                }
                Array::Texts(texts)
            }
            9 if depth == MOST_NESTING => return Err(at(start, Fault::Nesting(MOST_NESTING))),
            9 => {
                self.fits(count, 12)?;
                let mut arrays = Vec::new();
                for _ in 0..count {
                    arrays.push(self.elements(depth + 1)?);
                }
                Array::Arrays(arrays)
            }
            10 => Array::U64(self.numbers(count, u64::from_le_bytes)?),
            11 => Array::I64(self.numbers(count, i64::from_le_bytes)?),
            12 => Array::F64(self.numbers(count, f64::from_le_bytes)?),
            kind => return Err(at(start, Fault::ValueType(kind))),
        })
    }

    /// Refuses `count` items of at least `bytes` each if the rest of the file is shorter.
    fn fits(&self, count: u64, bytes: u64) -> Result<()> {
        let (needed, left) = (count.saturating_mul(bytes), self.left() as u64);
        if needed <= left {
            return Ok(());
        }
        Err(at(self.at, Fault::Truncated { what: "a list", needed, left }))
    }
}

/// Parses everything in front of the data.
pub(super) fn header(bytes: &[u8]) -> Result<Header> {
    let mut cursor = Cursor { bytes, at: 0 };
    let magic = cursor.array("the magic number")?;
    if magic != *b"GGUF" {
        return Err(at(0, Fault::Magic(magic)));
    }
    match cursor.u32("the version")? {
        3 => {}
        version if version != 0 && version.swap_bytes() < 0x1_0000 => return Err(at(4, Fault::BigEndian)),
        version => return Err(at(4, Fault::Version(version))),
    }
    let tensors = cursor.u64("the number of tensors")?;
    let keys = cursor.u64("the number of keys")?;
    debug_assert_eq!(cursor.at, HEADER_BYTES);
    // A key has at least its length, a character, a type and a byte; a tensor its length, a character, a number of
    // dimensions, one of them, a format and an offset.
    cursor.fits(keys, 14)?;
    cursor.fits(tensors, 33)?;
    let mut values = BTreeMap::new();
    let mut alignment_at = HEADER_BYTES;
    for _ in 0..keys {
        let start = cursor.at;
        let key = cursor.name("a key", MOST_KEY_BYTES)?;
        if key == "general.alignment" {
            alignment_at = start;
        }
        match values.entry(key) {
            Entry::Occupied(known) => return Err(at(start, Fault::DuplicateKey(known.key().clone()))),
            Entry::Vacant(place) => place.insert(cursor.value()?),
        };
    }
    let alignment = alignment(values.get("general.alignment")).map_err(|fault| at(alignment_at, fault))?;
    let (order, infos) = described(&mut cursor, tensors)?;
    let tensors = located(&infos, &order, cursor.at, bytes.len(), alignment)?;
    Ok(Header { values, order, tensors })
}

/// The alignment of tensors in bytes.
fn alignment(value: Option<&Value>) -> Result<u64, Fault> {
    match value {
        None => Ok(DEFAULT_ALIGNMENT),
        Some(Value::U32(value)) if value.is_power_of_two() && *value >= 8 => Ok((*value).into()),
        Some(Value::U32(value)) => Err(Fault::Alignment(value.to_string())),
        Some(value) => Err(Fault::Alignment(format!("of type {}", value.kind()))),
    }
}

/// A tensor's description as stored.
struct Stored {
    /// Where the description begins in the file.
    start: usize,
    dims: Vec<usize>,
    block: BlockType,
    bytes: usize,
    /// Offset in the data section.
    offset: u64,
}

/// Reads the descriptions of the tensors: their names in order, and the rest by name.
fn described(cursor: &mut Cursor<'_>, count: u64) -> Result<(Vec<String>, BTreeMap<String, Stored>)> {
    let (mut order, mut infos) = (Vec::new(), BTreeMap::new());
    for _ in 0..count {
        let start = cursor.at;
        let name = cursor.name("the name of a tensor", MOST_NAME_BYTES)?;
        let stored = stored(cursor, start, &name)?;
        if infos.insert(name.clone(), stored).is_some() {
            return Err(at(start, Fault::DuplicateTensor(name)));
        }
        order.push(name);
    }
    Ok((order, infos))
}

fn stored(cursor: &mut Cursor<'_>, start: usize, name: &str) -> Result<Stored> {
    let name = || name.to_owned();
    let dims_at = cursor.at;
    let count = cursor.u32("the number of dimensions")?;
    if count == 0 || count > MOST_DIMENSIONS {
        return Err(at(dims_at, Fault::Dimensions { name: name(), count }));
    }
    let mut dims = Vec::new();
    for _ in 0..count {
        dims.push(cursor.u64("a dimension")?);
    }
    let weights = dims.iter().try_fold(1_u64, |product, dim| product.checked_mul(*dim));
    let Some(weights) = weights.and_then(|weights| usize::try_from(weights).ok()).filter(|count| *count > 0)
    else {
        return Err(at(dims_at, Fault::Size { name: name(), dims }));
    };
    let format_at = cursor.at;
    let id = cursor.u32("the format of a tensor")?;
    let Some(block) = BlockType::from_id(id) else {
        return Err(at(format_at, Fault::Format { name: name(), id }));
    };
    let width = dims[0];
    if width % block.weights() as u64 != 0 {
        return Err(at(dims_at, Fault::Row { name: name(), width, block: block.weights() }));
    }
    let Some(bytes) = block.bytes_for(weights) else {
        return Err(at(dims_at, Fault::Size { name: name(), dims }));
    };
    let offset = cursor.u64("the offset of a tensor")?;
    // Each divides their product, which fits.
    let dims = dims.into_iter().map(|dim| dim as usize).collect();
    Ok(Stored { start, dims, block, bytes, offset })
}

/// Places the tensors in the file, whose descriptions end at `end`.
fn located(
    infos: &BTreeMap<String, Stored>,
    order: &[String],
    end: usize,
    file_bytes: usize,
    alignment: u64,
) -> Result<BTreeMap<String, Info>> {
    let section = (end as u64).checked_next_multiple_of(alignment).unwrap_or(u64::MAX);
    let mut tensors = BTreeMap::new();
    for name in order {
        let stored = &infos[name];
        let fault = |fault| Err(at(stored.start, fault));
        if !stored.offset.is_multiple_of(alignment) {
            return fault(Fault::Misaligned { name: name.clone(), at: stored.offset, alignment });
        }
        let start = section.saturating_add(stored.offset);
        let left = (file_bytes as u64).saturating_sub(start);
        let needed = stored.bytes as u64;
        if needed > left {
            return fault(Fault::Data { name: name.clone(), needed, left });
        }
        // At least one byte follows, so the position is within the file.
        let start = start as usize;
        let info =
            Info { dims: stored.dims.clone(), block: stored.block, range: start..start + stored.bytes };
        tensors.insert(name.clone(), info);
    }
    let mut sorted: Vec<_> = tensors.iter().map(|(name, info)| (&info.range, name)).collect();
    sorted.sort_unstable_by_key(|(range, _)| range.start);
    for pair in sorted.windows(2) {
        let [(before, first), (after, second)] = [pair[0], pair[1]];
        if before.end > after.start {
            let fault = Fault::Overlap { first: first.clone(), second: second.clone() };
            return Err(at(infos[second].start, fault));
        }
    }
    Ok(tensors)
}
