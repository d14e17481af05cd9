//! Text of records: `printf` by the rules of C, and failed assertions.

use core::ffi::{CStr, c_int};

use super::OutputStream;
use super::ring::Record;

/// Kinds of records (`functions.cu`).
const PRINTF: u32 = 0;
const ASSERT: u32 = 1;
/// Largest number of arguments of a call.
const MOST_ARGUMENTS: usize = 32;
/// Longest text of one conversion of a number in bytes: a kernel can ask for any width.
const LONGEST: usize = 64 << 10;

/// The words of a record that were not read yet.
struct Words<'a>(&'a [u64]);

impl Words<'_> {
    fn next(&mut self) -> Option<u64> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// A string: bytes up to a zero, padded to whole words.
    fn text(&mut self) -> Option<Vec<u8>> {
        let mut text = Vec::new();
        loop {
            let bytes = self.next()?.to_le_bytes();
            let length = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
            text.extend_from_slice(&bytes[..length]);
            if length < bytes.len() {
                return Some(text);
            }
        }
    }
}

/// The text of a record and where it belongs; `None` for a record that is not valid.
pub(super) fn text(record: &Record) -> Option<(OutputStream, Vec<u8>)> {
    let mut words = Words(&record.words);
    match record.kind {
        PRINTF => {
            let format = words.text()?;
            Some((OutputStream::Out, printf(&format, &mut words)?))
        }
        ASSERT => Some((OutputStream::Err, assertion(&mut words)?)),
        _ => None,
    }
}

fn assertion(words: &mut Words<'_>) -> Option<Vec<u8>> {
    let mut halves = [0; 8];
    for pair in halves.chunks_exact_mut(2) {
        let word = words.next()?;
        // CAST: two halves.
        (pair[0], pair[1]) = (word as u32, (word >> 32) as u32);
    }
    let [line, bx, by, bz, tx, ty, tz, _] = halves;
    let [message, file, function] =
        [words.text()?, words.text()?, words.text()?].map(|text| String::from_utf8_lossy(&text).into_owned());
    let text = format!(
        "{file}:{line}: {function}: block: [{bx},{by},{bz}], thread: [{tx},{ty},{tz}] Assertion `{message}` failed.\n"
    );
    Some(text.into_bytes())
}

/// Type of the argument of a conversion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Int,
    Long,
    Double,
    Char,
    Pointer,
    Text,
    /// `%n`, which prints nothing.
    Count,
}

/// A conversion after its percent sign.
struct Conversion {
    kind: Option<Kind>,
    /// Number of `*`.
    stars: usize,
    /// Characters up to the conversion's own.
    length: usize,
}

/// As `conversion` of `functions.cu`: any flags, digits and lengths in any order.
fn conversion(text: &[u8]) -> Conversion {
    let prefix = |byte: &u8| b"0123456789-+ #.*hljzt".contains(byte);
    let before = text.iter().take_while(|byte| prefix(byte)).count();
    let is_wide = text[..before].iter().any(|byte| b"ljzt".contains(byte));
    let kind = match text.get(before) {
        Some(b'd' | b'i' | b'u' | b'x' | b'X' | b'o') => Some(if is_wide { Kind::Long } else { Kind::Int }),
        Some(b'f' | b'F' | b'e' | b'E' | b'g' | b'G' | b'a' | b'A') => Some(Kind::Double),
        Some(b'c') => Some(Kind::Char),
        Some(b'p') => Some(Kind::Pointer),
        Some(b's') => Some(Kind::Text),
        Some(b'n') => Some(Kind::Count),
        _ => None,
    };
    let stars = text[..before].iter().filter(|byte| **byte == b'*').count();
    Conversion { kind, stars, length: (before + 1).min(text.len()) }
}

/// The output of a call; `None` if the record has too few words.
fn printf(format: &[u8], words: &mut Words<'_>) -> Option<Vec<u8>> {
    let (mut out, mut rest, mut count) = (Vec::new(), format, 0);
    while let Some(at) = rest.iter().position(|byte| *byte == b'%') {
        out.extend_from_slice(&rest[..at]);
        let all = &rest[at..];
        let found = conversion(&all[1..]);
        rest = &all[1 + found.length..];
        let own = &all[..1 + found.length];
        let Some(kind) = found.kind else {
            // `%%`, and what is no conversion.
            out.extend_from_slice(if own.ends_with(b"%") && own.len() > 1 { b"%" } else { own });
            continue;
        };
        count += found.stars + 1;
        if count > MOST_ARGUMENTS {
            // The function has stopped here.
            out.extend_from_slice(own);
            break;
        }
        // CAST: an int of the call.
        let stars =
            (0..found.stars).map(|_| Some(words.next()? as u32 as i32)).collect::<Option<Vec<i32>>>()?;
        match kind {
            Kind::Text => {
                let text = words.text()?;
                match Spec::of(own, &stars) {
                    Some(spec) => spec.pad(&text, &mut out),
                    None => out.extend_from_slice(own),
                }
            }
            _ => {
                let value = words.next()?;
                match Spec::of(own, &stars) {
                    Some(spec) => spec.number(kind, value, &mut out),
                    None => out.extend_from_slice(own),
                }
            }
        }
    }
    out.extend_from_slice(rest);
    Some(out)
}

