//! What the program has said about ranges of managed memory. The memory is coherent and does not move, so that nobody
//! but the program asks for it.

use parking_lot::Mutex;

/// A place of memory, as `CUmemLocation`: its type (1 a device, 2 the host, 3 and 4 a node of the host), and its
/// number.
pub type Location = (u32, i32);

/// What a hint is about. A newer one of the same kind replaces an older one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// The memory is mostly read.
    ReadMostly,
    /// Where it should be.
    Preferred,
    /// A device will access it.
    AccessedBy(i32),
    /// Where it was prefetched to last.
    Prefetch,
}

#[derive(Clone, Copy, Debug)]
struct Hint {
    /// First address, and the one after the last.
    range: (u64, u64),
    topic: Topic,
    /// `None` if an earlier hint was taken back.
    value: Option<Location>,
}

/// The hints of a GPU's managed memory, oldest first.
#[derive(Debug, Default)]
pub struct Hints(Mutex<Vec<Hint>>);

/// The range of bytes at an address.
fn range(address: u64, bytes: usize) -> (u64, u64) {
    (address, address.saturating_add(bytes as u64))
}

impl Hints {
    /// Gives a hint, or takes it back.
    pub fn set(&self, address: u64, bytes: usize, topic: Topic, value: Option<Location>) {
        let range = range(address, bytes);
        let mut hints = self.0.lock();
        hints.retain(|hint| hint.topic != topic || hint.range.0 < range.0 || hint.range.1 > range.1);
        hints.push(Hint { range, topic, value });
    }

    /// Forgets the hints that begin in memory that is allocated anew.
    pub(crate) fn forget(&self, address: u64, bytes: usize) {
        let (from, to) = range(address, bytes);
        self.0.lock().retain(|hint| !(from..to).contains(&hint.range.0));
    }

    /// The value of a hint that all bytes have; `None` if they differ, or have none.
    pub fn get(&self, address: u64, bytes: usize, topic: Topic) -> Option<Location> {
        let (from, to) = range(address, bytes);
        let hints = self.0.lock();
        let about = || hints.iter().filter(|hint| hint.topic == topic);
        let at = |address: u64| {
            let newest = about().rev().find(|hint| (hint.range.0..hint.range.1).contains(&address));
            newest.and_then(|hint| hint.value)
        };
        // Between these addresses no hint begins or ends.
        let edges = about().flat_map(|hint| [hint.range.0, hint.range.1]);
        let mut starts = edges.filter(|edge| (from + 1..to).contains(edge));
        let first = at(from);
        if starts.all(|start| at(start) == first) { first } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HERE: Option<Location> = Some((1, 0));

    #[test]
    fn a_range_has_a_hint_if_all_of_it_has() {
        let hints = Hints::default();
        hints.set(100, 100, Topic::Preferred, HERE);
        assert_eq!(hints.get(100, 100, Topic::Preferred), HERE);
        assert_eq!(hints.get(150, 10, Topic::Preferred), HERE);
        assert_eq!(hints.get(150, 51, Topic::Preferred), None);
        assert_eq!(hints.get(100, 100, Topic::Prefetch), None);
        hints.set(200, 100, Topic::Preferred, HERE);
        assert_eq!(hints.get(150, 100, Topic::Preferred), HERE);
        hints.set(180, 10, Topic::Preferred, None);
        assert_eq!(hints.get(150, 100, Topic::Preferred), None);
        assert_eq!(hints.get(190, 10, Topic::Preferred), HERE);
        hints.set(180, 10, Topic::Preferred, Some((2, 0)));
        assert_eq!(hints.get(182, 2, Topic::Preferred), Some((2, 0)));
        assert_eq!(hints.0.lock().len(), 3, "what is replaced is forgotten");
        hints.forget(100, 200);
        assert_eq!(hints.get(100, 1, Topic::Preferred), None);
    }
}
