//! The corpus: kernels of all kinds, with expected results and tolerances.
//!
//! Several compilers compile `kernels/corpus/*.cu` for several chips. A [`Case`] is one kernel with a launch,
//! inputs from a seed, and a CPU reference that shares no code with the software Orin. The same cases run on
//! the software Orin, on a board, and through NVIDIA's own driver (see [`silicon`]).

pub mod case;
pub mod compare;
pub mod coverage;
pub mod cubins;
pub mod data;
pub mod exact;
pub mod planted;
mod reference;
pub mod run;
pub mod silicon;
pub mod table;
pub mod vendor;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::LazyLock;

pub use case::Case;

/// All cases.
pub fn cases() -> &'static [Case] {
    static CASES: LazyLock<Vec<Case>> = LazyLock::new(reference::all);
    &CASES
}

/// A software Orin that reports compute capability `sm` / 10. Its interpreter executes the code of all SM 8.x
/// chips, but a driver loads only code for the reported chip.
pub fn model_of(sm: u32) -> orin_sim::Config {
    let mut config = orin_sim::Config::default();
    config.characteristics.sm_arch_sm_version = ((sm / 10) << 8) | (sm % 10);
    config
}

/// Runs cases on a software Orin with the embedded `sm_87` cubins and returns the outputs in order.
///
/// # Errors
///
/// If a case does not run.
pub fn on_the_model(
    config: orin_sim::Config,
    cases: &'static [Case],
) -> Result<Vec<(&'static Case, Vec<data::Data>)>, run::RunError> {
    // PANIC: every file of the corpus is built in.
    on_the_model_with(config, cases, |file| cubins::built_in(file, 87).expect("a file of the corpus").into())
}

/// As [`on_the_model`], with the cubins that `cubin` returns for the names of the source files.
///
/// # Errors
///
/// If a case does not run.
pub fn on_the_model_with(
    config: orin_sim::Config,
    cases: impl IntoIterator<Item = &'static Case>,
    cubin: impl Fn(&'static str) -> Cow<'static, [u8]>,
) -> Result<Vec<(&'static Case, Vec<data::Data>)>, run::RunError> {
    let (_orin, device) = test_support::try_open(config);
    let device = device?;
    let mut queue = device.queue()?;
    let mut programs = BTreeMap::new();
    cases
        .into_iter()
        .map(|case| {
            let program = match programs.entry(case.file) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => entry.insert(tegra_hcq::Program::load(&device, &cubin(case.file))?),
            };
            Ok((case, run::run(&device, program, &mut queue, case, test_support::TIMEOUT)?))
        })
        .collect()
}