/// A conversion whose parts are in the order of C.
struct Spec {
    flags: Vec<u8>,
    width: usize,
    precision: Option<usize>,
    length: Vec<u8>,
    conversion: u8,
}

impl Spec {
    /// `None` if the parts are in another order.
    fn of(own: &[u8], stars: &[i32]) -> Option<Self> {
        let (&conversion, prefix) = own.strip_prefix(b"%")?.split_last()?;
        let mut stars = stars.iter().copied();
        let after = prefix.iter().take_while(|byte| b"-+ #0".contains(byte)).count();
        let (mut flags, mut rest) = (prefix[..after].to_vec(), &prefix[after..]);
        let mut number = |rest: &mut &[u8]| -> Option<i32> {
            if let Some(more) = rest.strip_prefix(b"*") {
                *rest = more;
                return stars.next();
            }
            let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            let (text, more) = rest.split_at(digits);
            *rest = more;
            let text = core::str::from_utf8(text).ok()?;
            if text.is_empty() { Some(0) } else { Some(text.parse().unwrap_or(i32::MAX)) }
        };
        let width = number(&mut rest)?;
        if width < 0 {
            flags.push(b'-');
        }
        let mut precision = None;
        if let Some(more) = rest.strip_prefix(b".") {
            rest = more;
            // A negative precision counts as none.
            precision = usize::try_from(number(&mut rest)?).ok();
        }
        let width = usize::try_from(width.unsigned_abs()).ok()?.min(LONGEST);
        let precision = precision.map(|digits| digits.min(LONGEST));
        let known = [&b""[..], b"h", b"hh", b"l", b"ll", b"j", b"z", b"t"];
        known.contains(&rest).then(|| Self { flags, width, precision, length: rest.to_vec(), conversion })
    }

    /// A string, cut to the precision and padded to the width.
    fn pad(&self, text: &[u8], out: &mut Vec<u8>) {
        let text = &text[..text.len().min(self.precision.unwrap_or(usize::MAX))];
        let padding = self.width.saturating_sub(text.len());
        let left = self.flags.contains(&b'-');
        out.extend(core::iter::repeat_n(b' ', if left { 0 } else { padding }));
        out.extend_from_slice(text);
        out.extend(core::iter::repeat_n(b' ', if left { padding } else { 0 }));
    }

