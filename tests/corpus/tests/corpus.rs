//! The corpus on the software Orin: every kernel, from every compiler, for every chip whose code it runs.

use std::collections::BTreeSet;
use std::fs;
use std::sync::LazyLock;

use orin_sim::Config;
use tegra_hcq::Program;
use test_corpus::case::Argument;
use test_corpus::coverage::{Need, execute, wanted};
use test_corpus::cubins::{FILES, VARIANTS, Variant};
use test_corpus::data::Data;
use test_corpus::silicon::{Opinion, folder};
use test_corpus::{Case, cases, model_of, on_the_model, run, table};
use test_support::{TIMEOUT, try_open, workspace};

/// Results of the software Orin with the embedded cubins; computed once for several tests.
static RESULTS: LazyLock<Vec<(&Case, Vec<Data>)>> = LazyLock::new(|| {
    on_the_model(Config::default(), cases()).unwrap_or_else(|error| panic!("the software Orin: {error}"))
});

/// Runs all cases with the cubins of one variant and compares them with the CPU.
fn all_cases(release: &'static str, sm: u32) {
    let variant = Variant { release, sm };
    assert!(VARIANTS.contains(&variant), "{} is compiled", variant.name());
    let (_orin, device) = try_open(model_of(sm));
    let device = device.unwrap();
    let mut queue = device.queue().unwrap();
    let mut wrong = Vec::new();
    for file in FILES {
        let path = variant.path(file);
        let cubin = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let program =
            Program::load(&device, &cubin).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for case in cases().iter().filter(|case| case.file == *file) {
            let result = run::run(&device, &program, &mut queue, case, TIMEOUT);
            let result = result.and_then(|out| run::judge(case, &out, case.expected(), "the CPU"));
            if let Err(error) = result {
                wrong.push(format!("{file}: {error}"));
                // A faulted device runs no more work.
                assert!(
                    !matches!(error, run::RunError::Device(_)),
                    "{}: {}",
                    variant.name(),
                    wrong.join("\n")
                );
            }
        }
    }
    assert!(wrong.is_empty(), "{}:\n{}", variant.name(), wrong.join("\n"));
}

#[test]
fn release_12_2_for_sm_87() {
    all_cases("12.2", 87);
}

#[test]
fn release_12_6_for_sm_80() {
    all_cases("12.6", 80);
}

#[test]
fn release_12_6_for_sm_86() {
    all_cases("12.6", 86);
}

#[test]
fn release_12_6_for_sm_87() {
    all_cases("12.6", 87);
}

#[test]
fn release_12_9_for_sm_87() {
    all_cases("12.9", 87);
}

#[test]
fn release_13_0_for_sm_87() {
    all_cases("13.0", 87);
}

/// Names of the kernels that a source defines with `KERNEL` and the kernel-generating macros.
fn defined(source: &str) -> BTreeSet<String> {
    let makers = ["MAP1(", "MAP2(", "MAP3(", "MMA_F32(", "MMA_S32(", "MMA_SAT(", "GROUPS(", "APART("];
    let name = |line: &str| -> Option<String> {
        let rest = match line.strip_prefix("KERNEL ") {
            Some(rest) => {
                rest.strip_prefix("__launch_bounds__(").and_then(|r| r.split_once(") ")).map_or(rest, |r| r.1)
            }
            None => makers.iter().find_map(|maker| line.strip_prefix(maker))?,
        };
        Some(rest.split(['(', ',']).next()?.to_owned())
    };
    source.lines().filter_map(name).collect()
}

#[test]
fn every_kernel_has_a_case_and_every_file_is_listed() {
    let folder = workspace().join("kernels/corpus");
    let mut total = 0;
    for file in FILES {
        let source = fs::read_to_string(folder.join(file).with_extension("cu")).unwrap();
        let tested: BTreeSet<String> =
            cases().iter().filter(|case| case.file == *file).map(|case| case.kernel.to_owned()).collect();
        assert_eq!(defined(&source), tested, "{file}.cu");
        total += tested.len();
    }
    assert_eq!(total, cases().len(), "names are unique");
    assert!(total >= 150, "{total} kernels");
    let sources = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let found = sources.filter(|path| path.extension().is_some_and(|e| e == "cu")).count();
    assert_eq!(found, FILES.len(), "the list of files is complete");
}

/// Outputs that no thread writes would compare equal.
#[test]
fn every_case_changes_an_output() {
    for case in cases() {
        let before: Vec<&Data> = case.outputs().collect();
        assert!(!before.is_empty(), "{} has no output", case.kernel);
        assert!(
            before.iter().zip(case.expected()).any(|(a, b)| **a != *b),
            "{} changes nothing",
            case.kernel
        );
        let bytes: usize = case
            .arguments
            .iter()
            .map(|argument| match argument {
                Argument::Input(data) | Argument::Output(data) => data.bytes.len(),
                Argument::Scalar(bytes) => bytes.len(),
            })
            .sum();
        assert!(bytes < 1 << 20, "{}: {bytes} bytes are too many for a small device", case.kernel);
    }
}

#[test]
fn the_model_agrees_with_silicon() {
    let opinion = Opinion::load(&folder()).unwrap();
    let known: BTreeSet<&str> = cases().iter().map(|case| case.kernel).collect();
    for name in opinion.names() {
        assert!(known.contains(name), "results.json names {name}, which does not exist: remove it");
    }
    for (case, outputs) in RESULTS.iter() {
        if let Some(difference) = opinion.compare(case, outputs).unwrap() {
            assert_eq!(difference.first_wrong, None, "{}: {difference:?}", case.kernel);
        }
    }
}

#[test]
fn the_table_in_the_document_is_up_to_date() {
    let document = fs::read_to_string(workspace().join("docs/silicon.md")).unwrap();
    let opinion = Opinion::load(&folder()).unwrap();
    let rows = RESULTS.iter().map(|(case, outputs)| (*case, outputs.as_slice()));
    let table = table::render(&opinion, rows).unwrap();
    let new = table::insert(&document, &table).expect("the document has the marks of the table");
    assert!(new == document, "run `cargo xtask silicon table` and commit the result");
}

#[test]
fn every_required_instruction_is_tested() {
    let executed = execute(cases()).unwrap_or_else(|error| panic!("coverage: {error}"));
    let untested: Vec<String> = wanted()
        .into_iter()
        .filter(|line| line.need == Need::Must && executed.users(&line.mnemonic).is_empty())
        .map(|line| line.mnemonic)
        .collect();
    assert!(untested.is_empty(), "not executed by any kernel of the corpus: {}", untested.join(", "));
}
