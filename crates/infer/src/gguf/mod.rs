//! GGUF files: the weights, shape and vocabulary of a language model.
//!
//! A file has a header, keys with values, descriptions of tensors, and the tensors' data. [`File::open`] maps the file,
//! checks everything in front of the data, and copies it. The sizes of all allocations are bounded by a small multiple
//! of the file's size. Version 3 for little-endian machines is accepted, nothing else. A model in several files is
//! opened by the path of any of them.

pub(crate) mod fault;
mod parts;
mod read;
mod value;
mod write;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use memmap2::{Mmap, UncheckedAdvice};

pub use fault::{Fault, PartFault};
pub use value::{Array, Texts, Value};
pub use write::Writer;

use crate::blocks::BlockType;
use crate::error::{Error, Result};
use read::Header;

/// A GGUF file.
///
/// ```
/// use infer::blocks::BlockType;
/// use infer::gguf::{File, Value, Writer};
///
/// let mut writer = Writer::new();
/// writer.key("general.name", Value::Text("two weights".to_owned()));
/// writer.tensor("pair", &[2], BlockType::F32, |_| vec![0, 0, 128, 63, 0, 0, 0, 64])?;
/// let mut bytes = Vec::new();
/// writer.write(&mut bytes)?;
///
/// let file = File::from_bytes(bytes)?;
/// assert_eq!(file.text("general.name")?, Some("two weights"));
/// let pair = file.tensor("pair").unwrap();
/// assert_eq!((pair.dims, pair.block, pair.bytes.len()), (&[2][..], BlockType::F32, 8));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct File {
    /// Of the first part.
    values: BTreeMap<String, Value>,
    /// Names of the tensors, in the order of the parts.
    order: Vec<String>,
    /// Each tensor with the number of its part.
    tensors: BTreeMap<String, (usize, read::Info)>,
    /// One, or those of a model in several files.
    parts: Vec<Data>,
}

/// Where the bytes are.
#[derive(Debug)]
enum Data {
    Memory(Vec<u8>),
    Mapped { map: Mmap, path: PathBuf, file: fs::File, identity: Identity },
}

/// Detects writes by other programs: size of the file, and seconds and nanoseconds of its last change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity(u64, i64, i64);

impl Identity {
    fn of(metadata: &fs::Metadata) -> Self {
        Self(metadata.len(), metadata.mtime(), metadata.mtime_nsec())
    }
}

impl Data {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Memory(bytes) => bytes,
            Self::Mapped { map, .. } => map,
        }
    }

    /// Maps a file and reads everything in front of the data.
    fn open(path: &Path) -> Result<(Header, Self)> {
        let failed = |error| Error::Open { path: path.to_owned(), error };
        // Opening a pipe would wait for its writer.
        if !fs::metadata(path).map_err(failed)?.is_file() {
            return Err(failed(std::io::Error::other("is not a regular file")));
        }
        let file = fs::File::open(path).map_err(failed)?;
        let identity = Identity::of(&file.metadata().map_err(failed)?);
        // SAFETY: the map owns its pages until it is dropped, and it is only read. Nothing can keep other programs
        // from writing to the file meanwhile, so the bytes behind `&[u8]` may change. What depends on their values is
        // safe all the same: `read::header` reads names, values, sizes and offsets once, and checks copies of them.
        // The data of tensors has no invalid values, and no bound depends on it. A changed file can give wrong
        // weights, which `unchanged` detects.
        let map = unsafe { Mmap::map(&file) }.map_err(failed)?;
        let header = read::header(&map)?;
        Ok((header, Self::Mapped { map, path: path.to_owned(), file, identity }))
    }

    fn unchanged(&self) -> Result<()> {
        let Self::Mapped { path, file, identity, .. } = self else { return Ok(()) };
        let now = file.metadata().map_err(|error| Error::Open { path: path.clone(), error })?;
        if Identity::of(&now) == *identity { Ok(()) } else { Err(Error::Changed(path.clone())) }
    }
}

/// A tensor of a file.
#[derive(Clone, Copy, Debug)]
pub struct Tensor<'a> {
    /// Its name.
    pub name: &'a str,
    /// Sizes of the dimensions; the first is that of the weights that follow each other. A matrix is
    /// `[inputs, outputs]`.
    pub dims: &'a [usize],
    /// The format of its weights.
    pub block: BlockType,
    /// The weights: as many whole blocks as the dimensions need.
    pub bytes: &'a [u8],
}

