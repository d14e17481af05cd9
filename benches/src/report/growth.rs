//! Costs per item that rise with the count.

use super::figures;
use crate::cases::growth::PREFIX;
use crate::run::Run;

/// The ratio of the costs per item at the highest and the lowest count should not exceed this.
pub(super) const GOAL: f64 = 1.3;

/// The costs of a group of cases that differ only in the count.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Growth {
    /// Name of the group.
    pub(super) name: String,
    /// Lowest count, and the median cost per item there in nanoseconds.
    pub(super) first: (u64, f64),
    /// The same at the highest count.
    pub(super) last: (u64, f64),
}

impl Growth {
    /// Cost at the highest count divided by that at the lowest.
    pub(super) fn ratio(&self) -> f64 {
        self.last.1 / self.first.1
    }
}

/// The groups of the run with at least two measured counts, in the order of the cases.
pub(super) fn growth(run: &Run) -> Vec<Growth> {
    let mut groups: Vec<Growth> = Vec::new();
    for measurement in &run.measurements {
        let group = measurement.name.strip_prefix(PREFIX).and_then(|rest| rest.rsplit_once('/'));
        let (Some((group, _)), (Some(ours), _)) = (group, figures(&measurement.outcome)) else { continue };
        // A quick run divides the counts.
        let cost = ((measurement.size / run.plan.divide_rounds).max(1), ours.median);
        match groups.iter_mut().find(|growth| growth.name == group) {
            Some(growth) => growth.last = cost,
            None => groups.push(Growth { name: group.to_owned(), first: cost, last: cost }),
        }
    }
    groups.retain(|growth| growth.first.0 < growth.last.0);
    groups
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::measure::Samples;
    use crate::report::sample;
    use crate::run::{Measurement, Outcome};

    #[test]
    fn a_group_has_its_lowest_and_highest_count() {
        let mut run = sample::run();
        run.plan.divide_rounds = 1;
        let mut add = |name: &str, size, nanoseconds| {
            let mut ours = Samples::default();
            ours.add(Duration::from_nanos(nanoseconds), 1);
            run.measurements.push(Measurement {
                name: name.to_owned(),
                size,
                outcome: Outcome::Measured { ours, rival: None },
                ..run.measurements[0].clone()
            });
        };
        add("growth/launch/10", 10, 1000);
        add("growth/launch/100", 100, 9000);
        add("growth/launch/1000", 1000, 2000);
        add("growth/single/1", 1, 5000);
        let found = growth(&run);
        let [launch] = &found[..] else { panic!("{found:?}") };
        assert_eq!((launch.name.as_str(), launch.first.0, launch.last.0), ("launch", 10, 1000));
        assert!((launch.ratio() - 2.0).abs() < 0.01, "{launch:?}");
        assert!(launch.ratio() > GOAL);
        run.plan.divide_rounds = 1000;
        assert_eq!(growth(&run), [], "in a quick run all counts are 1");
    }
}
