//! `kernels`: compiles `kernels/*.cu` to cubins and records their hashes.
//!
//! The cubins are committed, so building and testing the project needs no CUDA compiler. They are compiled by
//! NVRTC 12.6, NVIDIA's run-time compiler, a shared library driven by `kernels/compile.py`. By default it
//! comes from PyPI at a pinned version, into a virtual environment in `.venv`; the same version gives the
//! same bytes. Cubins for the Orin's GPU are next to the source, those for Hopper GPUs in `kernels/sm_90`.
//! `kernels/kernels.lock` contains the hashes of each source and its cubins; `--check` compares them and
//! needs neither compiler nor network. With `--output`, any version compiles for any architecture into
//! another folder; committed files do not change. A source for instructions of one chip says so in a line
//! `// only: sm_90a`; its cubin is in the folder of that generation.
//!
//! The sources in `kernels/corpus` are compiled by several releases for several chips: see [`corpus`]. Those in
//! `kernels/check` are compiled with and without line information: see [`planted`].

mod compiler;
mod corpus;
mod planted;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use orin_cli::{say, write_file};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use compiler::{Compiler, PINNED};

/// Folder of the sources and cubins, relative to the workspace root.
const FOLDER: &str = "kernels";
/// Folders of further sources, inside [`FOLDER`]; the folders of architectures contain folders of the same names.
const SUBFOLDERS: [&str; 4] = ["blas", "gemm", "llm", "runtime"];
/// The architectures of the committed cubins, by the compiler's name, and their folders: the Orin's GPU and
/// the Hopper generation.
const ARCHITECTURES: [(&str, &str); 2] = [("sm_87", ""), ("sm_90", "sm_90")];

/// Begins the line of a source that says the only architecture it is compiled for.
const ONLY: &str = "// only: ";

/// Options of `cargo xtask kernels`.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Only compare sources and cubins with kernels.lock; fail if they differ
    #[arg(long)]
    check: bool,
    /// Use this libnvrtc.so instead of the one from PyPI; version 12.6, or any with --output
    #[arg(long, value_name = "LIBRARY", conflicts_with = "check")]
    nvrtc: Option<PathBuf>,
    /// Write the cubins into this folder; kernels.lock and the committed cubins do not change
    #[arg(long, value_name = "FOLDER", conflicts_with = "check")]
    output: Option<PathBuf>,
    /// The compiler's name of the GPU: sm_80, sm_86, sm_87, sm_90, ...
    #[arg(long, value_name = "NAME", requires = "output", default_value = "sm_87")]
    arch: String,
}

/// Content of `kernels.lock`.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Lock {
    /// The compiler of the cubins.
    compiler: String,
    /// By name without extension.
    kernels: BTreeMap<String, Entry>,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    /// Options given to NVRTC besides the architecture.
    options: Vec<String>,
    /// SHA-256 of the `.cu` file and of the headers next to it, in hexadecimal.
    source: String,
    /// SHA-256 of the `.cubin` file of each architecture, in hexadecimal.
    cubins: BTreeMap<String, String>,
}

/// Rebuilds all cubins, or with `--check` compares sources and cubins with the lock file.
///
/// # Errors
///
/// Returns an error if NVRTC 12.6 is not available, a kernel does not compile, a file cannot be read or
/// written, or, with `--check`, if sources, cubins and lock file differ.
pub(crate) fn run(options: &Options) -> Result<()> {
    let folder = xtask::workspace::root()?.join(FOLDER);
    match (options.check, &options.output) {
        (true, _) => {
            check(&folder)?;
            corpus::check(&folder.join(corpus::FOLDER))?;
            planted::check(&folder.join(planted::FOLDER))
        }
        (false, None) => {
            build(&folder, options.nvrtc.as_deref())?;
            match options.nvrtc {
                // One compiler cannot replace all of them.
                Some(_) => corpus::check(&folder.join(corpus::FOLDER)),
                None => {
                    // It takes four releases of NVRTC.
                    if corpus::check(&folder.join(corpus::FOLDER)).is_err() {
                        corpus::build(&folder)?;
                    }
                    planted::build(&folder)
                }
            }
        }
        (false, Some(output)) => build_into(&folder, output, options.nvrtc.as_deref(), &options.arch),
    }
}

/// Compiles the planted errors with line information for a chip; `kernels` is the folder of all kernels.
pub(crate) fn compile_planted(kernels: &Path, target: &Path, arch: &str) -> Result<()> {
    planted::build_into(kernels, target, arch)
}

