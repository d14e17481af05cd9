//! Suppressions: findings that a project knows and accepts.

use super::finding::{Finding, Kind};

/// A line of a suppressions file that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of the suppressions: {reason}")]
pub struct BadSuppression {
    /// Number of the line, from 1.
    pub line: usize,
    /// What is wrong.
    pub reason: String,
}

/// Patterns of findings to leave out.
///
/// One line per pattern: kind, kernel, and optionally the end of the source file's name with a line. `*` stands for
/// anything, in a kernel's name also for any part of it. `#` begins a comment.
///
/// ```
/// use orin_sim::check::Suppressions;
///
/// let suppressions = Suppressions::parse(
///     "# The histogram tolerates lost counts.\n\
///      global-race histogram* histogram.cu:17\n\
///      uninitialised *",
/// )?;
/// assert_eq!(suppressions.len(), 2);
/// # Ok::<(), orin_sim::check::BadSuppression>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Suppressions(Vec<Pattern>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Pattern {
    /// `None` for any kind.
    kind: Option<Kind>,
    kernel: String,
    /// End of the file's name, and a line.
    place: Option<(String, Option<u32>)>,
}

impl Suppressions {
    /// Parses the text of a file.
    ///
    /// # Errors
    ///
    /// [`BadSuppression`] for the first line that is not a pattern.
    pub fn parse(text: &str) -> Result<Self, BadSuppression> {
        let mut patterns = Vec::new();
        for (line, text) in (1..).zip(text.lines()) {
            let text = text.split('#').next().unwrap_or("").trim();
            if text.is_empty() {
                continue;
            }
            patterns.push(Pattern::parse(text).map_err(|reason| BadSuppression { line, reason })?);
        }
        Ok(Self(patterns))
    }

    /// Number of patterns.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no patterns.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a pattern matches.
    pub(super) fn matches(&self, finding: &Finding) -> bool {
        self.0.iter().any(|pattern| pattern.matches(finding))
    }
}

impl Pattern {
    fn parse(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let &[kind, kernel, ref place @ ..] = words.as_slice() else {
            return Err("it needs a kind and a kernel".to_owned());
        };
        let kind = match kind {
            "*" => None,
            id => Some(Kind::of(id).ok_or_else(|| format!("'{id}' is neither a kind of finding nor '*'"))?),
        };
        let place = match place {
            [] | ["*"] => None,
            [place] => Some(match place.rsplit_once(':') {
                Some((file, line)) => {
                    let line = line.parse().map_err(|_| format!("'{line}' is not the number of a line"))?;
                    (file.to_owned(), Some(line))
                }
                None => ((*place).to_owned(), None),
            }),
            _ => return Err("it has more than a kind, a kernel and a place".to_owned()),
        };
        Ok(Self { kind, kernel: kernel.to_owned(), place })
    }

    fn matches(&self, finding: &Finding) -> bool {
        let at = finding.at.as_ref();
        let name = at.map_or("", |at| at.kernel.as_str());
        self.kind.is_none_or(|kind| kind == finding.kind)
            && is_like(name, &self.kernel)
            && self.place.as_ref().is_none_or(|(file, line)| {
                at.is_some_and(|at| {
                    at.file.as_ref().is_some_and(|name| name.ends_with(file.as_str()))
                        && line.is_none_or(|line| at.line == Some(line))
                })
            })
    }
}

/// Whether a name matches a pattern in which `*` stands for any characters.
pub(crate) fn is_like(name: &str, pattern: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or("");
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Located;

    #[test]
    fn stars_stand_for_any_characters() {
        assert!(is_like("saxpy", "saxpy") && is_like("saxpy", "*") && is_like("saxpy", "s*y"));
        assert!(is_like("saxpy", "*xp*") && is_like("", "*") && is_like("aXbXc", "a*X*c"));
        assert!(!is_like("saxpy", "sax") && !is_like("saxpy", "s*z") && !is_like("saxpy", "x*"));
    }

    #[test]
    fn a_pattern_matches_kind_kernel_and_place() {
        let at = Located {
            kernel: "histogram".to_owned(),
            file: Some("kernels/histogram.cu".to_owned()),
            line: Some(17),
            ..Located::default()
        };
        let finding = Finding { at: Some(at), ..Finding::new(Kind::GlobalRace, String::new()) };
        let matches = |text| Suppressions::parse(text).unwrap().matches(&finding);
        assert!(matches("global-race histogram") && matches("* *") && matches("* h* histogram.cu"));
        assert!(matches("# comment\nglobal-race * histogram.cu:17 # why"));
        assert!(!matches("leak *") && !matches("* saxpy") && !matches("* * histogram.cu:18") && !matches(""));
    }

    #[test]
    fn a_line_that_is_no_pattern_is_refused_by_number() {
        for (text, line) in [("leak", 1), ("\n\nleak * a.cu:x", 3), ("leak * a b", 1)] {
            assert_eq!(Suppressions::parse(text).unwrap_err().line, line);
        }
    }
}
