//! Static libraries (`ar`): the members.

/// First bytes of an archive.
const MAGIC: &[u8] = b"!<arch>\n";
/// Size of a member's header in bytes: a decimal size at offset 48, and two bytes that end it.
const HEADER_BYTES: usize = 60;

/// The contents of the members, including the archive's own tables. Ends at the first damaged header.
pub(super) fn members(archive: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = archive.strip_prefix(MAGIC).unwrap_or_default();
    std::iter::from_fn(move || {
        let (header, tail) = rest.split_at_checked(HEADER_BYTES)?;
        let size = header.ends_with(b"`\n").then(|| str::from_utf8(&header[48..58]).ok()).flatten()?;
        let (content, tail) = tail.split_at_checked(size.trim_end().parse().ok()?)?;
        // Members begin at even offsets.
        rest = tail.get(content.len() % 2..).unwrap_or_default();
        Some(content)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A member as `ar` writes it.
    fn member(content: &[u8]) -> Vec<u8> {
        let header = format!("{:<48}{:<10}`\n", "name.o/", content.len());
        let padding: &[u8] = if content.len() % 2 == 1 { b"\n" } else { b"" };
        [header.as_bytes(), content, padding].concat()
    }

    #[test]
    fn members_follow_each_other_until_the_first_damage() {
        let archive = [MAGIC, &member(b"one"), &member(b""), &member(b"four")].concat();
        let all = |archive: &[u8]| members(archive).map(<[u8]>::to_vec).collect::<Vec<_>>();
        assert_eq!(all(&archive), [&b"one"[..], b"", b"four"]);
        for (cut, count) in
            [(archive.len() - 1, 2), (MAGIC.len() + 62, 0), (MAGIC.len() + 63, 1), (8, 0), (7, 0)]
        {
            assert_eq!(all(&archive[..cut]).len(), count, "{cut}");
        }
        let mut damaged = archive;
        damaged[8 + 48] = b'x';
        assert!(all(&damaged).is_empty());
    }
}
