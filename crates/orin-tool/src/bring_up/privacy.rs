//! Removes personal data from what a report contains.

use serde_json::Value;

/// Shortest name that is removed; a shorter one would mangle other words.
const SHORTEST: usize = 3;
/// User names that many machines share, and that occur as other words in a report.
const COMMON: [&str; 4] = ["root", "nvidia", "video", "jetson"];

/// Replaces the host name, the user name, home folders and MAC addresses.
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
        without_macs(&text)
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

/// Replaces what looks like a MAC address: six pairs of hexadecimal digits with colons or dashes.
fn without_macs(text: &str) -> String {
    const LENGTH: usize = 17;
    let bytes = text.as_bytes();
    let is_mac = |at: usize| {
        let Some(piece) = bytes.get(at..at + LENGTH) else { return false };
        let digits = piece.iter().enumerate().all(|(index, byte)| match index % 3 {
            2 => *byte == piece[2] && matches!(byte, b':' | b'-'),
            _ => byte.is_ascii_hexdigit(),
        });
        let edge = |byte: Option<&u8>| byte.is_none_or(|byte| !byte.is_ascii_alphanumeric());
        digits && edge(at.checked_sub(1).and_then(|at| bytes.get(at))) && edge(bytes.get(at + LENGTH))
    };
    let (mut result, mut at) = (String::with_capacity(text.len()), 0);
    while at < text.len() {
        if is_mac(at) {
            result.push_str("MAC");
            at += LENGTH;
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