    /// A number, by the C library.
    fn number(&self, kind: Kind, value: u64, out: &mut Vec<u8>) {
        if kind == Kind::Count {
            return;
        }
        if kind == Kind::Char {
            // CAST: a char of the call; zero is printed as well.
            return Self { precision: None, flags: self.flags.clone(), length: Vec::new(), ..*self }
                .pad(&[value as u8], out);
        }
        if kind == Kind::Pointer && value == 0 {
            // As glibc prints it, and so NVIDIA's library; musl prints 0.
            return Self { precision: None, flags: self.flags.clone(), length: Vec::new(), ..*self }
                .pad(b"(nil)", out);
        }
        let mut spec = vec![b'%'];
        spec.extend_from_slice(&self.flags);
        if self.width > 0 {
            spec.extend_from_slice(self.width.to_string().as_bytes());
        }
        if let Some(precision) = self.precision {
            spec.extend_from_slice(format!(".{precision}").as_bytes());
        }
        match kind {
            // All lengths of 64 bits are the same.
            Kind::Long => spec.extend_from_slice(b"ll"),
            Kind::Int => spec.extend_from_slice(&self.length),
            _ => {}
        }
        spec.extend_from_slice(&[self.conversion, 0]);
        // The longest number without width and precision is a double of 309 digits.
        let mut text = vec![0_u8; self.width.max(self.precision.unwrap_or(0)) + 512];
        // PANIC: the parts contain no zero.
        let spec = CStr::from_bytes_with_nul(&spec).expect("one zero, at the end");
        let (to, size) = (text.as_mut_ptr().cast(), text.len());
        // SAFETY: `text` has `size` bytes, and the conversion, made above, takes exactly one argument of the type that
        // it is called with.
        let length: c_int = unsafe {
            match kind {
                Kind::Double => libc::snprintf(to, size, spec.as_ptr(), f64::from_bits(value)),
                Kind::Pointer => libc::snprintf(to, size, spec.as_ptr(), value as usize as *const u8),
                Kind::Long => libc::snprintf(to, size, spec.as_ptr(), value),
                // CAST: an int of the call.
                _ => libc::snprintf(to, size, spec.as_ptr(), value as u32),
            }
        };
        let length = usize::try_from(length).unwrap_or(0).min(size - 1);
        out.extend_from_slice(&text[..length]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words of strings and numbers, as the function writes them.
    fn record(kind: u32, parts: &[Result<&str, u64>]) -> Record {
        let mut words = Vec::new();
        for part in parts {
            match part {
                Ok(text) => {
                    let mut bytes = text.as_bytes().to_vec();
                    bytes.resize(bytes.len() / 8 * 8 + 8, 0);
                    words.extend(
                        bytes.chunks_exact(8).map(|word| u64::from_le_bytes(word.try_into().unwrap())),
                    );
                }
                Err(number) => words.push(*number),
            }
        }
        Record { kind, words }
    }

    fn printed(format: &str, arguments: &[Result<&str, u64>]) -> Option<String> {
        let parts: Vec<_> = [Ok(format)].into_iter().chain(arguments.iter().copied()).collect();
        text(&record(PRINTF, &parts)).map(|(_, text)| String::from_utf8(text).unwrap())
    }

    #[test]
    fn conversions_follow_c() {
        let minus = u64::from((-3_i32).cast_unsigned());
        for (format, arguments, wanted) in [
            ("%d%%", &[Err(minus)][..], "-3%"),
            ("%*d|%-*s|", &[Err(4), Err(7), Err(3), Ok("a")], "   7|a  |"),
            // A negative width is a minus and a width, a negative precision none.
            ("%*d|%.*f", &[Err(minus), Err(7), Err(minus), Err(1.5_f64.to_bits())], "7  |1.500000"),
            ("%hhd %hu %llx", &[Err(0x1ff), Err(0x1_0001), Err(1 << 40)], "-1 1 10000000000"),
            ("%.3s|%5.1s|%-3c|", &[Ok("abcdefghi"), Ok("xy"), Err(0x41)], "abc|    x|A  |"),
            (
                "%#o %+.1e %G %a",
                &[Err(8), Err(12345.0_f64.to_bits()), Err(1e20_f64.to_bits()), Err(0)],
                "010 +1.2e+04 1E+20 0x0p+0",
            ),
            ("%n%d", &[Err(1), Err(2)], "2"),
            // What is no conversion has no argument; parts in another order have.
            ("%y %5% 100%", &[], "%y % 100%"),
            ("%5-d %d", &[Err(1), Err(2)], "%5-d 2"),
        ] {
            assert_eq!(printed(format, arguments).as_deref(), Some(wanted), "{format}");
        }
        let wide = printed("%999999999d|%.999999999f", &[Err(1), Err(0)]).unwrap();
        assert!(wide.len() < 3 * LONGEST, "{}", wide.len());
    }

    #[test]
    fn damaged_records_print_nothing() {
        assert_eq!(printed("%d %d", &[Err(1)]), None);
        assert_eq!(printed("%s", &[]), None);
        for words in [vec![], vec![u64::MAX; 3], vec![0x2573_2573_2573_2573; 2]] {
            for kind in [PRINTF, ASSERT, 2] {
                assert!(text(&Record { kind, words: words.clone() }).is_none(), "{kind} {words:x?}");
            }
        }
    }

    #[test]
    fn assertions_name_the_place() {
        let parts = [
            Err(7 | 1 << 32),
            Err(2 | 3 << 32),
            Err(4 | 5 << 32),
            Err(6),
            Ok("x > 0"),
            Ok("a.cu"),
            Ok("void f()"),
        ];
        let (stream, text) = text(&record(ASSERT, &parts)).unwrap();
        assert_eq!(stream, OutputStream::Err);
        let wanted = "a.cu:7: void f(): block: [1,2,3], thread: [4,5,6] Assertion `x > 0` failed.\n";
        assert_eq!(String::from_utf8(text).unwrap(), wanted);
    }
}
