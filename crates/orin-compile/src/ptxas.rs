//! NVIDIA's assembler of PTX, the program ptxas of the CUDA toolkits, where nvJitLink does not do.

use std::path::Path;
use std::process::{Command, Stdio};

use super::describe;
use super::library::Output;
use super::linker::{Input, failure};
use super::search::Search;
use crate::error::{Error, Result};

/// Compiles PTX with the first candidate that starts. `options` are ptxas's, with the architecture. Other threads may
/// compile meanwhile.
///
/// # Errors
///
/// [`Error::NoPtxas`] with the candidates if none starts; those of [`failure`] with ptxas's log; [`Error::File`] if the
/// temporary folder cannot be used.
pub(super) fn compile(search: &Search, input: &Input<'_>, options: &[String]) -> Result<Output> {
    let folder = tempfile::tempdir().map_err(|source| Error::File { path: std::env::temp_dir(), source })?;
    // The log shows this name.
    let (source, target) = (folder.path().join("input.ptx"), folder.path().join("output.cubin"));
    let file = |path: &Path| {
        let path = path.to_owned();
        move |source| Error::File { path, source }
    };
    let text = input.data.strip_suffix(b"\0").unwrap_or(&input.data);
    std::fs::write(&source, text).map_err(file(&source))?;
    let mut tried = Vec::new();
    for candidate in &search.candidates {
        let mut command = Command::new(candidate);
        command.args(options).args(["-o", "output.cubin", "input.ptx"]).current_dir(folder.path());
        let done = match command.stdin(Stdio::null()).output() {
            Ok(done) => done,
            Err(error) => {
                tried.push(describe(candidate, &error.to_string()));
                continue;
            }
        };
        let log = [done.stdout, done.stderr].concat();
        let log = String::from_utf8_lossy(&log).into_owned();
        if !done.status.success() {
            let log = if log.trim().is_empty() { format!("ptxas ends with {}", done.status) } else { log };
            return Err(failure(input.name, log));
        }
        let cubin = std::fs::read(&target).map_err(file(&target))?;
        return Ok(Output {
            cubin,
            log,
            by: format!("ptxas ({})", candidate.display()),
            lowered: Vec::new(),
        });
    }
    tried.extend(search.empty.iter().cloned());
    Err(Error::NoPtxas { name: input.name.to_owned(), tried })
}
