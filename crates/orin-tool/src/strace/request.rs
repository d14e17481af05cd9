//! The second argument of ioctl, in each form that strace prints.

use kernel_door::{Direction, RequestInfo, encode};

use super::descriptors::Role;

/// Names that strace 4.26 to 6.1 prints for numbers of this GPU's requests: those of terminals, sound
/// timers and sound codecs, which have the same family letters.
const BORROWED_NAMES: [(&str, u32); 9] = [
    ("SNDRV_TIMER_IOCTL_TREAD_OLD", 0x4004_5402),
    ("SNDRV_TIMER_IOCTL_TREAD", 0x4004_5402),
    ("SNDCTL_TMR_STOP", 0x5403),
    ("TCSETSW", 0x5403),
    ("SNDCTL_TMR_CONTINUE", 0x5404),
    ("TCSETSF", 0x5404),
    ("TCGETA", 0x5405),
    ("HDA_IOCTL_GET_WCAP", 0xc008_4812),
    ("HDA_IOCTL_GET_WCAPS", 0xc008_4812),
];

/// A request as named in the trace.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Requested<'a> {
    /// The text in the trace.
    pub(super) text: &'a str,
    /// Its number, if known.
    pub(super) number: Option<u32>,
    /// Whether strace printed another driver's name: then it is a request of the GPU only on a
    /// descriptor known to be the GPU's.
    pub(super) borrowed: bool,
}

impl<'a> Requested<'a> {
    /// Reads one argument of ioctl.
    pub(super) fn parse(text: &'a str) -> Self {
        let known = |number, borrowed| Self { text, number, borrowed };
        let bare = text.split_once("/*").map_or(text, |(bare, _)| bare).trim();
        if let Some(number) = integer(bare) {
            return known(u32::try_from(number).ok(), false);
        }
        if let Some(number) = encoded(bare) {
            return known(Some(number), false);
        }
        let mut names = bare.split(" or ").map(str::trim);
        if let Some((_, info)) = names.clone().find_map(named) {
            return known(Some(info.code), false);
        }
        let borrowed = names.find_map(|name| BORROWED_NAMES.iter().find(|(other, _)| *other == name));
        known(borrowed.map(|(_, number)| *number), true)
    }
}

/// The GPU's request with a number, and the role that accepts it.
pub(super) fn numbered(code: u32) -> Option<(Role, RequestInfo)> {
    all().find(|(_, info)| info.code == code)
}

/// The GPU's request with a name.
fn named(name: &str) -> Option<(Role, RequestInfo)> {
    all().find(|(_, info)| info.name == name)
}

/// All requests with the role that accepts each.
fn all() -> impl Iterator<Item = (Role, RequestInfo)> {
    Role::WITH_REQUESTS.iter().flat_map(|role| role.requests().iter().map(|info| (*role, *info)))
}

/// Size of a request's argument in bytes.
pub(super) fn size(code: u32) -> u32 {
    (code >> 16) & 0x3fff
}

/// The family letter of a request.
pub(super) fn family(code: u32) -> u8 {
    // CAST: masked to 8 bits.
    ((code >> 8) & 0xff) as u8
}

/// A number in C notation: decimal, hexadecimal, or a character.
pub(super) fn integer(text: &str) -> Option<u64> {
    if let Some(hex) = text.strip_prefix("0x") {
        return u64::from_str_radix(hex, 16).ok();
    }
    match text.as_bytes() {
        [b'\'', character, b'\''] => Some((*character).into()),
        _ => text.parse().ok(),
    }
}

/// A call of one of the macros that make a request number: `_IOC(_IOC_READ|_IOC_WRITE, 0x47, 5, 16)`.
fn encoded(text: &str) -> Option<u32> {
    let (name, rest) = text.split_once('(')?;
    let arguments: Vec<&str> = rest.strip_suffix(')')?.split(',').map(str::trim).collect();
    let (direction, arguments) = match (name, arguments.as_slice()) {
        ("_IOC", [direction, rest @ ..]) => (direction_of(direction)?, rest),
        ("_IO", rest) => (Direction::None, rest),
        ("_IOW", rest) => (Direction::Write, rest),
        ("_IOR", rest) => (Direction::Read, rest),
        ("_IOWR", rest) => (Direction::ReadWrite, rest),
        _ => return None,
    };
    let (family, number, size) = match arguments {
        [family, number] => (family, number, "0"),
        [family, number, size] => (family, number, *size),
        _ => return None,
    };
    let size = usize::try_from(integer(size)?).ok().filter(|size| *size < 1 << 14)?;
    let byte = |text| u8::try_from(integer(text)?).ok();
    Some(encode(direction, byte(family)?, byte(number)?, size))
}

