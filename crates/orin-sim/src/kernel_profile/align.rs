//! Which source line of a run is which line of an earlier one, by their texts.

use std::collections::BTreeMap;

use super::report::KernelProfile;

/// Most pairs of lines that are compared.
const MOST: usize = 1 << 22;

/// A source line of either run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Row {
    /// Its number now; in the earlier run if this one lacks it.
    pub(super) line: u32,
    /// Whether this run lacks it.
    pub(super) removed: bool,
}

/// The lines of an earlier run as lines of this one, by name of the file and line then. A file without recorded text
/// has none: its lines keep their numbers.
pub(super) fn rows(old: &KernelProfile, new: &KernelProfile) -> BTreeMap<(String, u32), Row> {
    let [old, new] = [old, new].map(texts);
    let pairs = old.iter().filter_map(|(name, lines)| Some((name, lines, new.get(name)?)));
    let known = pairs.filter(|(_, old, new)| old.len().saturating_mul(new.len()) <= MOST);
    known
        .flat_map(|(name, old, new)| align(old, new).map(|(line, row)| ((name.clone(), line), row)))
        .collect()
}

/// The lines with instructions and their texts, by name of the file, of files all of whose lines have one.
fn texts(profile: &KernelProfile) -> BTreeMap<String, Vec<(u32, &str)>> {
    let mut files: BTreeMap<String, Option<Vec<(u32, &str)>>> = BTreeMap::new();
    for line in profile.lines() {
        let text = profile.source.get(&line.file).and_then(|texts| texts.get(&line.line));
        let lines = files.entry(file_name(&line.file).to_owned()).or_insert_with(|| Some(Vec::new()));
        match text {
            Some(text) => lines.iter_mut().for_each(|lines| lines.push((line.line, text.trim()))),
            None => *lines = None,
        }
    }
    files.into_iter().filter_map(|(name, lines)| Some((name, lines?))).collect()
}

/// The name of a file without its folder.
pub(super) fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or_default()
}

/// Pairs lines: the longest common sequence of texts, and between two of its lines as many changed lines on both sides.
fn align(old: &[(u32, &str)], new: &[(u32, &str)]) -> impl Iterator<Item = (u32, Row)> + use<> {
    let (height, width) = (old.len(), new.len());
    let at = |row: usize, column: usize| row * (width + 1) + column;
    // Length of the longest common sequence of the lines from each pair on.
    let mut longest = vec![0_u32; (height + 1) * (width + 1)];
    for row in (0..height).rev() {
        for column in (0..width).rev() {
            longest[at(row, column)] = match old[row].1 == new[column].1 {
                true => 1 + longest[at(row + 1, column + 1)],
                false => longest[at(row + 1, column)].max(longest[at(row, column + 1)]),
            };
        }
    }
    let (mut row, mut column, mut first) = (0, 0, (0, 0));
    let mut pairs = Vec::with_capacity(height);
    loop {
        let is_end = row == height || column == width;
        if is_end {
            (row, column) = (height, width);
        }
        if is_end || old[row].1 == new[column].1 {
            let are_changed = row - first.0 == column - first.1;
            pairs.extend((first.0..row).map(|at| {
                let now = are_changed.then(|| new[first.1 + at - first.0].0);
                (old[at].0, Row { line: now.unwrap_or(old[at].0), removed: now.is_none() })
            }));
            if is_end {
                return pairs.into_iter();
            }
            pairs.push((old[row].0, Row { line: new[column].0, removed: false }));
            (row, column) = (row + 1, column + 1);
            first = (row, column);
        } else if longest[at(row + 1, column)] >= longest[at(row, column + 1)] {
            row += 1;
        } else {
            column += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_paired_by_their_texts() {
        let old = [(3, "a"), (4, "sync"), (5, "b"), (6, "sync"), (7, "c"), (9, "d")];
        // A line before all, one between, a changed one, and two for one.
        let new = [
            (3, "x"),
            (4, "a"),
            (5, "sync"),
            (6, "y"),
            (7, "b2"),
            (8, "sync"),
            (9, "c"),
            (10, "e"),
            (11, "f"),
        ];
        let rows: Vec<_> = align(&old, &new).map(|(old, row)| (old, row.line, row.removed)).collect();
        assert_eq!(
            rows,
            [(3, 4, false), (4, 5, false), (5, 5, true), (6, 8, false), (7, 9, false), (9, 9, true)]
        );
        let changed = [(3, "a"), (4, "sync"), (5, "B"), (6, "sync"), (7, "c"), (9, "D")];
        assert!(align(&old, &changed).all(|(old, row)| row == Row { line: old, removed: false }));
        assert!(align(&old, &[]).all(|(old, row)| row == Row { line: old, removed: true }));
        assert_eq!(align(&[], &new).count(), 0);
    }
}
