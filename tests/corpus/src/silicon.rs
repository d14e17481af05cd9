//! Results of a GPU under NVIDIA's own driver, for comparison.
//!
//! [`export`] writes the corpus as a folder that `tests/silicon/run.py` runs on any machine with an NVIDIA
//! driver; it needs only Python's standard library and `libcuda`. [`import`] converts the output into
//! [`Stored`] results, which are committed: hashes if the result equals the reference, otherwise the outputs
//! themselves. Tests compare the software Orin with them.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::case::{Argument, Case};
use super::compare::{Difference, Tolerance, compare, is_nan};
use super::cubins::{FILES, built_in};
use super::data::Data;

/// Input of `run.py`: `cases.json`.
#[derive(Debug, Serialize, Deserialize)]
struct Export {
    /// Version of the format.
    format: u32,
    /// Compute capability times ten of the cubins.
    sm: u32,
    cases: Vec<ExportedCase>,
}

#[derive(Debug, Serialize, Deserialize)]
struct ExportedCase {
    name: String,
    cubin: String,
    kernel: String,
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    arguments: Vec<ExportedArgument>,
}

/// A buffer is stored in `inputs.bin`, a scalar as hexadecimal bytes.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ExportedArgument {
    Input { offset: usize, bytes: usize },
    Output { offset: usize, bytes: usize },
    Scalar(String),
}

/// Output of `run.py` per case: a line of `results.jsonl`.
#[derive(Debug, Deserialize)]
struct RunResult {
    name: String,
    /// Offset and length of each output in `outputs.bin`.
    outputs: Option<Vec<(usize, usize)>>,
    error: Option<String>,
}

/// Output of `run.py` about the machine: the first line of `results.jsonl`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Name of the GPU, as reported by its driver.
    pub device: String,
    /// Compute capability, for example `9.0`.
    pub capability: String,
    /// CUDA version of the driver, for example `12.8`.
    pub driver: String,
}

/// Committed results of silicon.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Stored {
    /// Machine that produced them; `None` before the first import.
    pub machine: Option<Machine>,
    /// Results by case name.
    pub cases: BTreeMap<String, StoredCase>,
}

/// Results of one case.
#[derive(Debug, Serialize, Deserialize)]
pub struct StoredCase {
    /// Hash of launch and arguments: results for other arguments are invalid.
    pub arguments: String,
    /// The outputs in order.
    pub outputs: Vec<StoredOutput>,
}

/// One output.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StoredOutput {
    /// SHA-256 of the bytes, with every NaN canonicalised.
    Hash(String),
    /// Offset and length of the bytes in `outputs.bin`.
    Bytes(usize, usize),
}

/// Why an export, import or lookup failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// Path.
        path: PathBuf,
        /// Reason.
        error: io::Error,
    },
    /// A file has unexpected contents.
    #[error("{}: {what}", path.display())]
    Content {
        /// Path.
        path: PathBuf,
        /// What is wrong, and how to fix it.
        what: String,
    },
}

/// Folder of the committed results.
pub fn folder() -> PathBuf {
    test_support::workspace().join("tests/corpus/data/silicon")
}

pub(crate) fn read(path: &Path) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(|error| Error::File { path: path.to_owned(), error })
}

pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<(), Error> {
    fs::write(path, bytes).map_err(|error| Error::File { path: path.to_owned(), error })
}