impl File {
    /// Maps a file and reads everything in front of the data.
    ///
    /// If `split.count` says that the model has several files, the others are opened too. They are in the same folder
    /// under the same name, but for its end: `-00002-of-00005.gguf` is the second of five. Keys are those of the first.
    ///
    /// Other programs should not write to the file while it is open: see [`File::unchanged`]. If one truncates the
    /// file, access to the missing bytes ends this program with SIGBUS.
    ///
    /// # Errors
    ///
    /// [`Error::Open`] if a file cannot be opened and mapped, or is a folder, pipe or device; [`Error::Gguf`] if it
    /// is damaged or not supported; [`Error::Part`] if the files do not belong together.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let (header, data) = Data::open(path)?;
        let file = Self::of(header, data);
        match file.part()? {
            Some(part) => parts::open(path, file, part),
            None => Ok(file),
        }
    }

    /// Reads a file that is in memory.
    ///
    /// # Errors
    ///
    /// [`Error::Gguf`] if it is damaged or not supported.
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self> {
        Ok(Self::of(read::header(&bytes)?, Data::Memory(bytes)))
    }

    /// A model in one file.
    fn of(Header { values, order, tensors }: Header, data: Data) -> Self {
        let tensors = tensors.into_iter().map(|(name, info)| (name, (0, info))).collect();
        Self { values, order, tensors, parts: vec![data] }
    }

    /// Number of files that the model consists of.
    pub fn parts(&self) -> usize {
        self.parts.len()
    }

    /// Size of all files in bytes.
    pub fn len(&self) -> usize {
        self.parts.iter().map(|part| part.bytes().len()).sum()
    }

    /// Whether the files have no bytes; never true, because such a file is refused.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns an error if another program changed a file since [`File::open`]. Call it after reading the weights.
    ///
    /// # Errors
    ///
    /// [`Error::Changed`] if size or time of the last change differ; [`Error::Open`] if they cannot be read.
    pub fn unchanged(&self) -> Result<()> {
        self.parts.iter().try_for_each(Data::unchanged)
    }

    /// All keys and values, sorted by key.
    pub fn values(&self) -> impl ExactSizeIterator<Item = (&str, &Value)> {
        self.values.iter().map(|(key, value)| (key.as_str(), value))
    }

    /// The value of a key; `None` if the file does not have it.
    pub fn value(&self, key: &str) -> Option<&Value> {
        self.values.get(key)
    }

    /// The number of a key, of any integer type; `None` if the file does not have the key.
    ///
    /// # Errors
    ///
    /// [`Error::Value`] if the value is not an integer that fits.
    pub fn integer<T: TryFrom<i128>>(&self, key: &str) -> Result<Option<T>> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let fitting = value.integer().and_then(|number| T::try_from(number).ok());
        fitting.map(Some).ok_or_else(|| wrong(key, value, "an integer that fits"))
    }

    /// The number of a key, a float; `None` if the file does not have the key.
    ///
    /// # Errors
    ///
    /// [`Error::Value`] if the value is of another type, or not finite.
    pub fn float(&self, key: &str) -> Result<Option<f64>> {
        let Some(value) = self.value(key) else { return Ok(None) };
        let finite = value.float().filter(|number| number.is_finite());
        finite.map(Some).ok_or_else(|| wrong(key, value, "a finite float"))
    }

    /// The truth value of a key; `None` if the file does not have the key.
    ///
    /// # Errors
    ///
    /// [`Error::Value`] if the value is of another type.
    pub fn bool(&self, key: &str) -> Result<Option<bool>> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::Bool(value)) => Ok(Some(*value)),
            Some(value) => Err(wrong(key, value, "a truth value")),
        }
    }

    /// The text of a key; `None` if the file does not have the key.
    ///
    /// # Errors
    ///
    /// [`Error::Value`] if the value is of another type.
    pub fn text(&self, key: &str) -> Result<Option<&str>> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::Text(value)) => Ok(Some(value)),
            Some(value) => Err(wrong(key, value, "a text")),
        }
    }

    /// The texts of a key; `None` if the file does not have the key.
    ///
    /// # Errors
    ///
    /// [`Error::Value`] if the value is of another type.
    pub fn texts(&self, key: &str) -> Result<Option<&Texts>> {
        match self.value(key) {
            None => Ok(None),
            Some(Value::Array(Array::Texts(value))) => Ok(Some(value)),
            Some(value) => Err(wrong(key, value, "an array of texts")),
        }
    }

    /// The tensors in the file's order.
    pub fn tensors(&self) -> impl ExactSizeIterator<Item = Tensor<'_>> {
        self.order.iter().map(|name| self.described(name, &self.tensors[name]))
    }

    /// A tensor by name; `None` if the file does not have it.
    pub fn tensor(&self, name: &str) -> Option<Tensor<'_>> {
        self.tensors.get_key_value(name).map(|(name, info)| self.described(name, info))
    }

    fn described<'a>(&'a self, name: &'a str, (part, info): &'a (usize, read::Info)) -> Tensor<'a> {
        let bytes = &self.parts[*part].bytes()[info.range.clone()];
        Tensor { name, dims: &info.dims, block: info.block, bytes }
    }

    /// Takes the pages of a part of the file out of this process: call it after a copy was made, so that weights do not
    /// occupy memory twice. Later accesses read the file again. Does nothing for bytes of other memory. Failures are
    /// ignored: the kernel then takes the pages when it needs memory.
    pub fn release(&self, part: &[u8]) {
        for data in &self.parts {
            let Data::Mapped { map, .. } = data else { continue };
            let Some(start) = part.as_ptr().addr().checked_sub(map.as_ptr().addr()) else { continue };
            if start.checked_add(part.len()).is_none_or(|end| end > map.len()) {
                continue;
            }
            // SAFETY: the pages belong to a read-only map of a file, so the next access reads the same file again. The
            // range is within the map: it was checked.
            let _ = unsafe { map.unchecked_advise_range(UncheckedAdvice::DontNeed, start, part.len()) };
        }
    }
}

fn wrong(key: &str, value: &Value, needed: &'static str) -> Error {
    Error::Value { key: key.to_owned(), kind: value.kind(), needed }
}
