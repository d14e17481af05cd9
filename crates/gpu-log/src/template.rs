//! Templates: one text that both formats a line and captures the values of one.
//!
//! A template is a format string with named fields, for example `"TSG {tsg} generated a mmu fault"`. The text before
//! a field identifies the value: [`capture`] looks for its last words, so that a line of another driver release whose
//! fixed numbers or spacing differ is still understood.

use core::fmt;

/// Values captured from a line, in the order of the template's fields.
#[derive(Debug)]
pub(crate) struct Captured<'a> {
    values: std::vec::IntoIter<(&'a str, bool)>,
}

impl Captured<'_> {
    /// Reads the next value; `None` if it is not a value of the type.
    pub(crate) fn read<T: Value>(&mut self) -> Option<T> {
        let (text, hexadecimal) = self.values.next()?;
        T::parse(text, if hexadecimal { 16 } else { 10 })
    }
}

/// The literal text before a field, then the field.
struct Piece<'t> {
    before: &'t str,
    hexadecimal: bool,
    /// The literal text between this field and the next one, or the end.
    behind: &'t str,
}

fn pieces(template: &str) -> impl Iterator<Item = Piece<'_>> {
    let mut rest = template;
    std::iter::from_fn(move || {
        let (before, field) = rest.split_once('{')?;
        let (field, behind) = field.split_once('}')?;
        rest = behind;
        let behind = behind.split('{').next().unwrap_or_default();
        Some(Piece { before, hexadecimal: field.contains(':') && field.ends_with('x'), behind })
    })
}

/// The words of a literal that identify the value after it: those after its last comma or digit, or all of them.
fn label(before: &str) -> &str {
    let words = before.rsplit(|c: char| c == ',' || c.is_ascii_digit()).next().unwrap_or(before).trim();
    if words.is_empty() { before.trim() } else { words }
}

/// The text that ends a value: the literal after it up to its first digit. Empty at the end of a template.
fn stop(behind: &str) -> &str {
    let words = behind.split(|c: char| c.is_ascii_digit()).next().unwrap_or(behind).trim_end();
    if words.is_empty() { behind } else { words }
}

/// Finds the values of the fields of `template` in `text`; `None` if one is missing.
pub(crate) fn capture<'a>(template: &str, text: &'a str) -> Option<Captured<'a>> {
    let mut values = Vec::new();
    let mut rest = text;
    for (index, piece) in pieces(template).enumerate() {
        let label = label(piece.before);
        let end;
        if index == 0 && label.is_empty() {
            // The line begins with the value, after the log's prefix of each message.
            end = rest.find(piece.behind)?;
            values.push((rest[..end].split_whitespace().next_back()?, piece.hexadecimal));
        } else {
            rest = rest[rest.find(label)? + label.len()..].trim_start();
            // A message that was cut off ends inside its last value.
            let stop = Some(stop(piece.behind)).filter(|stop| !stop.is_empty());
            end = stop.and_then(|stop| rest.find(stop)).unwrap_or(rest.len());
            values.push((rest[..end].trim_end(), piece.hexadecimal));
        }
        rest = &rest[end..];
    }
    Some(Captured { values: values.into_iter() })
}

/// A value in a line.
pub(crate) trait Value: Sized {
    /// Reads a value; `radix` is the one of the template.
    fn parse(text: &str, radix: u32) -> Option<Self>;
}

/// The number at the start of `text`, without its prefix.
fn digits(text: &str, radix: u32) -> &str {
    let text = if radix == 16 { text.strip_prefix("0x").unwrap_or(text) } else { text };
    let end = text.find(|c: char| !c.is_digit(radix) && c != '-').unwrap_or(text.len());
    &text[..end]
}

macro_rules! numbers {
    ($($type:ty),*) => {$(
        impl Value for $type {
            fn parse(text: &str, radix: u32) -> Option<Self> {
                Self::from_str_radix(digits(text, radix), radix).ok()
            }
        }
    )*};
}
numbers!(u32, u64, usize, i32);

impl Value for String {
    fn parse(text: &str, _: u32) -> Option<Self> {
        Some(text.to_owned())
    }
}

/// An address as the desktop driver prints it: hexadecimal, with `_` above the low 32 bits.
///
/// ```
/// use gpu_log::SplitHex;
///
/// // As the desktop driver prints addresses.
/// assert_eq!(SplitHex(0x30_0000_1000).to_string(), "0x30_00001000");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SplitHex(pub u64);

impl fmt::Display for SplitHex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}_{:08x}", self.0 >> 32, self.0 & 0xffff_ffff)
    }
}

impl Value for SplitHex {
    fn parse(text: &str, _: u32) -> Option<Self> {
        let text = text.strip_prefix("0x")?;
        let end = text.find(|c: char| !c.is_ascii_hexdigit() && c != '_').unwrap_or(text.len());
        u64::from_str_radix(&text[..end].replace('_', ""), 16).ok().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_by_the_words_before_them() {
        let template = "x id:  {id}, aperture: 0, type: {kind}, at {va:#x} for channel {channel}";
        let mut values =
            capture(template, "x id: 7, aperture: 3, type: a b, at 0x1f for channel 9!").unwrap();
        assert_eq!(values.read::<u32>(), Some(7));
        assert_eq!(values.read::<String>().as_deref(), Some("a b"));
        assert_eq!((values.read::<u64>(), values.read::<u32>()), (Some(0x1f), Some(9)));
        assert_eq!(values.read::<u32>(), None);
        assert!(capture(template, "x id: 7, aperture: 3").is_none());
    }

    #[test]
    fn a_line_that_begins_with_a_value_may_have_a_prefix() {
        let mut values = capture("{count} left on {va:#x}", "nvgpu: f:1 [WRN]  12 left on 0x40").unwrap();
        assert_eq!((values.read::<u32>(), values.read::<u64>()), (Some(12), Some(0x40)));
    }

    #[test]
    fn a_message_that_was_cut_off_keeps_what_it_has() {
        let mut values = capture("kind: {kind}, access: {access}, ", "kind: pte, access: virt re").unwrap();
        assert_eq!(values.read::<String>().as_deref(), Some("pte"));
        assert_eq!(values.read::<String>().as_deref(), Some("virt re"));
    }

    #[test]
    fn numbers_that_do_not_fit_are_none() {
        assert_eq!(u32::parse("4294967296", 10), None);
        assert_eq!((i32::parse("-14]", 10), u32::parse("-1", 10)), (Some(-14), None));
        assert_eq!((u64::parse("0x10 y", 16), u64::parse("", 16)), (Some(16), None));
        assert_eq!(SplitHex::parse("0x30_00000010.", 16), Some(SplitHex(0x30_0000_0010)));
        assert_eq!(SplitHex(0x30_0000_0010).to_string(), "0x30_00000010");
    }
}
