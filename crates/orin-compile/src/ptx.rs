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
