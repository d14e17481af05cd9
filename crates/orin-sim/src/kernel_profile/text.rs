//! Profiles as text.

use core::fmt::{self, Write};
use std::borrow::Cow;

use super::access::{Passes, Traffic, ratio};
use super::advice::advice;
use super::bound::{Bound, time};
use super::report::{InstructionProfile, KernelProfile, LineProfile, Totals};
use crate::board::Profile;

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

/// The profiles as tables, with lower bounds of their times on a board. Empty without profiles.
///
/// ```
/// assert_eq!(orin_sim::kernel_profile::text(&[], None), "");
/// ```
pub fn text(profiles: &[KernelProfile], board: Option<Profile>) -> String {
    let texts: Vec<String> = profiles.iter().map(|profile| one(profile, board)).collect();
    texts.join("\n")
}

/// Title, summary, advice, and the most executed lines.
fn one(profile: &KernelProfile, board: Option<Profile>) -> String {
    let bound = board.map(|board| Bound::of(profile, board));
    let mut out = format!("{}\n{}\n", title(profile), profile.summary(board));
    // Writing to a string does not fail.
    let _ = table(&mut out, profile, bound.as_ref());
    out
}

impl KernelProfile {
    /// Facts and advice, one per line.
    pub(super) fn summary(&self, board: Option<Profile>) -> String {
        let totals = self.totals();
        let bound = board.map_or_else(Vec::new, |board| bound_facts(&Bound::of(self, board), board));
        let advice = advice(self, &totals).into_iter().enumerate();
        let advice =
            advice.map(|(index, sentence)| (Cow::from(if index == 0 { "advice" } else { "" }), sentence));
        let lines = facts(self, &totals).into_iter().chain(bound).chain(advice);
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
    format!("{}: {}, {launches}{incomplete}", profile.kernel, shape(profile))
}

/// Grid and block.
pub(super) fn shape(profile: &KernelProfile) -> String {
    format!("grid {}, block {}", extent(profile.grid), extent(profile.block))
}

/// The lower bound and the limits behind it.
fn bound_facts(bound: &Bound, on: Profile) -> Vec<(Cow<'static, str>, String)> {
    let set_by = bound.limit().map_or_else(String::new, |limit| format!(", set by {limit}"));
    // CAST: figures of a board, far below 2^53.
    let gb_per_second = on.board.memory_bytes_per_second() as f64 / 1e9;
    let limits = bound.limits.iter().map(|limit| format!("{} {}", limit.name, time(limit.seconds)));
    vec![
        (
            "lower bound".into(),
            format!(
                "{} a launch on {} ({} SMs at {} MHz, {gb_per_second:.1} GB/s){set_by}; {} from cold caches",
                time(bound.seconds),
                bound.board,
                on.mode.sm_count(),
                on.clock_hz() / 1_000_000,
                time(bound.cold_seconds)
            ),
        ),
        ("bounds".into(), limits.collect::<Vec<_>>().join(", ")),
    ]
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
fn table(out: &mut String, profile: &KernelProfile, bound: Option<&Bound>) -> fmt::Result {
    let all = profile.totals().all.executed;
    let mut rows = rows(profile, bound);
    rows.retain(|(row, _)| row.counts.executed > 0);
    // Selects rows with divergence or memory accesses first, then the most executed. Prints them in source order.
    let mut shown: Vec<usize> = (0..rows.len()).collect();
    shown.sort_by_key(|&row| {
        let counts = &rows[row].0.counts;
        let special =
            [counts.divergent, counts.global.requests, counts.local.requests, counts.shared.requests];
        core::cmp::Reverse((special != [0; 4], counts.executed))
    });
    shown.truncate(ROWS);
    shown.sort_unstable();
    writeln!(
        out,
        "  {:>14} {:>5} {:>7} {:>9} {:>11} {:>10}{}  where",
        "instructions",
        "share",
        "threads",
        "divergent",
        "sectors/req",
        "passes/req",
        if bound.is_some() { "  of bound" } else { "" }
    )?;
    for (row, share) in shown.iter().map(|&row| &rows[row]) {
        let counts = &row.counts;
        let mut moved = counts.global;
        moved.add(&counts.local);
        let or_none = |count: u64, text: String| if count == 0 { String::new() } else { text };
        writeln!(
            out,
            "  {:>14} {:>5} {:>7.1} {:>9} {:>11} {:>10}{}  {}",
            number(counts.executed),
            percent(counts.executed, all),
            ratio(counts.active, counts.executed),
            or_none(counts.divergent, number(counts.divergent)),
            or_none(moved.requests, format!("{:.1}", moved.sectors_per_request())),
            or_none(
                counts.shared.requests,
                format!("{:.1}", ratio(counts.shared.passes, counts.shared.requests))
            ),
            share.map_or_else(String::new, |share| format!(" {:>7.0} %", 100.0 * share)),
            if row.line == 0 { row.file.clone() } else { format!("{}:{}", row.file, row.line) }
        )?;
    }
    if shown.len() < rows.len() {
        writeln!(out, "  ... and {} with fewer executions", rows.len() - shown.len())?;
    }
    Ok(())
}

/// The source lines, or the instructions without lines, and their parts of the bound.
fn rows(profile: &KernelProfile, bound: Option<&Bound>) -> Vec<(LineProfile, Option<f64>)> {
    let lines = profile.lines();
    if lines.is_empty() {
        let mut shares = bound.map(|bound| bound.shares(profile).into_iter());
        let row = |place: &InstructionProfile| {
            let row = LineProfile { file: place.at.to_string(), line: 0, counts: place.counts };
            (row, shares.as_mut().and_then(Iterator::next))
        };
        return profile.instructions.iter().map(row).collect();
    }
    let shares = bound.map(|bound| bound.line_shares(profile));
    let row = |line: LineProfile| {
        let share = shares.as_ref().and_then(|shares| shares.get(&(line.file.clone(), line.line)).copied());
        (line, share)
    };
    lines.into_iter().map(row).collect()
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