pub(crate) fn json_error(path: &Path) -> impl FnOnce(serde_json::Error) -> Error {
    let path = path.to_owned();
    move |error| Error::Content { path, what: error.to_string() }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Writes cases for a GPU of compute capability `sm` / 10; returns their number.
///
/// # Errors
///
/// If there are no cubins for such a GPU, or a file cannot be written.
pub fn export<'a>(folder: &Path, sm: u32, cases: impl IntoIterator<Item = &'a Case>) -> Result<usize, Error> {
    let cubins = folder.join("cubins");
    fs::create_dir_all(&cubins).map_err(|error| Error::File { path: cubins.clone(), error })?;
    for file in FILES {
        let path = cubins.join(file).with_extension("cubin");
        let cubin = built_in(file, sm).ok_or_else(|| Error::Content {
            path: path.clone(),
            what: format!("no cubins for sm_{sm}; only sm_87 and sm_90 are available"),
        })?;
        write(&path, cubin)?;
    }
    let mut inputs = Vec::new();
    let exported: Vec<_> = cases.into_iter().map(|case| exported(case, &mut inputs)).collect();
    let count = exported.len();
    let export = Export { format: 1, sm, cases: exported };
    let path = folder.join("cases.json");
    write(&path, &serde_json::to_vec(&export).map_err(json_error(&path))?)?;
    write(&folder.join("inputs.bin"), &inputs)?;
    write(&folder.join("run.py"), include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/silicon/run.py")))?;
    Ok(count)
}

fn exported(case: &Case, inputs: &mut Vec<u8>) -> ExportedCase {
    let mut place = |data: &Data| {
        let offset = inputs.len();
        inputs.extend_from_slice(&data.bytes);
        (offset, data.bytes.len())
    };
    let argument = |argument: &Argument| match argument {
        Argument::Input(data) => {
            let (offset, bytes) = place(data);
            ExportedArgument::Input { offset, bytes }
        }
        Argument::Output(data) => {
            let (offset, bytes) = place(data);
            ExportedArgument::Output { offset, bytes }
        }
        Argument::Scalar(bytes) => ExportedArgument::Scalar(hex(bytes)),
    };
    ExportedCase {
        name: case.kernel.to_owned(),
        cubin: format!("cubins/{}.cubin", case.file),
        kernel: case.kernel.to_owned(),
        grid: case.grid,
        block: case.block,
        shared_bytes: case.shared_bytes,
        arguments: case.arguments.iter().map(argument).collect(),
    }
}

/// Hash of everything that determines a case's results, except the code.
fn arguments_hash(case: &Case) -> String {
    let mut hash = Sha256::new();
    for number in case.grid.iter().chain(&case.block).chain([&case.shared_bytes]) {
        hash.update(number.to_le_bytes());
    }
    for argument in &case.arguments {
        let (tag, bytes) = match argument {
            Argument::Input(data) => (0_u64, &data.bytes),
            Argument::Output(data) => (1, &data.bytes),
            Argument::Scalar(bytes) => (2, bytes),
        };
        hash.update(tag.to_le_bytes());
        hash.update((bytes.len() as u64).to_le_bytes());
        hash.update(bytes);
    }
    hex(&hash.finalize())
}

/// Hash of an output, with every NaN canonicalised.
fn output_hash(data: &Data) -> String {
    let mut hash = Sha256::new();
    let size = data.kind.size();
    for word in data.words() {
        let word = if is_nan(data.kind, word) { u64::MAX } else { word };
        hash.update(&word.to_le_bytes()[..size]);
    }
    hex(&hash.finalize())
}

/// What a machine has computed for a case: the outputs, or why it did not run.
type Computed<'a> = (&'a Case, Result<Vec<Data>, String>);

/// Reads the output of `run.py`.
fn read_results<'a>(results: &Path, cases: &'a [Case]) -> Result<(Machine, Vec<Computed<'a>>), Error> {
    let path = results.join("results.jsonl");
    let text = String::from_utf8_lossy(&read(&path)?).into_owned();
    let bytes = read(&results.join("outputs.bin"))?;
    let mut lines = text.lines();
    let machine: Machine =
        serde_json::from_str(lines.next().unwrap_or_default()).map_err(json_error(&path))?;
    let mut computed = Vec::new();
    for line in lines {
        let result: RunResult = serde_json::from_str(line).map_err(json_error(&path))?;
        let Some(case) = cases.iter().find(|case| case.kernel == result.name) else {
            let what = format!("unknown case {}: export again and run the new export", result.name);
            return Err(Error::Content { path, what });
        };
        let Some(places) = result.outputs else {
            computed.push((case, Err(result.error.unwrap_or_default())));
            continue;
        };
        let outputs = outputs_of(case, &places, &bytes).ok_or_else(|| Error::Content {
            path: path.clone(),
            what: format!("{}: the outputs do not match the case", case.kernel),
        })?;
        computed.push((case, Ok(outputs)));
    }
    Ok((machine, computed))
}

/// Compares the output of `run.py` with the outputs that another run computed, byte by byte. Returns the machine, the
/// number of equal bytes, and a line for every case that did not run or differs.
///
/// # Errors
///
/// As [`import`].
pub fn differences(
    results: &Path,
    cases: &[Case],
    others: &[(&Case, Vec<Data>)],
) -> Result<(Machine, usize, Vec<String>), Error> {
    let (machine, computed) = read_results(results, cases)?;
    let (mut equal, mut lines) = (0, Vec::new());
    for (case, other) in others {
        match computed.iter().find(|(found, _)| found.kernel == case.kernel) {
            None => lines.push(format!("{}: there is no result", case.kernel)),
            Some((_, Err(error))) => lines.push(format!("{}: {error}", case.kernel)),
            Some((_, Ok(outputs))) if outputs != other => {
                lines.push(format!("{}: the outputs differ", case.kernel));
            }
            Some((_, Ok(outputs))) => equal += outputs.iter().map(|data| data.bytes.len()).sum::<usize>(),
        }
    }
    Ok((machine, equal, lines))
}

/// Reads the output of `run.py` and stores it in `target`. Returns a line for every case that did not run or
/// differs from the reference.
///
/// # Errors
///
/// If a file is missing or damaged, or belongs to other cases.
pub fn import(results: &Path, target: &Path, cases: &[Case]) -> Result<Vec<String>, Error> {
    let (machine, computed) = read_results(results, cases)?;
    let mut stored = Stored { machine: Some(machine), cases: BTreeMap::new() };
    let (mut kept, mut remarks) = (Vec::new(), Vec::new());
    for (case, outputs) in computed {
        match outputs {
            Ok(outputs) => {
                remarks.extend(remark(case, &outputs));
                stored.cases.insert(case.kernel.to_owned(), keep(case, &outputs, &mut kept));
            }
            Err(error) => remarks.push(format!("{}: {error}", case.kernel)),
        }
    }
    fs::create_dir_all(target).map_err(|error| Error::File { path: target.to_owned(), error })?;
    let path = target.join("results.json");
    let text = serde_json::to_string_pretty(&stored).map_err(json_error(&path))? + "\n";
    write(&path, text.as_bytes())?;
    write(&target.join("outputs.bin"), &kept)?;
    Ok(remarks)
}

