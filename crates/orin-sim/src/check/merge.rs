//! One finding for one cause that the compiler has spread over several instructions, as it does when it unrolls a loop.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use super::{Finding, Kind};

/// What instructions with the same cause have in common: kind, kernel, file and line, access, object, other line.
type Cause<'a> =
    (Kind, &'a str, &'a str, u32, &'a str, Option<(u64, &'a str)>, Option<(&'a str, Option<u32>)>);

/// The cause of a finding; `None` if its source line is not known.
fn cause(finding: &Finding) -> Option<Cause<'_>> {
    let at = finding.at.as_ref()?;
    let what = finding.access.as_ref().map_or("", |access| access.what.as_ref());
    let object = finding.object.as_ref().map(|object| (object.va, object.name.as_str()));
    let other = finding.other.as_ref().map(|other| (other.at.kernel.as_str(), other.at.line));
    Some((finding.kind, &at.kernel, at.file.as_deref()?, at.line?, what, object, other))
}

/// The findings, with those of one source line and object as one. The first one stays, with the instructions of the
/// others.
pub(super) fn by_line(found: &[Finding]) -> Vec<Finding> {
    let mut merged: Vec<Finding> = Vec::with_capacity(found.len());
    let mut known: HashMap<Cause<'_>, usize> = HashMap::new();
    for finding in found {
        match cause(finding).map(|cause| known.entry(cause)) {
            Some(Entry::Occupied(first)) => add(&mut merged[*first.get()], finding),
            Some(Entry::Vacant(free)) => {
                free.insert(merged.len());
                merged.push(finding.clone());
            }
            None => merged.push(finding.clone()),
        }
    }
    merged
}

fn add(first: &mut Finding, other: &Finding) {
    first.count += other.count;
    if let (Some(access), Some(more)) = (&mut first.access, &other.access) {
        access.address = access.address.min(more.address);
        access.last = access.last.max(more.last);
    }
    first.also.extend(other.at.clone());
}

#[cfg(test)]
mod tests {
    use super::super::{Accessing, Located};
    use super::*;

    fn finding(kind: Kind, offset: u64, line: Option<u32>, address: u64) -> Finding {
        let at = Located {
            kernel: "sum".to_owned(),
            offset,
            file: line.map(|_| "sum.cu".to_owned()),
            line,
            ..Located::default()
        };
        let access =
            Accessing { what: "read".into(), space: "global".into(), bytes: 4, address, last: address + 4 };
        Finding { at: Some(at), access: Some(access), count: 2, ..Finding::new(kind, "lost".to_owned()) }
    }

    #[test]
    fn instructions_of_one_line_are_one_finding() {
        let [bounds, freed] = [Kind::OutOfBounds, Kind::UseAfterFree];
        let all = by_line(&[
            finding(bounds, 0x20, Some(7), 0x1010),
            finding(bounds, 0x30, Some(8), 0x1000),
            finding(bounds, 0x40, Some(7), 0x1000),
            finding(freed, 0x50, Some(7), 0x1000),
            finding(bounds, 0x60, Some(7), 0x2000),
            finding(bounds, 0x70, None, 0x1000),
            finding(bounds, 0x80, None, 0x1000),
        ]);
        assert_eq!(all.len(), 5);
        let access = all[0].access.as_ref().unwrap();
        assert_eq!((all[0].count, access.address, access.last), (6, 0x1000, 0x2004));
        assert_eq!(all[0].also.iter().map(|at| at.offset).collect::<Vec<_>>(), [0x40, 0x60]);
        let text = all[0].to_string();
        assert!(
            text.contains("at sum+0x20 (sum.cu:7)") && text.contains("also at sum+0x40, sum+0x60\n"),
            "{text}"
        );
        assert!(all[1..].iter().all(|finding| finding.also.is_empty() && finding.count == 2));
    }
}
