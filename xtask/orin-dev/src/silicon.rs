//! `silicon`: the exchange with a GPU under NVIDIA's own driver.
//!
//! `export` writes the corpus as a folder; `run.py` in it runs the cases on any machine with an NVIDIA GPU and
//! driver; `import` stores the results as the reference data of the tests; `compare` compares them with the software
//! Orin's, for a run through this project's `libcuda.so.1`; `table` writes the comparison with the software Orin into
//! its document.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use orin_cli::{Progress, say, write_file};
use test_corpus::silicon::{self, Opinion};
use test_corpus::{cases, on_the_model, table};

/// Where an export goes.
#[derive(clap::Args)]
pub(crate) struct Export {
    /// Folder to create
    pub(crate) folder: PathBuf,
    /// Compute capability of the GPU times ten: 90 for an H100 or H200, 87 for an Orin
    #[arg(long, default_value_t = 90)]
    pub(crate) sm: u32,
}

/// Where an import comes from.
#[derive(clap::Args)]
pub(crate) struct Import {
    /// The output folder of the export's program
    pub(crate) folder: PathBuf,
}

/// The commands.
#[derive(clap::Subcommand)]
pub(crate) enum Exchange {
    /// Write kernels, inputs and launches for tests/corpus/silicon/run.py
    Export(Export),
    /// Store the output of run.py as the tests' reference data
    Import(Import),
    /// Compare the output of run.py with the software Orin's results, byte by byte; exit code 1 if a case differs
    Compare(Import),
    /// Write the table that compares the software Orin with silicon into docs/silicon.md
    Table {
        /// Only compare; fail if the document is out of date
        #[arg(long)]
        check: bool,
    },
}

/// Runs one of the commands.
///
/// # Errors
///
/// Returns an error if files cannot be read or written or do not match the corpus; with `table`, if a case fails.
pub(crate) fn run(exchange: &Exchange) -> Result<()> {
    match exchange {
        Exchange::Export(Export { folder, sm }) => {
            let count = silicon::export(folder, *sm, cases())?;
            say!("{count} cases for sm_{sm} in {}", folder.display())?;
            say!(
                "on the machine with the GPU: python3 run.py . OUT; then here: cargo xtask silicon import OUT"
            )?;
            Ok(())
        }
        Exchange::Import(Import { folder }) => {
            let target = xtask::workspace::root()?.join("tests/corpus/data/silicon");
            let remarks = silicon::import(folder, &target, cases())?;
            for remark in &remarks {
                say!("{remark}")?;
            }
            say!("{} remarks; results are in {}", remarks.len(), target.display())?;
            write_table(false)
        }
        Exchange::Compare(Import { folder }) => {
            let progress = Progress::new("executing the corpus");
            let results = on_the_model(orin_sim::Config::default(), cases())?;
            drop(progress);
            let (machine, bytes, differences) = silicon::differences(folder, cases(), &results)?;
            for difference in &differences {
                say!("{difference}")?;
            }
            let count = results.len();
            ensure!(differences.is_empty(), "{} of {count} cases differ", differences.len());
            say!("{}: {count} cases, {bytes} bytes, all equal", machine.device)?;
            Ok(())
        }
        Exchange::Table { check } => write_table(*check),
    }
}

fn write_table(check: bool) -> Result<()> {
    let root = xtask::workspace::root()?;
    let path = root.join("docs/silicon.md");
    let document = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    let opinion = Opinion::load(&root.join("tests/corpus/data/silicon"))?;
    let progress = Progress::new("executing the corpus");
    let results = on_the_model(orin_sim::Config::default(), cases())?;
    drop(progress);
    let rows = results.iter().map(|(case, outputs)| (*case, outputs.as_slice()));
    let table = table::render(&opinion, rows)?;
    let new = table::insert(&document, &table).context("docs/silicon.md has no markers for the table")?;
    if check {
        ensure!(new == document, "the table is out of date; run `cargo xtask silicon table`");
    } else {
        write_file(&path, new)?;
        say!("{} is up to date", path.display())?;
    }
    Ok(())
}
