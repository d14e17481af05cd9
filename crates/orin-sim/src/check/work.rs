//! What a checker has looked at.

use serde::{Deserialize, Serialize};

use super::{Checker, Tools};

/// Most faults that are kept.
const MOST_FAULTS: usize = 20;

/// The summary without launches. A program with a checker of its own, such as `tegra_hcq::check::clean`, reports
/// nothing here.
const NOTHING: &str = "nothing was checked: no kernel ran, or the program checked its kernels itself";

/// What a checker has looked at: without launches, a run without findings says nothing.
///
/// ```
/// use orin_sim::check::{Tools, Work};
///
/// let mut work = Work::default();
/// assert!(work.summary(Tools::MEMCHECK, 0).starts_with("nothing was checked: no kernel ran"));
/// work.add(Work { launches: 12, faults: Vec::new() });
/// assert_eq!(work.summary(Tools::MEMCHECK, 0), "12 launches checked (memcheck), 0 findings");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// Number of grids that have started.
    pub launches: u64,
    /// The first faults that stopped a channel, for example refused launches. Their work, and that after it, was not
    /// done and not checked.
    pub faults: Vec<String>,
}

impl Work {
    /// Adds the work of another checker.
    pub fn add(&mut self, other: Self) {
        self.launches += other.launches;
        self.faults.extend(other.faults);
    }

    /// A line that says what was checked, after one for each fault. `findings` is their number.
    pub fn summary(&self, tools: Tools, findings: usize) -> String {
        let counted = |count: u64, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
        let fault =
            |text: &String| format!("the GPU stopped a channel, and its work was not checked: {text}\n");
        let faults: String = self.faults.iter().map(fault).collect();
        // CAST: usize is at most 64 bits.
        let found = counted(findings as u64, "finding");
        let done = match (self.launches, findings) {
            (0, 0) => NOTHING.to_owned(),
            (0, _) => format!("no kernel ran, {found}"),
            (launches, _) => {
                let names = tools.iter().map(Tools::name).collect::<Vec<_>>().join(", ");
                let launches = counted(launches, "launch").replace("launchs", "launches");
                format!("{launches} checked ({names}), {found}")
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
        let mut work = Work { launches: 1, faults: vec!["launch descriptor at 0x100: bad".to_owned()] };
        let refused =
            "the GPU stopped a channel, and its work was not checked: launch descriptor at 0x100: bad\n";
        let one = format!("{refused}1 launch checked (memcheck, racecheck), 1 finding");
        assert_eq!(work.summary(tools, 1), one);
        work.launches = 0;
        assert_eq!(work.summary(tools, 2), format!("{refused}no kernel ran, 2 findings"));
    }
}
