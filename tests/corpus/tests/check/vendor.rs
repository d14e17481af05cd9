//! Findings and profiles of the software Orin, and those of NVIDIA's compute-sanitizer and ncu.

use std::collections::{BTreeMap, BTreeSet};

use orin_sim::kernel_profile::KernelProfile;
use test_corpus::vendor::profile::{self, ACCESSES, INSTRUCTIONS, INSTRUCTIONS_FILE};
use test_corpus::vendor::{Explained, load, profiled, sanitizer};

use super::found_with_lines;

#[test]
fn what_compute_sanitizer_finds_is_found() {
    let stored: sanitizer::Stored = load(sanitizer::FILE).unwrap();
    let (mut differences, mut compared) = (BTreeSet::new(), 0);
    for (planted, found) in found_with_lines() {
        // The others are younger than the runs.
        let Some(runs) = stored.runs.get(&planted.kernel) else { continue };
        compared += 1;
        assert!(runs.contains_key(&planted.tool), "{} was not run under {}", planted.kernel, planted.tool);
        let sides = found
            .iter()
            .flat_map(|finding| [finding.at.as_ref(), finding.other.as_ref().map(|side| &side.at)]);
        let lines: Vec<u32> = sides.flatten().filter_map(|at| at.line).collect();
        differences.extend(sanitizer::differences(planted, &lines, runs));
    }
    assert_eq!(compared, stored.runs.len(), "each kernel that ran is still there");
    let wrong = Explained::load().unwrap().checks(&differences);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// A lower bound of the time counts no more issue slots and passes than the GPU needs.
fn assert_bounds(ours: &KernelProfile, ncu: &BTreeMap<String, u64>, instructions: &[[u64; 7]]) {
    let all = ours.totals().all;
    assert!(all.executed <= ncu["smsp__inst_executed.sum"], "{}: {} issue slots", ours.kernel, all.executed);
    for one in ours.instructions.iter().filter(|one| one.at.kernel == ours.kernel) {
        let passes = instructions.get(one.at.offset as usize / 16).map_or(0, |counts| counts[5]);
        // The kernels repeat comparing exchanges that fail, as often as threads meet.
        let bounded = one.counts.shared.least_passes <= passes || ours.kernel == "shared_atomics";
        assert!(bounded, "{}: {} passes, ncu {passes}", one.at, one.counts.shared.least_passes);
    }
}

#[test]
fn profiles_are_those_of_ncu() {
    let stored: profile::Stored = load(profile::FILE).unwrap();
    let instructions: profile::Instructions = load(INSTRUCTIONS_FILE).unwrap();
    let mut differences = BTreeSet::new();
    for case in profiled() {
        let mut add = |different: Vec<String>| {
            differences.extend(different.into_iter().map(|what| format!("{}: {what}", case.kernel)));
        };
        let ncu = &stored.kernels[case.kernel];
        let ours = profile::of(case, false).unwrap();
        add(profile::differences(&ours.totals(), ncu, &ACCESSES));
        match profile::of(case, true) {
            Ok(ours) => {
                assert_bounds(&ours, ncu, &instructions[case.kernel]);
                add(profile::differences(&ours.totals(), ncu, ACCESSES.iter().chain(&INSTRUCTIONS)));
                add(profile::instruction_differences(&ours, &instructions[case.kernel]));
            }
            Err(_) => add(vec!["the model does not execute the code for sm_90".to_owned()]),
        }
    }
    let wrong = Explained::load().unwrap().profiles(&differences);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
