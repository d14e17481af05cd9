//! Profiles as text.

use core::fmt;
use std::borrow::Cow;

use super::access::{Passes, Traffic, ratio};
use super::advice::advice;
use super::report::{KernelProfile, LineProfile, Totals};

/// Maximum number of source lines, or instructions, in the table of a kernel.
const ROWS: usize = 20;

/// A number with separators.
pub(super) fn number(value: u64) -> String {
    let digits = value.to_string();
    let mut out = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `part` of `whole` in per cent.
pub(super) fn percent(part: u64, whole: u64) -> String {
    format!("{:.0} %", 100.0 * ratio(part, whole))
}

/// An extent as `X`, `X,Y` or `X,Y,Z`.
pub(super) fn extent([x, y, z]: [u32; 3]) -> String {
    match (y, z) {
        (1, 1) => format!("{x}"),
        (_, 1) => format!("{x},{y}"),
        _ => format!("{x},{y},{z}"),
    }
}

/// The profiles as tables. Empty without profiles.
///
/// ```
/// assert_eq!(orin_sim::kernel_profile::text(&[]), "");
/// ```
pub fn text(profiles: &[KernelProfile]) -> String {
    let texts: Vec<String> = profiles.iter().map(KernelProfile::to_string).collect();
    texts.join("\n")
}

/// Title, summary, advice, and the most executed lines.
impl fmt::Display for KernelProfile {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}\n{}\n", title(self), self.summary())?;
        table(out, self, self.totals().all.executed)
    }
}

impl KernelProfile {
    /// Facts and advice, one per line.
    pub(super) fn summary(&self) -> String {
        let totals = self.totals();
        let advice = advice(self, &totals).into_iter().enumerate();
        let advice =
            advice.map(|(index, sentence)| (Cow::from(if index == 0 { "advice" } else { "" }), sentence));
        let lines = facts(self, &totals).into_iter().chain(advice);
        lines.map(|(name, value)| format!("  {name:<15} {value}\n")).collect()
    }
}

/// Kernel, shape and launches.
pub(super) fn title(profile: &KernelProfile) -> String {
    let launches = match profile.launches {
        1 => "1 launch".to_owned(),
        count => format!("{} launches", number(count)),
    };
    let incomplete = match profile.incomplete {
        0 => String::new(),
        count => format!(", {} ended early", number(count)),
    };
    let (grid, block) = (extent(profile.grid), extent(profile.block));
    format!("{}: grid {grid}, block {block}, {launches}{incomplete}", profile.kernel)
}

/// Names and values of the summary.
fn facts(profile: &KernelProfile, totals: &Totals) -> Vec<(Cow<'static, str>, String)> {
    let occupancy = &profile.occupancy;
    let mut facts = vec![
        (
            "occupancy".into(),
            format!(
                "{} of {} warps per SM ({:.0} %): {} blocks, limited by {}; {:.2} waves on {} SMs",
                occupancy.warps_per_sm,
                occupancy.max_warps,
                100.0 * occupancy.fraction(),
                occupancy.blocks_per_sm,
                occupancy.limited_by.join(" and "),
                occupancy.waves(profile.blocks()),
                occupancy.sms
            ),
        ),
        ("limits".into(), limits(profile)),
        (
            "instructions".into(),
            format!(
                "{} by warps, {} by threads; {:.1} threads per warp, {:.1} not predicated off",
                number(totals.all.executed),
                number(totals.all.active),
                totals.threads_per_warp(),
                totals.active_per_warp()
            ),
        ),
        ("mix".into(), mix(totals)),
        (
            "branches".into(),
            format!(
                "{}, {} divergent ({})",
                number(totals.branches),
                number(totals.all.divergent),
                percent(totals.all.divergent, totals.branches)
            ),
        ),
    ];
    let groups = [
        ("loads", &totals.loads),
        ("stores", &totals.stores),
        ("atomics", &totals.atomics),
        ("copies", &totals.copies),
    ];
    for (name, counts) in groups {
        let spaces = [("global", &counts.global), ("local", &counts.local)];
        for (space, traffic) in spaces.into_iter().filter(|(_, traffic)| traffic.requests > 0) {
            facts.push((format!("{space} {name}").into(), transfers(traffic)));
        }
        if counts.shared.requests > 0 {
            facts.push((format!("shared {name}").into(), passes(&counts.shared)));
        }
    }
    if totals.all.global.requests > 0 {
        let (read, written) = (number(profile.read_bytes), number(profile.written_bytes));
        facts.push((
            "global data".into(),
            format!("{read} distinct bytes read, {written} written, in whole sectors"),
        ));
    }
    facts
}