/// The direction in `_IOC`.
fn direction_of(text: &str) -> Option<Direction> {
    let mut bits = 0;
    for word in text.split('|').map(str::trim) {
        bits |= match word {
            "_IOC_NONE" => 0,
            "_IOC_WRITE" => 1,
            "_IOC_READ" => 2,
            number => integer(number)?,
        };
    }
    match bits {
        0 => Some(Direction::None),
        1 => Some(Direction::Write),
        2 => Some(Direction::Read),
        3 => Some(Direction::ReadWrite),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nvgpu_sys::{channel, ctrl, nvmap, tsg};

    fn number(text: &str) -> Option<u32> {
        Requested::parse(text).number
    }

    #[test]
    fn every_notation_gives_the_number() {
        for text in [
            "_IOC(_IOC_READ|_IOC_WRITE, 0x47, 0x5, 0x10)",
            "_IOC(_IOC_WRITE|_IOC_READ, 'G', 5, 16)",
            "_IOC(3, 0x47, 0x05, 0x10)",
            "_IOWR(0x47, 0x5, 0x10)",
            "0xc0104705",
            "0xc0104705 /* _IOC(_IOC_READ|_IOC_WRITE, 0x47, 0x5, 0x10) */",
            "3222292229",
            "NVGPU_GPU_IOCTL_GET_CHARACTERISTICS",
        ] {
            assert_eq!(number(text), Some(ctrl::code::GET_CHARACTERISTICS), "{text}");
        }
        // Both forms of a request that changed between releases.
        for (text, code) in [
            ("_IOC(_IOC_WRITE, 0x4e, 0x3, 0x14)", nvmap::code::ALLOC),
            ("_IOC(_IOC_WRITE, 0x4e, 0x3, 0x20)", nvmap::code::ALLOC_R39),
        ] {
            assert_eq!(number(text), Some(code));
            assert_eq!(numbered(code).unwrap().1.name, "NVMAP_IOC_ALLOC");
        }
        assert_eq!(number("_IOC(_IOC_NONE, 0x4e, 0x4, 0)"), Some(nvmap::code::FREE));
        assert_eq!(number("_IO(0x4e, 0x4)"), Some(nvmap::code::FREE));
    }

    #[test]
    fn every_request_is_read_back_from_stracess_notation() {
        for (role, info) in all() {
            let direction = ["_IOC_NONE", "_IOC_WRITE", "_IOC_READ", "_IOC_READ|_IOC_WRITE"];
            let code = info.code;
            let text = format!(
                "_IOC({}, {:#x}, {:#x}, {:#x})",
                direction[usize::try_from(code >> 30).unwrap()],
                family(code),
                code & 0xff,
                size(code)
            );
            assert_eq!(number(&text), Some(code), "{text}");
            assert_eq!(numbered(code), Some((role, info)), "no two nodes share a number");
        }
    }

    #[test]
    fn names_of_other_drivers_stand_for_their_numbers() {
        assert_eq!(number("SNDCTL_TMR_STOP or TCSETSW"), Some(tsg::code::ENABLE));
        assert_eq!(number("TCGETA"), Some(tsg::code::PREEMPT));
        assert_eq!(number("HDA_IOCTL_GET_WCAP"), Some(channel::code::SET_TIMEOUT_EX));
        assert!(Requested::parse("TCGETA").borrowed);
        assert_eq!(number("TCGETS"), None);
        for (name, number) in BORROWED_NAMES {
            assert!(numbered(number).is_some(), "{name} is not a request of the GPU");
        }
    }

    #[test]
    fn nonsense_has_no_number() {
        for text in [
            "",
            "_IOC(",
            "_IOC(1)",
            "_IOC(9, 1, 1, 1)",
            "_IOC(_IOC_READ, 0x147, 1, 1)",
            "0x1c0104705",
            "_IOR(1, 2, 16384)",
        ] {
            assert_eq!(number(text), None, "{text}");
        }
    }
}
