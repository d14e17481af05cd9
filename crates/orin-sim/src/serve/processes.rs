//! Processes of the host, as `/proc` shows them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// A process of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    /// Its id.
    pub(crate) id: i32,
    /// Whether it is a zombie.
    pub(crate) has_ended: bool,
}

/// The processes of the host, by the ids of their parents.
#[derive(Debug, Default)]
pub(crate) struct Tree(BTreeMap<i32, Vec<Process>>);

impl Tree {
    /// Reads `/proc`. Not atomic: processes start and end meanwhile.
    pub(crate) fn read() -> Self {
        let entries = fs::read_dir("/proc").into_iter().flatten();
        let ids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
        let mut tree = Self::default();
        for (parent, process) in
            ids.filter_map(|id| fs::read_to_string(format!("/proc/{id}/stat")).ok()).filter_map(parse)
        {
            tree.0.entry(parent).or_default().push(process);
        }
        tree
    }

    /// The descendants of a process, parents before children.
    pub(crate) fn below(&self, root: i32) -> Vec<Process> {
        self.below_all(&[root])
    }

    /// Number of descendants of a process. Orphans that are not adopted yet count as descendants.
    pub(crate) fn count_below(&self, root: i32) -> usize {
        let seen: BTreeSet<i32> = self.0.values().flatten().map(|process| process.id).collect();
        let mut roots = vec![root];
        // The kernel is the parent 0.
        roots.extend(
            self.0.keys().filter(|parent| **parent != 0 && **parent != root && !seen.contains(parent)),
        );
        self.below_all(&roots).len()
    }

    fn below_all(&self, roots: &[i32]) -> Vec<Process> {
        let children = |id: &i32| self.0.get(id).into_iter().flatten().copied();
        let mut found: Vec<Process> = roots.iter().flat_map(children).collect();
        let mut at = 0;
        while at < found.len() {
            let id = found[at].id;
            found.extend(children(&id));
            at += 1;
        }
        found
    }
}

/// Parses `/proc/PID/stat`. Returns the parent's id and the process.
fn parse(stat: String) -> Option<(i32, Process)> {
    // The name in parentheses may contain anything; state and parent follow.
    let (before, after) = stat.rsplit_once(')')?;
    let id = before.split_once(' ')?.0.parse().ok()?;
    let mut fields = after.split_ascii_whitespace();
    let has_ended = matches!(fields.next()?, "Z" | "X");
    Some((fields.next()?.parse().ok()?, Process { id, has_ended }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(lines: &[&str]) -> Tree {
        let mut tree = Tree::default();
        for (parent, process) in lines.iter().filter_map(|line| parse((*line).to_owned())) {
            tree.0.entry(parent).or_default().push(process);
        }
        tree
    }

    #[test]
    fn descendants_are_found_whatever_their_names() {
        let tree = tree(&[
            "1 (init) S 0 1 1",
            "10 (supervisor) S 1 10 10",
            "11 (a) b) Z 99 (c) S 10 10 10",
            "12 (ended) Z 11 10 10",
            "20 (other) R 1 20 20",
            "damaged",
        ]);
        let ids = |root| tree.below(root).iter().map(|process| process.id).collect::<Vec<_>>();
        assert_eq!((ids(10), ids(12), ids(20)), (vec![11, 12], vec![], vec![]));
        assert_eq!(tree.below(10).iter().filter(|process| process.has_ended).count(), 1);
        assert_eq!(tree.count_below(10), 2, "{tree:?}");
    }

    #[test]
    fn an_orphan_counts_before_it_is_adopted() {
        let tree = tree(&[
            "1 (init) S 0 1 1",
            "10 (supervisor) S 1 1 1",
            "30 (orphan) S 29 1 1",
            "31 (child) S 30 1 1",
        ]);
        assert_eq!((tree.below(10).len(), tree.count_below(10)), (0, 2));
    }

    #[test]
    fn this_process_is_below_its_parent() {
        let id = std::process::id().cast_signed();
        let parent = rustix::process::getppid().unwrap().as_raw_nonzero().get();
        assert!(Tree::read().below(parent).iter().any(|process| process.id == id && !process.has_ended));
    }
}
