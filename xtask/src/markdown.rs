//! Links and headings of Markdown files.

use std::collections::HashMap;
use std::ops::Range;

/// A link of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    /// Line of its target, from 1.
    pub(crate) line: usize,
    /// Bytes of its target in the document.
    pub(crate) range: Range<usize>,
}

/// A heading of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Heading {
    /// 1 for the title.
    pub(crate) level: usize,
    /// Its anchor, as code hosts and mdBook make it.
    pub(crate) anchor: String,
}

/// The links and images of a document, outside of code: `[text](target)`, and lines `[name]: target`.
pub(crate) fn links(text: &str) -> Vec<Link> {
    let prose = without_code(text);
    let inline = prose.match_indices("](").map(|(position, _)| position + 2);
    let names = prose.match_indices("]: ").map(|(position, _)| position + 3);
    let begins = |start: &usize| {
        let line = &prose[prose[..*start].rfind('\n').map_or(0, |end| end + 1)..*start];
        line.starts_with('[') && line.find(']') == Some(line.len() - 3)
    };
    let mut starts: Vec<usize> = inline.chain(names.filter(begins)).collect();
    starts.sort_unstable();
    let mut links = Vec::new();
    for start in starts {
        let length = prose[start..].find([')', ' ', '\n']).unwrap_or(0);
        links.push(Link { line: 1 + text[..start].matches('\n').count(), range: start..start + length });
    }
    links
}

/// The headings of a document.
pub(crate) fn headings(text: &str) -> Vec<Heading> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let mut headings = Vec::new();
    let blocks = without_blocks(text);
    for line in blocks.lines() {
        let level = line.len() - line.trim_start_matches('#').len();
        let Some(title) = line[level..].strip_prefix(' ').filter(|_| (1..=6).contains(&level)) else {
            continue;
        };
        let name = anchor(title);
        let count = seen.entry(name.clone()).or_default();
        let anchor = if *count == 0 { name } else { format!("{name}-{count}") };
        *count += 1;
        headings.push(Heading { level, anchor });
    }
    headings
}

/// The anchor of a title: letters, digits, `-` and `_`, with `-` for white space.
fn anchor(title: &str) -> String {
    // A link counts with its text.
    let mut shown = String::new();
    let mut rest = title.trim();
    while let Some((before, after)) = rest.split_once("](") {
        shown += before;
        rest = after.split_once(')').map_or("", |(_, after)| after);
    }
    shown += rest;
    let kept = shown.chars().filter(|c| c.is_alphanumeric() || matches!(c, '-' | '_' | ' '));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// The text with spaces in place of fenced blocks; each byte keeps its position.
fn without_blocks(text: &str) -> String {
    let mut fence: Option<String> = None;
    let mut result = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let trimmed = line.trim_start();
        let mark: String = trimmed.chars().take_while(|&c| matches!(c, '`' | '~')).collect();
        let is_code = match &fence {
            None if mark.len() >= 3 => {
                fence = Some(mark);
                true
            }
            Some(open) => {
                if mark.starts_with(open.as_str()) && trimmed.trim_end() == mark {
                    fence = None;
                }
                true
            }
            None => false,
        };
        if is_code {
            result.push_str(&blank(line));
        } else {
            result.push_str(line);
        }
    }
    result
}

/// The text with spaces in place of fenced blocks and code; each byte keeps its position.
fn without_code(text: &str) -> String {
    let blocks = without_blocks(text);
    let mut result = String::with_capacity(blocks.len());
    let mut rest = blocks.as_str();
    while let Some(start) = rest.find('`') {
        let ticks = rest[start..].len() - rest[start..].trim_start_matches('`').len();
        let (before, from) = rest.split_at(start);
        let mark = &from[..ticks];
        // Code ends within its paragraph.
        let paragraph = from.find("\n\n").unwrap_or(from.len());
        let end = from[ticks..paragraph].find(mark).map_or(ticks, |length| ticks + length + ticks);
        result.push_str(before);
        result.push_str(&blank(&from[..end]));
        rest = &from[end..];
    }
    result + rest
}

/// Spaces for all bytes but the ends of lines.
fn blank(text: &str) -> String {
    text.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
# The page: `a_b`, C++ and [a link](x.md)

See [one](one.md#part), [`two`](two.md) and `[no](no.md)`, `code over
a line [no](no.md)` µ ![image](three.png \"title\").

```text
# no heading [no](no.md)
```

## Part

## Part

[name]: four.md
 [no]: no.md
";

    #[test]
    fn links_outside_of_code_are_found() {
        let found: Vec<_> = links(PAGE).into_iter().map(|link| (link.line, &PAGE[link.range])).collect();
        assert_eq!(
            found,
            [(1, "x.md"), (3, "one.md#part"), (3, "two.md"), (4, "three.png"), (14, "four.md")]
        );
    }

    #[test]
    fn headings_have_the_anchors_of_code_hosts() {
        let found: Vec<_> =
            headings(PAGE).into_iter().map(|heading| (heading.level, heading.anchor)).collect();
        let wanted = [(1, "the-page-a_b-c-and-a-link"), (2, "part"), (2, "part-1")];
        assert_eq!(found, wanted.map(|(level, anchor)| (level, anchor.to_owned())));
    }
}
