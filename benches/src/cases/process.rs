//! Whole processes.

use crate::bench::Bench;
use crate::case::Case;
use crate::error::Result;
use crate::start_up::Target;

pub(super) fn cases() -> Vec<Case> {
    let about = "from the start of a process until it reports a kernel's result";
    let mut case = Case::new("process/first_result", about, first_result);
    case.needs.child_process = true;
    vec![case]
}

fn first_result(bench: &mut Bench<'_>) -> Result<()> {
    let start_up = bench.start_up();
    let device = Target::Device(bench.device().info().name());
    let mut ours = || crate::start_up::measure(start_up, device);
    let start_up = start_up.cloned();
    bench.measure(1, &mut ours, &mut |_| {
        let start_up = start_up.clone();
        Ok(Box::new(move || crate::start_up::measure(start_up.as_ref(), Target::Cuda)))
    })
}
