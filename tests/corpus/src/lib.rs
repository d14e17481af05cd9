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
mod reference;
pub mod run;
pub mod silicon;
pub mod table;

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
    let (_orin, device) = test_support::try_open(config);
    let device = device?;
    let mut queue = device.queue()?;
    let mut programs = std::collections::BTreeMap::new();
    cases
        .iter()
        .map(|case| {
            let cubin = cubins::built_in(case.file, 87).expect("every file of the corpus is built in");
            let program = match programs.entry(case.file) {
                std::collections::btree_map::Entry::Occupied(entry) => entry.into_mut(),
                std::collections::btree_map::Entry::Vacant(entry) => {
                    entry.insert(tegra_hcq::Program::load(&device, cubin)?)
                }
            };
            Ok((case, run::run(&device, program, &mut queue, case, test_support::TIMEOUT)?))
        })
        .collect()
}
