//! Instruction coverage of the corpus on the software Orin.
//!
//! `tests/data/instructions.txt` lists the instructions that compilers emit for SM 8.x, by importance. The
//! corpus runs case by case with a recorder in the interpreter, with every committed variant for these chips.

#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "each launch runs a kernel of this repository within its buffers, or makes it fault outside of all memory"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;

use orin_sim::Config;
use orin_sim::sm::{Coverage, SmOptions};
use tegra_hcq::{Device, Error, Program, args};

use super::case::Case;
use super::cubins::{FILES, VARIANTS};
use super::run::{self, RunError};
use test_support::TIMEOUT;

/// Importance of an instruction for a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Need {
    /// Common, or indispensable.
    Must,
    /// Used by some programs.
    Should,
    /// Hardly used.
    Rare,
    /// Recognised, but refused by name.
    Named,
}

impl Need {
    /// Its keyword in the list.
    pub fn name(self) -> &'static str {
        match self {
            Self::Must => "must",
            Self::Should => "should",
            Self::Rare => "rare",
            Self::Named => "named",
        }
    }
}

/// A line of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Importance.
    pub need: Need,
    /// The mnemonic without modifiers.
    pub mnemonic: String,
    /// Forms with modifiers that are also required.
    pub forms: Vec<String>,
}

/// The list of `tests/data/instructions.txt`.
///
/// # Panics
///
/// If a line is malformed.
pub fn wanted() -> Vec<Wanted> {
    let text = include_str!("../data/instructions.txt");
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let mut words = line.split(' ').map(str::to_owned);
            let need = match words.next().as_deref() {
                Some("must") => Need::Must,
                Some("should") => Need::Should,
                Some("rare") => Need::Rare,
                Some("named") => Need::Named,
                other => panic!("instructions.txt: {other:?} is not a class"),
            };
            let mnemonic = words.next().unwrap_or_else(|| panic!("instructions.txt: a line without a name"));
            Wanted { need, mnemonic, forms: words.collect() }
        })
        .collect()
}

/// The executed instructions.
#[derive(Debug, Default)]
pub struct Executed {
    /// Executions by warps, by name with modifiers.
    pub counts: BTreeMap<String, u64>,
    /// The cases that executed it, by name with modifiers.
    pub by: BTreeMap<String, BTreeSet<&'static str>>,
}

impl Executed {
    /// The cases that executed an instruction: one named `name` or, if `name` has no modifiers, any form of
    /// it.
    pub fn users(&self, name: &str) -> BTreeSet<&'static str> {
        let fits = |key: &str| key == name || !name.contains('.') && key.split('.').next() == Some(name);
        self.by.iter().filter(|(key, _)| fits(key)).flat_map(|(_, users)| users.iter().copied()).collect()
    }

    /// Adds the recorder's counts since the snapshot `before`.
    fn add(&mut self, coverage: &Coverage, before: &BTreeMap<String, u64>, user: &'static str) {
        for (name, count) in coverage.counts() {
            let new = count - before.get(&name).copied().unwrap_or(0);
            if new != 0 {
                *self.counts.entry(name.clone()).or_default() += new;
                self.by.entry(name).or_default().insert(user);
            }
        }
    }
}

/// Runs every case with every variant for SM 8.x, and the trap that ends a kernel.
///
/// # Errors
///
/// If a cubin is missing or a case does not run.
pub fn execute(cases: &'static [Case]) -> Result<Executed, CoverageError> {
    let coverage = Coverage::new();
    let config = |sm| Config {
        sm: SmOptions { coverage: Some(coverage.clone()), ..SmOptions::default() },
        ..super::model_of(sm)
    };
    let mut executed = Executed::default();
    for variant in VARIANTS.iter().filter(|variant| variant.sm < 90) {
        let (_orin, device) = test_support::try_open(config(variant.sm));
        let device = device?;
        let mut queue = device.queue()?;
        for file in FILES {
            let path = variant.path(file);
            let cubin = fs::read(&path)
                .map_err(|error| CoverageError::Cubin { path: path.display().to_string(), error })?;
            let program = Program::load(&device, &cubin)?;
            for case in cases.iter().filter(|case| case.file == *file) {
                let before = coverage.counts();
                run::run(&device, &program, &mut queue, case, TIMEOUT)?;
                executed.add(&coverage, &before, case.kernel);
            }
        }
    }
    let before = coverage.counts();
    let (_orin, device) = test_support::try_open(config(87));
    trap(&device?)?;
    executed.add(&coverage, &before, "trap");
    Ok(executed)
}

/// A kernel that ends in a trap: the only instruction without a result.
fn trap(device: &Device) -> Result<(), CoverageError> {
    let program = Program::load(device, &test_support::cubin("faults"))?;
    let (mut queue, kernel) = (device.queue()?, program.kernel("fault_trap")?);
    let out = device.alloc_zeroed::<u32>(32)?;
    unsafe { queue.launch(&kernel, 1, 32, &args![0_u32, &out]) }?;
    match queue.wait(TIMEOUT) {
        Err(Error::Fault(_)) => Ok(()),
        Err(error) => Err(error.into()),
        Ok(()) => Err(CoverageError::NoTrap),
    }
}

/// Why coverage cannot be determined.
#[derive(Debug, thiserror::Error)]
pub enum CoverageError {
    /// A cubin is missing.
    #[error("{path}: {error}; run `cargo xtask kernels`")]
    Cubin {
        /// Path.
        path: String,
        /// Reason.
        error: io::Error,
    },
    /// A case does not run.
    #[error(transparent)]
    Run(#[from] RunError),
    /// The trap did not raise a fault.
    #[error("a kernel that traps ended without a fault")]
    NoTrap,
}

impl From<Error> for CoverageError {
    fn from(error: Error) -> Self {
        Self::Run(error.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_names_each_instruction_once() {
        let wanted = wanted();
        let names: BTreeSet<&str> = wanted.iter().map(|line| line.mnemonic.as_str()).collect();
        assert_eq!(names.len(), wanted.len());
        assert!(wanted.iter().filter(|line| line.need == Need::Must).count() > 90);
        for line in &wanted {
            for form in &line.forms {
                assert!(
                    form.starts_with(&format!("{}.", line.mnemonic)),
                    "{form} is a form of {}",
                    line.mnemonic
                );
            }
        }
    }

    #[test]
    fn a_name_without_modifiers_covers_all_its_forms() {
        let mut executed = Executed::default();
        executed.by.insert("IMAD.WIDE".to_owned(), ["a"].into());
        executed.by.insert("IMADX".to_owned(), ["b"].into());
        assert_eq!(executed.users("IMAD"), ["a"].into());
        assert_eq!(executed.users("IMAD.WIDE"), ["a"].into());
        assert_eq!(executed.users("IMAD.HI"), BTreeSet::new());
    }
}
