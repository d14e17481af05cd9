//! Names the likely bottleneck of a kernel from its counters.

use super::access::ratio;
use super::report::{InstructionProfile, KernelProfile, Totals};
use super::text::number;

/// Maximum number of instructions named for one kind of waste.
const PLACES: usize = 4;
/// Fraction of all sectors or passes that an instruction must waste to be named.
const WORTH: f64 = 0.1;

/// Sentences about the kernel, most important kind first; empty if the counts show nothing to improve.
pub(super) fn advice(profile: &KernelProfile, totals: &Totals) -> Vec<String> {
    let mut all = Vec::new();
    uncoalesced(profile, totals, &mut all);
    conflicts(profile, totals, &mut all);
    divergence(profile, totals, &mut all);
    local(profile, totals, &mut all);
    rereads(profile, totals, &mut all);
    occupancy(profile, &mut all);
    all
}

/// The instructions that waste at least a tenth of `whole`, most wasteful first.
fn worst(
    profile: &KernelProfile,
    whole: u64,
    waste: impl Fn(&InstructionProfile) -> u64,
) -> Vec<&InstructionProfile> {
    let mut places: Vec<_> = profile.instructions.iter().filter(|place| waste(place) > 0).collect();
    places.retain(|place| ratio(waste(place), whole) >= WORTH);
    places.sort_by_key(|place| core::cmp::Reverse(waste(place)));
    places.truncate(PLACES);
    places
}

fn uncoalesced(profile: &KernelProfile, totals: &Totals, all: &mut Vec<String>) {
    let sectors = totals.all.global.sectors;
    for place in worst(profile, sectors, |place| place.counts.global.excess_sectors()) {
        let traffic = &place.counts.global;
        all.push(format!(
            "{}: {:.1} sectors per request where {:.1} would suffice; {:.0} % of the kernel's global traffic is \
             this waste",
            place.at,
            traffic.sectors_per_request(),
            ratio(traffic.ideal_sectors, traffic.requests),
            100.0 * ratio(traffic.excess_sectors(), sectors)
        ));
    }
}

fn conflicts(profile: &KernelProfile, totals: &Totals, all: &mut Vec<String>) {
    let passes = totals.all.shared.passes;
    for place in worst(profile, passes, |place| place.counts.shared.conflicts()) {
        let shared = &place.counts.shared;
        all.push(format!(
            "{}: {}-way bank conflicts: {:.1} passes per request instead of {:.1}",
            place.at,
            shared.worst,
            ratio(shared.passes, shared.requests),
            ratio(shared.ideal_passes, shared.requests)
        ));
    }
    for place in worst(profile, totals.atomics.active, |place| place.counts.shared.collisions) {
        let (collisions, active) = (place.counts.shared.collisions, place.counts.active);
        all.push(format!(
            "{}: {} of {} atomics in shared memory meet another of their warp",
            place.at,
            number(collisions),
            number(active)
        ));
    }
}

fn divergence(profile: &KernelProfile, totals: &Totals, all: &mut Vec<String>) {
    if totals.threads_per_warp() > 24.0 {
        return;
    }
    all.push(format!("instructions execute with {:.1} of 32 threads on average", totals.threads_per_warp()));
    for place in worst(profile, totals.all.divergent, |place| place.counts.divergent) {
        let counts = &place.counts;
        let part = 100.0 * ratio(counts.divergent, counts.executed);
        all.push(format!(
            "{}: the threads of a warp go different ways in {part:.0} % of the executions",
            place.at
        ));
    }
}

fn local(profile: &KernelProfile, totals: &Totals, all: &mut Vec<String>) {
    let (local, global) = (&totals.all.local, &totals.all.global);
    if ratio(local.sectors, local.sectors + global.sectors) >= WORTH {
        all.push(format!(
            "local memory moves {} bytes, global memory {}: spilled registers ({} of a thread), or arrays with \
             computed indices",
            number(local.moved_bytes()),
            number(global.moved_bytes()),
            profile.registers
        ));
    }
}

fn rereads(profile: &KernelProfile, totals: &Totals, all: &mut Vec<String>) {
    let moved = totals.loads.global.moved_bytes() + totals.copies.global.moved_bytes();
    let times = ratio(moved, profile.read_bytes);
    if times >= 4.0 {
        all.push(format!(
            "loads move {} bytes of {} distinct ones: each sector {times:.1} times, served by caches at best",
            number(moved),
            number(profile.read_bytes)
        ));
    }
}

fn occupancy(profile: &KernelProfile, all: &mut Vec<String>) {
    let occupancy = &profile.occupancy;
    if occupancy.fraction() < 0.5 {
        all.push(format!(
            "{} limit an SM to {} of {} warps",
            occupancy.limited_by.join(" and "),
            occupancy.warps_per_sm,
            occupancy.max_warps
        ));
    }
    let (blocks, sms) = (profile.blocks(), u64::from(occupancy.sms));
    if blocks < sms {
        let leave = if blocks == 1 { "1 block leaves".to_owned() } else { format!("{blocks} blocks leave") };
        all.push(format!("{leave} {} of {sms} SMs without work", sms - blocks));
    }
}
