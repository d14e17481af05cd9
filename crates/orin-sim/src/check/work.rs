//! What a checker has looked at.

use serde::{Deserialize, Serialize};

use super::{Checker, Tools};

/// Most faults that are kept.
const MOST_FAULTS: usize = 20;

/// What a checker has looked at: without launches, a run without findings says nothing.
///
/// ```
/// use orin_sim::check::{Tools, Work};
///
/// let mut work = Work::default();
/// assert!(work.summary(Tools::MEMCHECK, 0).starts_with("nothing was checked: no kernel ran"));
/// work.add(Work { launches: 12, ..Work::default() });
/// assert_eq!(work.summary(Tools::MEMCHECK, 0), "12 launches checked (memcheck), 0 findings");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// Number of grids that have started.
    pub launches: u64,
    /// Number of grids that have started on boards for which the program has made a checker of its own, as tests do
    /// with `tegra_hcq::check::clean`. Their findings are the program's.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub own_launches: u64,
    /// The first faults that stopped a channel, for example refused launches. Their work, and that after it, was not
    /// done and not checked.
    pub faults: Vec<String>,
}

/// Whether a number is left out of a report.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Work {
    /// Whether no kernel was launched.
    pub fn is_empty(&self) -> bool {
        self.launches == 0 && self.own_launches == 0
    }

    /// Adds the work of another checker.
    pub fn add(&mut self, other: Self) {
        self.launches += other.launches;
        self.own_launches += other.own_launches;
        self.faults.extend(other.faults);
    }

    /// A line that says what was checked, after one for each fault. `findings` is their number.
    pub fn summary(&self, tools: Tools, findings: usize) -> String {
        let counted = |count: u64, what: &str, plural: &str| match count {
            1 => format!("1 {what}"),
            _ => format!("{count} {plural}"),
        };
        let launches = |count| counted(count, "launch", "launches");
        let fault =
            |text: &String| format!("the GPU stopped a channel, and its work was not checked: {text}\n");
        let faults: String = self.faults.iter().map(fault).collect();
        // CAST: usize is at most 64 bits.
        let found = counted(findings as u64, "finding", "findings");
        let own = format!("the program checked {} itself", launches(self.own_launches));
        let done = match (self.launches, self.own_launches, findings) {
            (0, 0, 0) => "nothing was checked: no kernel ran".to_owned(),
            (0, 0, _) => format!("no kernel ran, {found}"),
            (0, _, 0) => format!("{own}, and no other kernel ran"),
            (0, ..) => format!("{own}, and no other kernel ran, {found}"),
            (count, own_count, _) => {
                let names = tools.iter().map(Tools::name).collect::<Vec<_>>().join(", ");
                let own = if own_count > 0 { format!("; {own}") } else { String::new() };
                format!("{} checked ({names}), {found}{own}", launches(count))
            }
        };
        faults + &done
    }
}

impl Checker {
    /// What was looked at so far.
    pub fn work(&self) -> Work {
        self.0.work.lock().clone()
    }

    /// Counts a grid that starts.
    pub(crate) fn count_launch(&self) {
        self.0.work.lock().launches += 1;
    }

    /// Keeps a fault that stops a channel.
    pub(crate) fn keep_fault(&self, fault: impl core::fmt::Display) {
        let mut work = self.0.work.lock();
        if work.faults.len() < MOST_FAULTS {
            work.faults.push(fault.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_counts_and_has_the_faults() {
        let tools = Tools::MEMCHECK | Tools::RACECHECK;
        let faults = vec!["launch descriptor at 0x100: bad".to_owned()];
        let mut work = Work { launches: 1, own_launches: 0, faults };
        let refused =
            "the GPU stopped a channel, and its work was not checked: launch descriptor at 0x100: bad\n";
        let one = format!("{refused}1 launch checked (memcheck, racecheck), 1 finding");
        assert_eq!(work.summary(tools, 1), one);
        work.launches = 0;
        assert_eq!(work.summary(tools, 2), format!("{refused}no kernel ran, 2 findings"));
        let summary = |launches, own_launches, findings| {
            Work { launches, own_launches, faults: Vec::new() }.summary(tools, findings)
        };
        assert_eq!(summary(0, 1, 0), "the program checked 1 launch itself, and no other kernel ran");
        assert_eq!(
            summary(0, 2, 1),
            "the program checked 2 launches itself, and no other kernel ran, 1 finding"
        );
        let both =
            "3 launches checked (memcheck, racecheck), 0 findings; the program checked 2 launches itself";
        assert_eq!(summary(3, 2, 0), both);
    }
}
