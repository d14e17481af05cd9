//! Calls of served programs, and the same calls without a supervisor.

use crate::bench::Bench;
use crate::case::Case;
use crate::error::{Error, Result};
use crate::served::{Call, Program, Python, Served};

/// Calls per sample.
const CALLS: u64 = 1000;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = vec![
        Case::new("serve/request", "GET_AVAILABLE_HEAPS of a served program", |bench| {
            served(bench, Call::Request)
        }),
        Case::new(
            "serve/request_in_process",
            "GET_AVAILABLE_HEAPS on a software Orin in the process",
            |bench| alone(bench, Call::Request),
        ),
        Case::new("serve/create", "CREATE and FREE of a served program", |bench| served(bench, Call::Create)),
        Case::new("serve/create_in_process", "CREATE and FREE on a software Orin in the process", |bench| {
            alone(bench, Call::Create)
        }),
        Case::new("serve/stat", "stat of another path by a served program", |bench| {
            served(bench, Call::Stat)
        }),
        Case::new("serve/stat_alone", "stat of another path by a program that is not served", |bench| {
            alone(bench, Call::Stat)
        }),
        Case::new("serve/fstat", "fstat of another file by a served program", |bench| {
            served(bench, Call::Fstat)
        }),
        Case::new("serve/fstat_alone", "fstat by a program that is not served", |bench| {
            alone(bench, Call::Fstat)
        }),
        Case::new("serve/doorbell", "a store to the doorbell by a served program", |bench| {
            served(bench, Call::Doorbell)
        }),
        Case::new("serve/doorbell_in_process", "a store to the doorbell in the process", |bench| {
            alone(bench, Call::Doorbell)
        }),
        Case::new("serve/python", "start and end of a served python3", |bench| python(bench, true)),
        Case::new("serve/python_alone", "start and end of a python3 that is not served", |bench| {
            python(bench, false)
        }),
        Case::new("serve/python_extra", "what serving adds to the fastest of five starts", |bench| {
            let (python, count) = (Python::find()?, bench.rounds(5));
            bench.measure_alone(1, &mut || python.measure_extra(count))
        }),
    ];
    for case in &mut cases {
        case.needs.served = true;
        case.needs.python = case.name.contains("python");
        case.needs.child_process = true;
    }
    cases
}

fn served(bench: &mut Bench<'_>, call: Call) -> Result<()> {
    let Some(start_up) = bench.start_up() else {
        let reason = "this program has no command for it".to_owned();
        return Err(Error::Child { program: "(none)".to_owned(), reason });
    };
    let count = bench.rounds(CALLS);
    let mut program = Served::start(&start_up.program, &start_up.client)?;
    bench.measure_alone(count, &mut || program.measure(call, count))
}

fn alone(bench: &mut Bench<'_>, call: Call) -> Result<()> {
    let count = bench.rounds(CALLS);
    let program = Program::in_process()?;
    bench.measure_alone(count, &mut || program.measure(call, count))
}

fn python(bench: &mut Bench<'_>, served: bool) -> Result<()> {
    let python = Python::find()?;
    bench.measure_alone(1, &mut || python.measure(served))
}