fn check(folder: &Path) -> Result<()> {
    let drift = drift(folder, &read_lock(folder)?)?;
    ensure!(drift.is_empty(), "{}; run `cargo xtask kernels`", drift.join("; "));
    Ok(())
}

fn build(folder: &Path, nvrtc: Option<&Path>) -> Result<()> {
    let compiler = match nvrtc {
        Some(library) => Compiler::of_version(folder, library, PINNED.version)?,
        None => Compiler::pinned(folder, &PINNED)?,
    };
    say!("compiler: {}", compiler.name)?;

    let names = all_stems(folder, "cu")?;
    ensure!(!names.is_empty(), "no .cu files in {}", folder.display());
    let mut lock = Lock { compiler: compiler.name.clone(), kernels: BTreeMap::new() };
    for (done, name) in names.iter().enumerate() {
        let source = source_hash(folder, name)?;
        let mut entry = Entry { options: Vec::new(), source, cubins: BTreeMap::new() };
        for (arch, place) in architectures(folder, name)? {
            let cubin = folder.join(place).join(name).with_extension("cubin");
            let parent = cubin.parent().context("a cubin is in a folder")?;
            fs::create_dir_all(parent).with_context(|| format!("making {}", parent.display()))?;
            let before = hash(&cubin).ok();
            entry.options =
                compiler.compile(folder, &folder.join(name).with_extension("cu"), &cubin, &arch)?;
            let made = hash(&cubin)?;
            let bytes = fs::metadata(&cubin)?.len();
            let news = match before {
                Some(before) if before == made => "unchanged",
                Some(_) => "changed",
                None => "new",
            };
            say!("[{}/{}] {name} for {arch}: {bytes} bytes, {news}", done + 1, names.len())?;
            entry.cubins.insert(arch, made);
        }
        lock.kernels.insert(name.clone(), entry);
    }
    let text = serde_json::to_string_pretty(&lock)? + "\n";
    write_file(lock_path(folder), text)?;
    // The user decides what to do with a cubin without a source.
    check(folder)
}

/// Compiles every kernel into another folder, and names those that fail.
fn build_into(folder: &Path, output: &Path, nvrtc: Option<&Path>, arch: &str) -> Result<()> {
    let compiler = match nvrtc {
        Some(library) => Compiler::from_library(folder, library)?,
        None => Compiler::pinned(folder, &PINNED)?,
    };
    say!("compiler: {}", compiler.name)?;
    fs::create_dir_all(output).with_context(|| format!("creating {}", output.display()))?;
    let names = all_stems(folder, "cu")?;
    let mut failed = Vec::new();
    for name in &names {
        if let Some(only) = only(folder, name)?.filter(|only| only != arch) {
            say!("{name}: only for {only}")?;
            continue;
        }
        let cubin = output.join(name).with_extension("cubin");
        fs::create_dir_all(cubin.parent().context("a cubin is in a folder")?)?;
        match compiler.compile(folder, &folder.join(name).with_extension("cu"), &cubin, arch) {
            Ok(_) => say!("{}: {} bytes", cubin.display(), fs::metadata(&cubin)?.len())?,
            Err(error) => {
                say!("{error:#}")?;
                failed.push(name.as_str());
            }
        }
    }
    ensure!(failed.is_empty(), "{} of {} do not compile: {}", failed.len(), names.len(), failed.join(", "));
    Ok(())
}

/// Returns all differences between sources, cubins and lock file, one sentence each.
fn drift(folder: &Path, lock: &Lock) -> Result<Vec<String>> {
    let sources = all_stems(folder, "cu")?;
    let mut drift = Vec::new();
    for name in &sources {
        let Some(entry) = lock.kernels.get(name) else {
            drift.push(format!("{name}.cu is not in kernels.lock"));
            continue;
        };
        if source_hash(folder, name)? != entry.source {
            drift.push(format!("{name}.cu has changed since its cubin was compiled"));
        }
        for (arch, place) in architectures(folder, name)? {
            let cubin = folder.join(place).join(name).with_extension("cubin");
            if !cubin.is_file() {
                drift.push(format!("{name}.cu has no cubin for {arch}"));
            } else if entry.cubins.get(&arch) != Some(&hash(&cubin)?) {
                drift.push(format!("{name}.cubin for {arch} was not compiled from {name}.cu"));
            }
        }
    }
    for (arch, place) in ARCHITECTURES {
        let cubins = all_stems(&folder.join(place), "cubin")?;
        let mut orphans = Vec::new();
        for name in &cubins {
            if !sources.contains(name) || architectures(folder, name)?.iter().all(|own| own.1 != place) {
                orphans.push(name);
            }
        }
        drift.extend(orphans.iter().map(|name| format!("{name}.cubin for {arch} has no source: remove it")));
    }
    drift.extend(
        lock.kernels
            .keys()
            .filter(|n| !sources.contains(n))
            .map(|n| format!("kernels.lock names {n}.cu, which does not exist")),
    );
    Ok(drift)
}

