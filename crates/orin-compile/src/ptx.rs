//! The head of a PTX file: the directives `.version` and `.target`.

use cubin::fatbin::Features;

/// What a PTX file says about itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Head {
    /// Version of the language, major and minor; `None` if it cannot be read.
    pub(super) version: Option<(u32, u32)>,
    /// SM version of the GPUs that it is for; `None` if it cannot be read.
    pub(super) sm: Option<u32>,
    /// Which other GPUs it is for.
    pub(super) features: Features,
}

impl Head {
    /// Reads the first directives; comments may precede them.
    pub(super) fn of(text: &str) -> Self {
        let mut head = Self { version: None, sm: None, features: Features::Common };
        let mut rest = text;
        while let Some(word) = next_word(&mut rest) {
            match word {
                ".version" => {
                    let version = next_word(&mut rest).and_then(|text| text.split_once('.'));
                    head.version =
                        version.and_then(|(major, minor)| major.parse().ok().zip(minor.parse().ok()));
                }
                ".target" => {
                    let name =
                        next_word(&mut rest).and_then(|word| word.strip_prefix("sm_")).unwrap_or_default();
                    head.features = match name.as_bytes().last() {
                        Some(b'a') => Features::Specific,
                        Some(b'f') => Features::Family,
                        _ => Features::Common,
                    };
                    head.sm = name.trim_end_matches(['a', 'f']).parse().ok();
                    return head;
                }
                _ if head.version.is_none() => return head,
                _ => {}
            }
        }
        head
    }
}

/// The text of a whole program without the word `.extern` before arrays of shared memory that have a length, as ptxas
/// reads them; nvJitLink would look for their definition elsewhere. `None` if there is none.
pub(super) fn define_shared(text: &str) -> Option<String> {
    const WORD: &str = ".extern";
    if !text.contains(WORD) {
        return None;
    }
    let (mut rest, mut own) = (text, None::<String>);
    let has_length = |statement: &str| {
        let length = statement.rsplit_once('[').map_or("", |(_, tail)| tail.trim_start());
        length.starts_with(|c: char| c.is_ascii_digit())
    };
    while let Some(word) = next_word(&mut rest) {
        if word != WORD {
            continue;
        }
        let statement = rest.split(';').next().unwrap_or_default();
        if next_word(&mut &*statement) == Some(".shared") && has_length(statement) {
            let end = text.len() - rest.len();
            let blank = " ".repeat(WORD.len());
            own.get_or_insert_with(|| text.to_owned()).replace_range(end - WORD.len()..end, &blank);
        }
    }
    own
}

/// The next word behind white space, commas and comments.
fn next_word<'t>(rest: &mut &'t str) -> Option<&'t str> {
    let is_space = |c: char| c.is_whitespace() || c == ',';
    loop {
        *rest = rest.trim_start_matches(is_space);
        let (open, close) = if rest.starts_with("//") {
            (2, "\n")
        } else if rest.starts_with("/*") {
            (2, "*/")
        } else {
            break;
        };
        let end = rest[open..].find(close)?;
        *rest = &rest[open + end + close.len()..];
    }
    let end = rest.find(is_space).unwrap_or(rest.len());
    let (word, tail) = rest.split_at(end);
    *rest = tail;
    (!word.is_empty()).then_some(word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_arrays_with_a_length_are_defined() {
        let text = ".version 8.0\n// .extern .shared .b8 a[4];\n.extern .shared .align 8 .b8 b[ 68 ];\n\
            .extern .shared .align 16 .b8 c[];\n.extern .global .b8 d[4];\n.extern /* it */ .shared .b32 e[2];";
        let own = define_shared(text).unwrap();
        let expected = text.replace(".extern .shared .align 8", "        .shared .align 8");
        assert_eq!(own, expected.replace(".extern /* it */", "        /* it */"));
        assert_eq!(define_shared(".version 8.0\n.extern .shared .align 16 .b8 c[];\n"), None);
        assert_eq!(define_shared(".extern .shared .b8 c[4"), Some("        .shared .b8 c[4".to_owned()));
    }

    #[test]
    fn version_and_target_stand_behind_comments() {
        for (text, version, sm, features) in [
            (".version 6.0\n.target sm_50\n", Some((6, 0)), Some(50), Features::Common),
            (
                "\n//.version 1.0\n/* .target */ .version\t3.0 // x\n.target sm_20, texmode_independent",
                Some((3, 0)),
                Some(20),
                Features::Common,
            ),
            (".version 8.0\n.target sm_90a\n", Some((8, 0)), Some(90), Features::Specific),
            (".version 8.8\n.target sm_100f, debug\n", Some((8, 8)), Some(100), Features::Family),
            (".version x\n.target map_f64_to_f32\n", None, None, Features::Common),
            (".version 7.1", Some((7, 1)), None, Features::Common),
            ("// .version 7.1", None, None, Features::Common),
            ("/* .version 7.1", None, None, Features::Common),
            ("", None, None, Features::Common),
        ] {
            assert_eq!(Head::of(text), Head { version, sm, features }, "{text}");
        }
    }
}
