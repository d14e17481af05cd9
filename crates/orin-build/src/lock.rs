//! Committed cubins, and `kernels.lock`: what each was compiled from.

use std::collections::BTreeMap;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use sha2::{Digest, Sha256};

use crate::error::{Error, Result};

/// Name of the lock file.
const FILE: &str = "kernels.lock";
/// First line of the lock file.
const HEAD: &str = "# Written by orin-build: cubin, SHA-256 of its inputs, SHA-256 of the cubin, compiler.\n";

/// One committed cubin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// SHA-256 of the inputs, in hexadecimal.
    pub(crate) inputs: String,
    /// SHA-256 of the cubin, in hexadecimal.
    pub(crate) cubin: String,
    /// Name and version of the compiler.
    pub(crate) compiler: String,
}

/// A folder of committed cubins, with its lock file.
#[derive(Debug)]
pub(crate) struct Lock {
    folder: PathBuf,
    entries: BTreeMap<String, Entry>,
}

impl Lock {
    /// Reads the lock file of a folder; without one, nothing is committed.
    pub(crate) fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(FILE);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            Err(source) => return Err(Error::File { action: "reading", path, source }),
        };
        let mut entries = BTreeMap::new();
        for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.starts_with('#')) {
            let mut words = line.splitn(4, ' ');
            let mut word = || words.next().map(str::to_owned);
            let (Some(name), Some(inputs), Some(cubin), Some(compiler)) = (word(), word(), word(), word())
            else {
                return Err(Error::Lock { path, line: at + 1 });
            };
            entries.insert(name, Entry { inputs, cubin, compiler });
        }
        Ok(Self { folder: folder.to_owned(), entries })
    }

    /// The lock file.
    pub(crate) fn path(&self) -> PathBuf {
        self.folder.join(FILE)
    }

    /// The file of a cubin.
    pub(crate) fn cubin_path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The committed cubin of these inputs and its compiler, or why there is none.
    pub(crate) fn get(&self, name: &str, inputs: &str) -> Result<(Vec<u8>, String), String> {
        let path = self.cubin_path(name);
        let shown = path.display();
        let entry =
            self.entries.get(name).ok_or_else(|| format!("{} has no {name}", self.path().display()))?;
        if entry.inputs != inputs {
            return Err(format!("it, an included file or an option has changed since {shown} was compiled"));
        }
        let cubin = fs::read(&path).map_err(|error| format!("{shown}: {error}"))?;
        if hex(&Sha256::digest(&cubin)) != entry.cubin {
            return Err(format!("{shown} differs from {}", self.path().display()));
        }
        Ok((cubin, entry.compiler.clone()))
    }

    /// Writes a cubin and its entry. Both get the time of the newest input: cargo runs a build script again after a
    /// file that is newer than the run.
    pub(crate) fn put(
        &mut self,
        name: &str,
        inputs: &str,
        cubin: &[u8],
        compiler: &str,
        time: SystemTime,
    ) -> Result<()> {
        let entry = Entry {
            inputs: inputs.to_owned(),
            cubin: hex(&Sha256::digest(cubin)),
            compiler: compiler.to_owned(),
        };
        self.entries.insert(name.to_owned(), entry);
        write(&self.cubin_path(name), cubin, Some(time))?;
        // A cubin that was removed has no entry any more.
        let folder = &self.folder;
        self.entries.retain(|name, _| folder.join(name).exists());
        let lines = self
            .entries
            .iter()
            .map(|(name, Entry { inputs, cubin, compiler })| format!("{name} {inputs} {cubin} {compiler}\n"));
        let text: String = core::iter::once(HEAD.to_owned()).chain(lines).collect();
        write(&self.path(), text.as_bytes(), Some(time))
    }
}

/// Writes a file, and sets its time.
pub(crate) fn write(path: &Path, content: &[u8], time: Option<SystemTime>) -> Result<()> {
    let done = fs::write(path, content).and_then(|()| match time {
        Some(time) => fs::File::options().write(true).open(path)?.set_modified(time),
        None => Ok(()),
    });
    done.map_err(|source| Error::File { action: "writing", path: path.to_owned(), source })
}

/// Hash of everything that a cubin depends on besides the compiler: parts with their lengths.
pub(crate) fn inputs<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hex(&hash.finalize())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
