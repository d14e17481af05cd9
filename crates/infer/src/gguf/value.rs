//! Values of keys.

/// A list of texts, in one allocation.
///
/// ```
/// use infer::gguf::Texts;
///
/// let texts: Texts = ["one", "", "three"].into_iter().collect();
/// assert_eq!((texts.len(), texts.get(2), texts.get(3)), (3, Some("three"), None));
/// assert_eq!(texts.iter().map(str::len).sum::<usize>(), 8);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Texts {
    text: String,
    /// Where each text ends.
    ends: Vec<usize>,
}

impl Texts {
    /// Number of texts.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The text at `index`; `None` past the end.
    pub fn get(&self, index: usize) -> Option<&str> {
        let end = *self.ends.get(index)?;
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        Some(&self.text[start..end])
    }

    /// All texts in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        let mut start = 0;
        self.ends.iter().map(move |end| &self.text[std::mem::replace(&mut start, *end)..*end])
    }

    /// Adds a text.
    pub fn push(&mut self, text: &str) {
        self.text.push_str(text);
        self.ends.push(self.text.len());
    }
}

impl<'a> FromIterator<&'a str> for Texts {
    fn from_iter<I: IntoIterator<Item = &'a str>>(texts: I) -> Self {
        let mut all = Self::default();
        texts.into_iter().for_each(|text| all.push(text));
        all
    }
}

/// The value of a key.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// 8 bits, unsigned.
    U8(u8),
    /// 8 bits, signed.
    I8(i8),
    /// 16 bits, unsigned.
    U16(u16),
    /// 16 bits, signed.
    I16(i16),
    /// 32 bits, unsigned.
    U32(u32),
    /// 32 bits, signed.
    I32(i32),
    /// 32-bit float.
    F32(f32),
    /// Truth value.
    Bool(bool),
    /// UTF-8 text.
    Text(String),
    /// Values of one type.
    Array(Array),
    /// 64 bits, unsigned.
    U64(u64),
    /// 64 bits, signed.
    I64(i64),
    /// 64-bit float.
    F64(f64),
}

impl Value {
    /// The type's name.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::U8(_) => "u8",
            Self::I8(_) => "i8",
            Self::U16(_) => "u16",
            Self::I16(_) => "i16",
            Self::U32(_) => "u32",
            Self::I32(_) => "i32",
            Self::F32(_) => "f32",
            Self::Bool(_) => "bool",
            Self::Text(_) => "text",
            Self::Array(_) => "array",
            Self::U64(_) => "u64",
            Self::I64(_) => "i64",
            Self::F64(_) => "f64",
        }
    }

    /// The number of an integer of any width.
    pub fn integer(&self) -> Option<i128> {
        Some(match *self {
            Self::U8(value) => value.into(),
            Self::I8(value) => value.into(),
            Self::U16(value) => value.into(),
            Self::I16(value) => value.into(),
            Self::U32(value) => value.into(),
            Self::I32(value) => value.into(),
            Self::U64(value) => value.into(),
            Self::I64(value) => value.into(),
            _ => return None,
        })
    }

    /// The number of a float.
    pub fn float(&self) -> Option<f64> {
        match *self {
            Self::F32(value) => Some(value.into()),
            Self::F64(value) => Some(value),
            _ => None,
        }
    }
}

/// The elements of an array.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Array {
    /// 8 bits, unsigned.
    U8(Vec<u8>),
    /// 8 bits, signed.
    I8(Vec<i8>),
    /// 16 bits, unsigned.
    U16(Vec<u16>),
    /// 16 bits, signed.
    I16(Vec<i16>),
    /// 32 bits, unsigned.
    U32(Vec<u32>),
    /// 32 bits, signed.
    I32(Vec<i32>),
    /// 32-bit floats.
    F32(Vec<f32>),
    /// Truth values.
    Bool(Vec<bool>),
    /// UTF-8 texts.
    Texts(Texts),
    /// Arrays.
    Arrays(Vec<Array>),
    /// 64 bits, unsigned.
    U64(Vec<u64>),
    /// 64 bits, signed.
    I64(Vec<i64>),
    /// 64-bit floats.
    F64(Vec<f64>),
}

impl Array {
    /// Number of elements.
    pub fn len(&self) -> usize {
        match self {
            Self::U8(all) => all.len(),
            Self::I8(all) => all.len(),
            Self::U16(all) => all.len(),
            Self::I16(all) => all.len(),
            Self::U32(all) => all.len(),
            Self::I32(all) => all.len(),
            Self::F32(all) => all.len(),
            Self::Bool(all) => all.len(),
            Self::Texts(all) => all.len(),
            Self::Arrays(all) => all.len(),
            Self::U64(all) => all.len(),
            Self::I64(all) => all.len(),
            Self::F64(all) => all.len(),
        }
    }

    /// Whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