fn limits(profile: &KernelProfile) -> String {
    let occupancy = &profile.occupancy;
    let shared = occupancy.by_shared.map_or_else(String::new, |blocks| {
        format!(", shared memory {blocks} ({} bytes a block)", number(profile.shared_bytes.into()))
    });
    format!(
        "blocks per SM: warps {}, registers {} ({} a thread){shared}, blocks {}",
        occupancy.by_warps, occupancy.by_registers, profile.registers, occupancy.by_blocks
    )
}

fn mix(totals: &Totals) -> String {
    let part = |(class, count)| format!("{class} {}", percent(count, totals.all.executed));
    totals.ranked_mix().into_iter().map(part).collect::<Vec<_>>().join(", ")
}

fn transfers(traffic: &Traffic) -> String {
    format!(
        "{} requests, {:.1} sectors each; {} bytes moved, {} needed ({})",
        number(traffic.requests),
        traffic.sectors_per_request(),
        number(traffic.moved_bytes()),
        number(traffic.needed_bytes),
        percent(traffic.needed_bytes, traffic.moved_bytes())
    )
}

fn passes(shared: &Passes) -> String {
    let collisions = match shared.collisions {
        0 => String::new(),
        count => format!("; {} atomics on a word of another lane", number(count)),
    };
    let worst = match shared.worst {
        0 | 1 => String::new(),
        ways => format!(", at worst {ways}-way"),
    };
    format!(
        "{} requests, {:.1} passes each; {} by bank conflicts{worst}{collisions}",
        number(shared.requests),
        ratio(shared.passes, shared.requests),
        number(shared.conflicts())
    )
}

/// The source lines with most executions, or the instructions if the program has no lines.
fn table(out: &mut fmt::Formatter<'_>, profile: &KernelProfile, all: u64) -> fmt::Result {
    let lines = profile.lines();
    let mut rows: Vec<LineProfile> = match lines.is_empty() {
        false => lines,
        true => profile
            .instructions
            .iter()
            .map(|place| LineProfile { file: place.at.to_string(), line: 0, counts: place.counts })
            .collect(),
    };
    rows.retain(|row| row.counts.executed > 0);
    // Selects rows with divergence or memory accesses first, then the most executed. Prints them in source order.
    let mut shown: Vec<usize> = (0..rows.len()).collect();
    shown.sort_by_key(|&row| {
        let counts = &rows[row].counts;
        let special =
            [counts.divergent, counts.global.requests, counts.local.requests, counts.shared.requests];
        core::cmp::Reverse((special != [0; 4], counts.executed))
    });
    shown.truncate(ROWS);
    shown.sort_unstable();
    writeln!(
        out,
        "  {:>14} {:>5} {:>7} {:>9} {:>11} {:>10}  where",
        "instructions", "share", "threads", "divergent", "sectors/req", "passes/req"
    )?;
    for row in shown.iter().map(|&row| &rows[row]) {
        let counts = &row.counts;
        let mut moved = counts.global;
        moved.add(&counts.local);
        let or_none = |count: u64, text: String| if count == 0 { String::new() } else { text };
        writeln!(
            out,
            "  {:>14} {:>5} {:>7.1} {:>9} {:>11} {:>10}  {}",
            number(counts.executed),
            percent(counts.executed, all),
            ratio(counts.active, counts.executed),
            or_none(counts.divergent, number(counts.divergent)),
            or_none(moved.requests, format!("{:.1}", moved.sectors_per_request())),
            or_none(
                counts.shared.requests,
                format!("{:.1}", ratio(counts.shared.passes, counts.shared.requests))
            ),
            if row.line == 0 { row.file.clone() } else { format!("{}:{}", row.file, row.line) }
        )?;
    }
    if shown.len() < rows.len() {
        writeln!(out, "  ... and {} with fewer executions", rows.len() - shown.len())?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_separators() {
        assert_eq!([0, 999, 1000, 1234567].map(number), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([[4, 1, 1], [4, 2, 1], [4, 1, 3]].map(extent), ["4", "4,2", "4,1,3"]);
    }
}
