//! The writer.

use std::io::{self, Write};

use super::value::{Array, Value};
use crate::blocks::BlockType;
use crate::error::{Error, Result};

/// Alignment of tensors in bytes.
const ALIGNMENT: usize = 32;

/// Makes the bytes of some rows of a tensor: of the row with this number.
type Rows<'a> = Box<dyn FnMut(usize) -> Vec<u8> + 'a>;

/// Writes GGUF files, for tests and for models with random weights.
///
/// ```
/// use infer::blocks::BlockType;
/// use infer::gguf::{File, Value, Writer};
///
/// let mut writer = Writer::new();
/// writer.key("general.architecture", Value::Text("none".to_owned()));
/// writer.tensor("rows", &[1, 3], BlockType::Bf16, |row| vec![0, row as u8])?;
/// let mut bytes = Vec::new();
/// writer.write(&mut bytes)?;
/// assert_eq!(File::from_bytes(bytes)?.tensor("rows").unwrap().bytes, [0, 0, 0, 1, 0, 2]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Default)]
pub struct Writer<'a> {
    keys: usize,
    /// Keys and values.
    values: Vec<u8>,
    tensors: usize,
    /// Descriptions of tensors.
    infos: Vec<u8>,
    /// Size of the data.
    data: usize,
    /// Rows of each tensor, bytes of a row, and what makes them.
    makers: Vec<(usize, usize, Rows<'a>)>,
}

impl core::fmt::Debug for Writer<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Writer")
            .field("keys", &self.keys)
            .field("tensors", &self.tensors)
            .finish_non_exhaustive()
    }
}

fn text(to: &mut Vec<u8>, text: &str) {
    to.extend((text.len() as u64).to_le_bytes());
    to.extend(text.as_bytes());
}

/// Zeroes up to the next aligned position.
fn padding(position: usize) -> &'static [u8] {
    const ZEROES: [u8; ALIGNMENT] = [0; ALIGNMENT];
    &ZEROES[..position.next_multiple_of(ALIGNMENT) - position]
}

impl<'a> Writer<'a> {
    /// A file without keys and tensors.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a key.
    pub fn key(&mut self, key: &str, value: Value) {
        self.keys += 1;
        text(&mut self.values, key);
        write_value(&mut self.values, &value);
    }

    /// Adds a tensor. `row` makes the bytes of each row, in order, when the file is written.
    ///
    /// # Errors
    ///
    /// [`Error::Length`] if the rows are not whole blocks.
    pub fn tensor(
        &mut self,
        name: &str,
        dims: &[usize],
        block: BlockType,
        row: impl FnMut(usize) -> Vec<u8> + 'a,
    ) -> Result<()> {
        let width = dims.first().copied().unwrap_or(1);
        let rows: usize = dims.iter().skip(1).product();
        let Some(row_bytes) = block.bytes_for(width) else {
            return Err(Error::Length {
                what: "a row",
                len: width,
                needed: width.next_multiple_of(block.weights()),
            });
        };
        self.tensors += 1;
        text(&mut self.infos, name);
        self.infos.extend((dims.len() as u32).to_le_bytes());
        for dim in dims {
            self.infos.extend((*dim as u64).to_le_bytes());
        }
        self.infos.extend(block.id().to_le_bytes());
        self.infos.extend((self.data as u64).to_le_bytes());
        self.data = (self.data + rows * row_bytes).next_multiple_of(ALIGNMENT);
        self.makers.push((rows, row_bytes, Box::new(row)));
        Ok(())
    }

    /// Writes the file.
    ///
    /// # Errors
    ///
    /// Those of `to`, and one of kind [`io::ErrorKind::InvalidData`] if a row has a wrong number of bytes.
    pub fn write(self, mut to: impl Write) -> io::Result<()> {
        let mut header = b"GGUF\x03\0\0\0".to_vec();
        header.extend((self.tensors as u64).to_le_bytes());
        header.extend((self.keys as u64).to_le_bytes());
        header.extend(self.values);
        header.extend(self.infos);
        header.extend(padding(header.len()));
        to.write_all(&header)?;
        for (rows, row_bytes, mut make) in self.makers {
            for row in 0..rows {
                let bytes = make(row);
                if bytes.len() != row_bytes {
                    return Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        "a row has a wrong number of bytes",
                    ));
                }
                to.write_all(&bytes)?;
            }
            to.write_all(padding(rows * row_bytes))?;
        }
        to.flush()
    }
}

fn write_value(to: &mut Vec<u8>, value: &Value) {
    let mut number = |kind: u32, bytes: &[u8]| {
        to.extend(kind.to_le_bytes());
        to.extend(bytes);
    };
    match value {
        Value::U8(value) => number(0, &value.to_le_bytes()),
        Value::I8(value) => number(1, &value.to_le_bytes()),
        Value::U16(value) => number(2, &value.to_le_bytes()),
        Value::I16(value) => number(3, &value.to_le_bytes()),
        Value::U32(value) => number(4, &value.to_le_bytes()),
        Value::I32(value) => number(5, &value.to_le_bytes()),
        Value::F32(value) => number(6, &value.to_le_bytes()),
        Value::Bool(value) => number(7, &[u8::from(*value)]),
        Value::U64(value) => number(10, &value.to_le_bytes()),
        Value::I64(value) => number(11, &value.to_le_bytes()),
        Value::F64(value) => number(12, &value.to_le_bytes()),
        Value::Text(value) => {
            number(8, &[]);
            text(to, value);
        }
        Value::Array(value) => {
            number(9, &[]);
            write_array(to, value);
        }
    }
}

fn write_array(to: &mut Vec<u8>, array: &Array) {
    fn all<T: Copy, const N: usize>(to: &mut Vec<u8>, kind: u32, elements: &[T], bytes: fn(T) -> [u8; N]) {
        to.extend(kind.to_le_bytes());
        to.extend((elements.len() as u64).to_le_bytes());
        elements.iter().for_each(|element| to.extend(bytes(*element)));
    }
    match array {
        Array::U8(elements) => all(to, 0, elements, u8::to_le_bytes),
        Array::I8(elements) => all(to, 1, elements, i8::to_le_bytes),
        Array::U16(elements) => all(to, 2, elements, u16::to_le_bytes),
        Array::I16(elements) => all(to, 3, elements, i16::to_le_bytes),
        Array::U32(elements) => all(to, 4, elements, u32::to_le_bytes),
        Array::I32(elements) => all(to, 5, elements, i32::to_le_bytes),
        Array::F32(elements) => all(to, 6, elements, f32::to_le_bytes),
        Array::Bool(elements) => all(to, 7, elements, |element| [u8::from(element)]),
        Array::U64(elements) => all(to, 10, elements, u64::to_le_bytes),
        Array::I64(elements) => all(to, 11, elements, i64::to_le_bytes),
        Array::F64(elements) => all(to, 12, elements, f64::to_le_bytes),
        Array::Texts(elements) => {
            to.extend(8_u32.to_le_bytes());
            to.extend((elements.len() as u64).to_le_bytes());
            elements.iter().for_each(|element| text(to, element));
        }
        Array::Arrays(elements) => {
            to.extend(9_u32.to_le_bytes());
            to.extend((elements.len() as u64).to_le_bytes());
            elements.iter().for_each(|element| write_array(to, element));
        }
    }
}