fn lock_path(folder: &Path) -> PathBuf {
    folder.join("kernels.lock")
}

fn read_lock(folder: &Path) -> Result<Lock> {
    let path = lock_path(folder);
    let text = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("parsing {}", path.display()))
}

/// As [`stems`], with those of [`SUBFOLDERS`], `folder/name`.
fn all_stems(folder: &Path, extension: &str) -> Result<Vec<String>> {
    let mut names = stems(folder, extension)?;
    for sub in SUBFOLDERS.into_iter().filter(|sub| folder.join(sub).is_dir()) {
        names.extend(stems(&folder.join(sub), extension)?.into_iter().map(|name| format!("{sub}/{name}")));
    }
    Ok(names)
}

/// The only architecture of a source; `None` if it is compiled for all.
fn only(folder: &Path, name: &str) -> Result<Option<String>> {
    let source = folder.join(name).with_extension("cu");
    let text = fs::read_to_string(&source).with_context(|| format!("reading {}", source.display()))?;
    Ok(text.lines().find_map(|line| line.strip_prefix(ONLY)).map(|arch| arch.trim().to_owned()))
}

/// The architectures that a source is compiled for, and the folders of its cubins.
fn architectures(folder: &Path, name: &str) -> Result<Vec<(String, &'static str)>> {
    let all = || ARCHITECTURES.into_iter();
    let Some(only) = only(folder, name)? else {
        return Ok(all().map(|(arch, place)| (arch.to_owned(), place)).collect());
    };
    // The name of a chip's own instructions ends in a letter.
    let generation = only.trim_end_matches(|c: char| c.is_ascii_lowercase());
    let found = all().find(|(arch, _)| *arch == generation);
    let (_, place) = found.with_context(|| format!("{name}.cu is only for {only}, which has no folder"))?;
    Ok(vec![(only, place)])
}

/// Hash of a source, and of the headers next to it, and of those one folder above a subfolder, if there are any.
fn source_hash(folder: &Path, name: &str) -> Result<String> {
    let source = folder.join(name).with_extension("cu");
    let beside = source.parent().context("a source is in a folder")?;
    let mut all = hash(&source)?;
    let own = all.len();
    for place in if beside == folder { vec![folder] } else { vec![beside, folder] } {
        for header in stems(place, "cuh")? {
            all += &hash(&place.join(header).with_extension("cuh"))?;
        }
    }
    if all.len() == own {
        return Ok(all);
    }
    Ok(hex(&Sha256::digest(all)))
}

