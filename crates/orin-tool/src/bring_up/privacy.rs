//! Removes personal data from what a report contains.

use serde_json::Value;

/// Shortest name that is removed; a shorter one would mangle other words.
const SHORTEST: usize = 3;
/// User names that many machines share, and that occur as other words in a report.
const COMMON: [&str; 4] = ["root", "nvidia", "video", "jetson"];

/// Replaces the host name, the user name, home folders, MAC addresses and UUIDs.
#[derive(Debug, Default)]
pub(super) struct Scrubber {
    /// Text and its replacement, longest first.
    names: Vec<(String, &'static str)>,
}

impl Scrubber {
    /// A scrubber for this machine and user.
    pub(super) fn of_this_machine() -> Self {
        let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
        let variable = |name| std::env::var(name).unwrap_or_default();
        Self::new(&host, &[variable("USER"), variable("LOGNAME"), variable("SUDO_USER")], &variable("HOME"))
    }

    fn new(host: &str, users: &[String], home: &str) -> Self {
        let users = users.iter().filter(|user| !COMMON.contains(&user.as_str()));
        let home = Some((home.to_owned(), "HOME")).filter(|(home, _)| home != "/root");
        let host = (host.to_owned(), "HOST");
        let users = users.map(|user| (user.clone(), "USER"));
        let mut names: Vec<_> = home.into_iter().chain([host]).chain(users).collect();
        names.retain(|(name, _)| name.len() >= SHORTEST);
        names.sort_by_key(|(name, _)| core::cmp::Reverse(name.len()));
        Self { names }
    }

    /// The text without personal data.
    pub(super) fn text(&self, text: &str) -> String {
        let mut text = text.to_owned();
        for (name, replacement) in &self.names {
            text = replace_word(&text, name, replacement);
        }
        without(&without(&text, &MAC, "MAC"), &UUID, "UUID")
    }

    /// The value with all its strings scrubbed. Keys of objects are written by this program.
    pub(super) fn value(&self, value: &mut Value) {
        match value {
            Value::String(text) => *text = self.text(text),
            Value::Array(items) => items.iter_mut().for_each(|item| self.value(item)),
            Value::Object(fields) => fields.values_mut().for_each(|field| self.value(field)),
            _ => {}
        }
    }
}

/// Replaces `name` where it is no part of a longer word.
fn replace_word(text: &str, name: &str, replacement: &str) -> String {
    let is_word = |character: Option<char>| character.is_some_and(|character| character.is_alphanumeric());
    let (mut result, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find(name) {
        let (before, after) = (&rest[..at], &rest[at + name.len()..]);
        let inside = is_word(before.chars().next_back().or_else(|| result.chars().next_back()))
            || is_word(after.chars().next());
        result.push_str(before);
        result.push_str(if inside { name } else { replacement });
        rest = after;
    }
    result.push_str(rest);
    result
}

/// Lengths of the groups of hexadecimal digits in a MAC address.
const MAC: [usize; 6] = [2; 6];
/// Those in a UUID: NVIDIA's desktop driver prints the GPU's.
const UUID: [usize; 5] = [8, 4, 4, 4, 12];

/// Replaces groups of hexadecimal digits that are separated by colons, or by dashes.
fn without(text: &str, groups: &[usize], replacement: &str) -> String {
    let length = groups.iter().sum::<usize>() + groups.len() - 1;
    let bytes = text.as_bytes();
    let is_found = |at: usize| {
        let Some(piece) = bytes.get(at..at + length) else { return false };
        let separator = piece[groups[0]];
        let mut start = 0;
        let fits = groups.iter().all(|group| {
            let digits = piece[start..start + group].iter().all(u8::is_ascii_hexdigit);
            start += group + 1;
            digits && piece.get(start - 1).is_none_or(|byte| *byte == separator)
        });
        let edge = |byte: Option<&u8>| byte.is_none_or(|byte| !byte.is_ascii_alphanumeric());
        fits && matches!(separator, b':' | b'-')
            && edge(at.checked_sub(1).and_then(|at| bytes.get(at)))
            && edge(bytes.get(at + length))
    };
    let (mut result, mut at) = (String::with_capacity(text.len()), 0);
    while at < text.len() {
        if is_found(at) {
            result.push_str(replacement);
            at += length;
        } else {
            // PANIC: `at` is below the length and at a character's first byte.
            let character = text[at..].chars().next().expect("a character starts here");
            result.push(character);
            at += character.len_utf8();
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_and_addresses_are_replaced() {
        let scrubber = Scrubber::new("workbench7", &["alice".to_owned()], "/home/alice");
        let text = "workbench7 kernel: alice ran /home/alice/x from 48:b0:2d:12:aB:0f, workbench77 malice é";
        assert_eq!(scrubber.text(text), "HOST kernel: USER ran HOME/x from MAC, workbench77 malice é");
        let uuid = "GPU at PCI:0000:00:06: GPU-cc57ad71-ace1-5681-ea43-cba28820b603";
        assert_eq!(scrubber.text(uuid), "GPU at PCI:0000:00:06: GPU-UUID");
        let mut value = json!({ "a": ["on workbench7", 1], "b": { "c": "48-b0-2d-12-ab-0f" } });
        scrubber.value(&mut value);
        assert_eq!(value, json!({ "a": ["on HOST", 1], "b": { "c": "MAC" } }));
    }

    #[test]
    fn other_text_is_kept() {
        let scrubber = Scrubber::new("h", &["root".to_owned(), "nvidia".to_owned()], "/root");
        for text in
            ["nvidia as root", "00:11:22:33:44", "x48:b0:2d:12:ab:0f", "48:b0-2d:12:ab:0f", "17000000.gpu h"]
        {
            assert_eq!(scrubber.text(text), text);
        }
    }
}