/// The outputs of a case in the bytes of all.
fn outputs_of(case: &Case, places: &[(usize, usize)], bytes: &[u8]) -> Option<Vec<Data>> {
    let declared: Vec<&Data> = case.outputs().collect();
    if declared.len() != places.len() {
        return None;
    }
    declared
        .into_iter()
        .zip(places)
        .map(|(data, (offset, len))| {
            let bytes = bytes.get(*offset..offset.checked_add(*len)?)?.to_vec();
            (bytes.len() == data.bytes.len()).then_some(Data { kind: data.kind, bytes })
        })
        .collect()
}

/// Describes an element of silicon's result that is outside the tolerance.
fn remark(case: &Case, outputs: &[Data]) -> Option<String> {
    super::run::judge(case, outputs, case.expected(), "the CPU").err().map(|error| error.to_string())
}

fn keep(case: &Case, outputs: &[Data], kept: &mut Vec<u8>) -> StoredCase {
    let one = |(output, expected): (&Data, &Data)| {
        let hash = output_hash(output);
        if case.tolerance == Tolerance::Exact && hash == output_hash(expected) {
            return StoredOutput::Hash(hash);
        }
        let offset = kept.len();
        kept.extend_from_slice(&output.bytes);
        StoredOutput::Bytes(offset, output.bytes.len())
    };
    let outputs = outputs.iter().zip(case.expected()).map(one).collect();
    StoredCase { arguments: arguments_hash(case), outputs }
}

/// The committed results, with the bytes of outputs stored in full.
#[derive(Debug)]
pub struct Opinion {
    stored: Stored,
    bytes: Vec<u8>,
}

impl Opinion {
    /// Reads the committed results; empty if there are none.
    ///
    /// # Errors
    ///
    /// If a file is damaged.
    pub fn load(folder: &Path) -> Result<Self, Error> {
        let path = folder.join("results.json");
        if !path.exists() {
            return Ok(Self { stored: Stored::default(), bytes: Vec::new() });
        }
        let stored = serde_json::from_slice(&read(&path)?).map_err(json_error(&path))?;
        Ok(Self { stored, bytes: read(&folder.join("outputs.bin"))? })
    }

    /// Machine that produced the results.
    pub fn machine(&self) -> Option<&Machine> {
        self.stored.machine.as_ref()
    }

    /// Names of the cases with results.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.stored.cases.keys().map(String::as_str)
    }

    /// Whether there is a result of this case for these arguments.
    pub fn knows(&self, case: &Case) -> bool {
        let stored = self.stored.cases.get(case.kernel);
        stored.is_some_and(|stored| stored.arguments == arguments_hash(case))
    }

    /// Compares outputs with silicon's; `None` if there is no result for this case.
    ///
    /// # Errors
    ///
    /// If the stored results have other arguments or another shape.
    pub fn compare(&self, case: &Case, outputs: &[Data]) -> Result<Option<Difference>, Error> {
        let Some(stored) = self.stored.cases.get(case.kernel) else { return Ok(None) };
        let stale = |what: &str| Error::Content {
            path: folder().join("results.json"),
            what: format!("{}: {what}; run the case on silicon again, or remove its entry", case.kernel),
        };
        if stored.arguments != arguments_hash(case) {
            return Err(stale("the results are for other arguments"));
        }
        if stored.outputs.len() != outputs.len() {
            return Err(stale("the results have a different number of outputs"));
        }
        let mut total = Difference::default();
        for (output, stored) in outputs.iter().zip(&stored.outputs) {
            total = total.and(match stored {
                StoredOutput::Hash(hash) => by_hash(case, output, hash),
                StoredOutput::Bytes(offset, len) => {
                    let bytes = self
                        .bytes
                        .get(*offset..offset + len)
                        .ok_or_else(|| stale("the bytes are missing"))?;
                    let silicon = Data { kind: output.kind, bytes: bytes.to_vec() };
                    if silicon.bytes.len() != output.bytes.len() {
                        return Err(stale("the results have a different length"));
                    }
                    compare(output, &silicon, case.tolerance)
                }
            });
        }
        Ok(Some(total))
    }
}

/// Compares with a hash. The reference has the same hash, so it identifies the different element.
fn by_hash(case: &Case, output: &Data, hash: &str) -> Difference {
    if output_hash(output) == hash {
        return Difference { elements: output.len(), equal: output.len(), ..Difference::default() };
    }
    let same_shape = |data: &&Data| (data.kind, data.bytes.len()) == (output.kind, output.bytes.len());
    let expected = case.expected().iter().find(|data| same_shape(data) && output_hash(data) == hash);
    match expected {
        Some(expected) => compare(output, expected, Tolerance::Exact),
        None => Difference { elements: output.len(), equal: 0, max_ulp: u64::MAX, first_wrong: Some(0) },
    }
}