/// Names of the files with this extension, without the extension, sorted.
fn stems(folder: &Path, extension: &str) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| format!("listing {}", folder.display()))? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == extension) {
            let stem = path.file_stem().and_then(|s| s.to_str());
            names.push(stem.with_context(|| format!("{} is not a UTF-8 name", path.display()))?.to_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// SHA-256 of a file in hexadecimal.
fn hash(path: &Path) -> Result<String> {
    let bytes = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
    Ok(hex(&Sha256::digest(bytes)))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder with one kernel and a matching lock file.
    fn folder(name: &str) -> (PathBuf, Lock) {
        let folder = std::env::temp_dir().join(format!("xtask-kernels-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("a.cu"), "source").unwrap();
        fs::write(folder.join("a.cubin"), "cubin").unwrap();
        fs::create_dir_all(folder.join("sm_90")).unwrap();
        fs::write(folder.join("sm_90/a.cubin"), "other cubin").unwrap();
        let cubin = |path: &str| hash(&folder.join(path)).unwrap();
        let entry = Entry {
            options: Vec::new(),
            source: cubin("a.cu"),
            cubins: [("sm_87".to_owned(), cubin("a.cubin")), ("sm_90".to_owned(), cubin("sm_90/a.cubin"))]
                .into(),
        };
        let lock = Lock { compiler: "test".to_owned(), kernels: [("a".to_owned(), entry)].into() };
        (folder, lock)
    }

    #[test]
    fn each_kind_of_drift_is_named() {
        let (folder, lock) = folder("drift");
        assert_eq!(drift(&folder, &lock).unwrap(), Vec::<String>::new());

        fs::write(folder.join("a.cu"), "edited").unwrap();
        assert_eq!(drift(&folder, &lock).unwrap(), ["a.cu has changed since its cubin was compiled"]);
        fs::write(folder.join("a.cu"), "source").unwrap();

        fs::write(folder.join("a.cubin"), "other").unwrap();
        assert_eq!(drift(&folder, &lock).unwrap(), ["a.cubin for sm_87 was not compiled from a.cu"]);
        fs::remove_file(folder.join("a.cubin")).unwrap();
        fs::remove_file(folder.join("sm_90/a.cubin")).unwrap();
        assert_eq!(
            drift(&folder, &lock).unwrap(),
            ["a.cu has no cubin for sm_87", "a.cu has no cubin for sm_90"]
        );

        fs::rename(folder.join("a.cu"), folder.join("b.cu")).unwrap();
        fs::write(folder.join("c.cubin"), "").unwrap();
        assert_eq!(
            drift(&folder, &lock).unwrap(),
            [
                "b.cu is not in kernels.lock",
                "c.cubin for sm_87 has no source: remove it",
                "kernels.lock names a.cu, which does not exist",
            ]
        );
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_changed_header_and_a_source_in_a_subfolder_count() {
        let (folder, mut lock) = folder("headers");
        fs::create_dir_all(folder.join("llm")).unwrap();
        fs::write(folder.join("llm/b.cu"), "source").unwrap();
        assert_eq!(drift(&folder, &lock).unwrap(), ["llm/b.cu is not in kernels.lock"]);

        fs::write(folder.join("h.cuh"), "header").unwrap();
        fs::remove_file(folder.join("llm/b.cu")).unwrap();
        lock.kernels.get_mut("a").unwrap().source = source_hash(&folder, "a").unwrap();
        assert_eq!(drift(&folder, &lock).unwrap(), Vec::<String>::new());
        fs::write(folder.join("h.cuh"), "other header").unwrap();
        assert_eq!(drift(&folder, &lock).unwrap(), ["a.cu has changed since its cubin was compiled"]);
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_source_for_one_chip_has_one_cubin() {
        let (folder, mut lock) = folder("only");
        fs::write(folder.join("a.cu"), "// only: sm_90a\n").unwrap();
        lock.kernels.get_mut("a").unwrap().source = source_hash(&folder, "a").unwrap();
        let found = drift(&folder, &lock).unwrap();
        assert_eq!(
            found,
            ["a.cubin for sm_90a was not compiled from a.cu", "a.cubin for sm_87 has no source: remove it"]
        );
        fs::remove_file(folder.join("a.cubin")).unwrap();
        let cubins = &mut lock.kernels.get_mut("a").unwrap().cubins;
        let hopper = cubins.remove("sm_90").unwrap();
        cubins.insert("sm_90a".to_owned(), hopper);
        assert_eq!(drift(&folder, &lock).unwrap(), Vec::<String>::new());
        fs::write(folder.join("a.cu"), "// only: sm_120a\n").unwrap();
        let error = drift(&folder, &lock).unwrap_err().to_string();
        assert_eq!(error, "a.cu is only for sm_120a, which has no folder");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_header_above_a_subfolder_counts() {
        let (folder, _) = folder("above");
        fs::create_dir_all(folder.join("llm")).unwrap();
        fs::write(folder.join("llm/b.cu"), "source").unwrap();
        let mut seen = vec![source_hash(&folder, "llm/b").unwrap()];
        for (header, text) in [("h.cuh", "one"), ("h.cuh", "two"), ("llm/g.cuh", "one"), ("llm/g.cuh", "two")]
        {
            fs::write(folder.join(header), text).unwrap();
            seen.push(source_hash(&folder, "llm/b").unwrap());
        }
        seen.sort();
        seen.dedup();
        assert_eq!(seen.len(), 5, "each change of a header changes the hash");
        fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn the_lock_file_survives_a_round_trip() {
        let (folder, lock) = folder("lock");
        fs::write(lock_path(&folder), serde_json::to_string_pretty(&lock).unwrap()).unwrap();
        assert_eq!(read_lock(&folder).unwrap(), lock);
        fs::write(lock_path(&folder), "{").unwrap();
        assert!(read_lock(&folder).unwrap_err().to_string().contains("kernels.lock"));
        fs::remove_dir_all(&folder).unwrap();
    }
}
