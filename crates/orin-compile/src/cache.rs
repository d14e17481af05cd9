//! On-disk cache of compiled programs, addressed by content.
//!
//! An entry is a file whose name is the SHA-256 of all inputs of the compilation. It is written to a temporary file and
//! then renamed, so other processes see either the whole entry or none. It contains a checksum over key and content; a
//! damaged or exchanged file counts as absent.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use memmap2::Mmap;
use sha2::{Digest, Sha256};

use super::library::{Job, Output};

/// Environment variable that switches the cache off when it is `off` or `0`.
const SWITCH: &str = "NVGPU_CACHE";
/// Maximum size of the user's cache in bytes.
const DEFAULT_MAX_BYTES: u64 = 256 << 20;
/// First bytes of an entry; the last one is the format version.
const MAGIC: &[u8; 8] = b"nvgpucc\x02";
/// File name extensions of entries, and of entries that are being written.
const ENTRY: &str = ".cubin";
const UNFINISHED: &str = ".tmp";
/// Age after which an unfinished file belongs to a dead process.
const ABANDONED: Duration = Duration::from_secs(3600);

/// A folder of compiled programs, shared by all processes of a user.
///
/// If the cache exceeds its size, the least recently used entries are removed. A cache that cannot be read or written
/// causes compilations and a warning, never an error.
///
/// ```
/// use orin_compile::Cache;
///
/// let cache = Cache::at("/tmp/kernels", 16 << 20);
/// assert_eq!(cache.folder(), std::path::Path::new("/tmp/kernels"));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    folder: PathBuf,
    max_bytes: u64,
}

/// SHA-256 of all inputs of a compilation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key([u8; 32]);

impl Cache {
    /// A cache of at most `max_bytes` bytes in a separate folder, which is created on first use.
    pub fn at(folder: impl Into<PathBuf>, max_bytes: u64) -> Self {
        Self { folder: folder.into(), max_bytes }
    }

    /// The user's cache of 256 MiB: `nvgpu` in `$XDG_CACHE_HOME`, or in `~/.cache` if that is not set. `None` if the
    /// environment variable `NVGPU_CACHE` is `off` or `0`, or if there is no home directory.
    pub fn user() -> Option<Self> {
        if env::var_os(SWITCH).is_some_and(|value| value == "off" || value == "0") {
            return None;
        }
        let folder = user_folder(env::var_os("XDG_CACHE_HOME"), env::var_os("HOME"));
        if folder.is_none() {
            tracing::debug!("neither XDG_CACHE_HOME nor HOME is an absolute path: nothing is cached");
        }
        Some(Self::at(folder?, DEFAULT_MAX_BYTES))
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The entry with this key, if there is a valid one. Counts as a use of the entry.
    pub(super) fn get(&self, key: Key) -> Option<Output> {
        let path = self.path(key);
        let bytes = match map(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                tracing::warn!(path = %path.display(), %error, "a cached program cannot be read");
                return None;
            }
        };
        let Some(output) = decode(key, &bytes) else {
            tracing::warn!(path = %path.display(), "a cached program is damaged: it is compiled again");
            return None;
        };
        // Only the order of removal depends on the time.
        if let Ok(file) = File::options().write(true).open(&path) {
            let _ = file.set_modified(SystemTime::now());
        }
        Some(output)
    }

    /// Adds an entry, and removes old ones if the cache is too large.
    pub(super) fn put(&self, key: Key, output: &Output) {
        let written = self.write(key, output).and_then(|()| self.prune());
        if let Err(error) = written {
            tracing::warn!(folder = %self.folder.display(), %error, "a compiled program cannot be cached");
        }
    }

    fn write(&self, key: Key, output: &Output) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let mut file = tempfile::Builder::new().suffix(UNFINISHED).tempfile_in(&self.folder)?;
        file.write_all(&encode(key, output))?;
        file.persist(self.path(key)).map_err(|error| error.error)?;
        Ok(())
    }

    fn path(&self, key: Key) -> PathBuf {
        let name: String = key.0.iter().map(|byte| format!("{byte:02x}")).collect();
        self.folder.join(name + ENTRY)
    }

    /// Removes the oldest entries until the rest fits, and files left by dead processes.
    fn prune(&self) -> io::Result<()> {
        let now = SystemTime::now();
        let mut entries = Vec::new();
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            // Another process may have removed it already.
            let Ok(metadata) = entry.metadata() else { continue };
            let modified = metadata.modified()?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.ends_with(ENTRY) {
                entries.push((modified, metadata.len(), entry.path()));
            } else if name.ends_with(UNFINISHED)
                && now.duration_since(modified).is_ok_and(|age| age > ABANDONED)
            {
                remove(&entry.path())?;
            }
        }
        entries.sort();
        let mut total: u64 = entries.iter().map(|(_, bytes, _)| bytes).sum();
        for (_, bytes, path) in entries {
            if total <= self.max_bytes {
                break;
            }
            remove(&path)?;
            total -= bytes;
        }
        Ok(())
    }
}

/// Maps an entry.
fn map(path: &Path) -> io::Result<Mmap> {
    let file = File::open(path)?;
    // SAFETY: an entry never changes in place: this module writes a temporary file and renames it, and later only sets
    // the entry's time or unlinks it, which keeps the mapped file. `get` copies what it needs and unmaps the file
    // before it returns. No lock enforces the rule: another program that truncates an entry meanwhile raises SIGBUS
    // here. The cache makes its folder with mode 0700, so that program has to be the user's own.
    unsafe { Mmap::map(&file) }
}

/// Removes a file; a file that is already gone is not an error.
fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The user's folder by the XDG Base Directory Specification, which ignores relative paths.
fn user_folder(xdg: Option<OsString>, home: Option<OsString>) -> Option<PathBuf> {
    let absolute = |path: OsString| Some(PathBuf::from(path)).filter(|path| path.is_absolute());
    let caches = xdg.and_then(absolute).or_else(|| Some(home.and_then(absolute)?.join(".cache")))?;
    Some(caches.join("nvgpu"))
}

impl Key {
    /// The key of a job for a compiler version, with the contents of the files that the job may include.
    pub(super) fn of(version: (u32, u32), job: Job<'_>, files: &BTreeMap<PathBuf, Vec<u8>>) -> Self {
        let mut parts = Parts::new("compile");
        parts.add(&version.0.to_le_bytes());
        parts.add(&version.1.to_le_bytes());
        parts.add(job.name.as_bytes());
        parts.add(job.source.as_bytes());
        parts.list(job.options.iter().map(String::as_bytes));
        parts.list(job.expressions.iter().map(String::as_bytes));
        parts.list(job.headers.iter().flat_map(|(name, text)| [name.as_bytes(), text.as_bytes()]));
        parts.list(files.iter().flat_map(|(path, content)| [path.as_os_str().as_encoded_bytes(), content]));
        parts.key()
    }
}

/// The parts of a key. Each is preceded by its length, so different lists of parts have different bytes.
pub(super) struct Parts(Sha256);

impl Parts {
    /// Those of a compilation by one kind of tool.
    pub(super) fn new(tool: &str) -> Self {
        let mut parts = Self(Sha256::new());
        parts.add(MAGIC);
        parts.add(tool.as_bytes());
        parts
    }

    /// Adds one part.
    pub(super) fn add(&mut self, bytes: &[u8]) {
        self.0.update((bytes.len() as u64).to_le_bytes());
        self.0.update(bytes);
    }

    /// Adds any number of parts.
    pub(super) fn list<'a>(&mut self, list: impl IntoIterator<Item = &'a [u8]>) {
        let count = list.into_iter().map(|part| self.add(part)).count();
        self.add(&(count as u64).to_le_bytes());
    }

    pub(super) fn key(self) -> Key {
        Key(self.0.finalize().into())
    }
}

/// Magic, checksum, then log, cubin, compiler and names, each preceded by its length as a little-endian u64.
fn encode(key: Key, output: &Output) -> Vec<u8> {
    let mut body = Vec::new();
    let parts = [output.log.as_bytes(), &output.cubin, output.by.as_bytes()];
    for part in parts.into_iter().chain(output.lowered.iter().map(String::as_bytes)) {
        body.extend((part.len() as u64).to_le_bytes());
        body.extend(part);
    }
    [MAGIC, &checksum(key, &body)[..], &body].concat()
}

/// The inverse of [`encode`]; `None` if anything has changed since it was written.
fn decode(key: Key, bytes: &[u8]) -> Option<Output> {
    let (sum, body) = bytes.strip_prefix(MAGIC)?.split_at_checked(32)?;
    if sum != checksum(key, body) {
        return None;
    }
    let mut parts = Vec::new();
    let mut rest = body;
    while !rest.is_empty() {
        let (length, tail) = rest.split_first_chunk::<8>()?;
        let (part, tail) = tail.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
        parts.push(part);
        rest = tail;
    }
    let (&log, parts) = parts.split_first()?;
    let (&cubin, parts) = parts.split_first()?;
    let (&by, lowered) = parts.split_first()?;
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
    let lowered = lowered.iter().map(|name| text(name)).collect::<Option<_>>()?;
    Some(Output { cubin: cubin.to_vec(), log: text(log)?, by: text(by)?, lowered })
}

fn checksum(key: Key, body: &[u8]) -> [u8; 32] {
    Sha256::new().chain_update(key.0).chain_update(body).finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn output(byte: u8, bytes: usize) -> Output {
        Output {
            cubin: vec![byte; bytes],
            log: "a.cu(1): warning #1: é".to_owned(),
            by: "NVRTC 12.6".to_owned(),
            lowered: vec!["_Z1fv".to_owned(), String::new()],
        }
    }

    fn key(byte: u8) -> Key {
        Key([byte; 32])
    }

    fn set_age(cache: &Cache, key: Key, age: u64) {
        let file = File::options().write(true).open(cache.path(key)).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
    }

    #[test]
    fn the_folder_follows_the_specification() {
        let some = |text: &str| Some(OsString::from(text));
        assert_eq!(user_folder(some("/c"), some("/h")), Some(PathBuf::from("/c/nvgpu")));
        assert_eq!(user_folder(None, some("/h")), Some(PathBuf::from("/h/.cache/nvgpu")));
        assert_eq!(user_folder(some("relative"), some("/h")), Some(PathBuf::from("/h/.cache/nvgpu")));
        assert_eq!(user_folder(some(""), None), None);
    }

    #[test]
    fn an_entry_comes_back_as_it_was_put() {
        let root = tempfile::tempdir().unwrap();
        let cache = Cache::at(root.path().join("made/on/demand"), 1 << 20);
        assert_eq!(cache.get(key(1)), None);
        cache.put(key(1), &output(7, 1000));
        assert_eq!(cache.get(key(1)), Some(output(7, 1000)));
        assert_eq!(cache.get(key(2)), None);
        let files = fs::read_dir(cache.folder()).unwrap().count();
        assert_eq!(files, 1, "no unfinished file is left");
    }

    #[test]
    fn a_damaged_or_exchanged_entry_counts_as_absent() {
        let root = tempfile::tempdir().unwrap();
        let cache = Cache::at(root.path(), 1 << 20);
        cache.put(key(1), &output(7, 50));
        let whole = fs::read(cache.path(key(1))).unwrap();
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 1;
            assert_eq!(decode(key(1), &bytes), None, "byte {at}");
            assert_eq!(decode(key(1), &whole[..at]), None, "cut at {at}");
        }
        assert_eq!(decode(key(2), &whole), None);
        fs::rename(cache.path(key(1)), cache.path(key(2))).unwrap();
        assert_eq!(cache.get(key(2)), None);
        cache.put(key(2), &output(9, 50));
        assert_eq!(cache.get(key(2)), Some(output(9, 50)));
    }

    #[test]
    fn the_entries_unused_for_longest_go_when_it_is_full() {
        let root = tempfile::tempdir().unwrap();
        let cache = Cache::at(root.path(), 3500);
        for byte in 1..=3 {
            cache.put(key(byte), &output(byte, 1000));
            set_age(&cache, key(byte), 1000 - u64::from(byte));
        }
        assert!(cache.get(key(1)).is_some(), "a use makes it the youngest");
        let old = root.path().join("x.tmp");
        fs::write(&old, "").unwrap();
        File::options().write(true).open(&old).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        fs::write(root.path().join("y.tmp"), "").unwrap();

        cache.put(key(4), &output(4, 1000));
        let there: Vec<bool> = (1..=4).map(|byte| cache.path(key(byte)).exists()).collect();
        assert_eq!(there, [true, false, true, true]);
        assert!(!old.exists());
        assert!(root.path().join("y.tmp").exists(), "may be in use");
    }

    #[test]
    fn a_cache_that_cannot_be_written_is_no_error() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("file"), "").unwrap();
        let cache = Cache::at(root.path().join("file/folder"), 1 << 20);
        cache.put(key(1), &output(1, 10));
        assert_eq!(cache.get(key(1)), None);
    }

    #[test]
    fn everything_that_matters_changes_the_key() {
        let strings = |list: &[&str]| -> Vec<String> { list.iter().map(|&text| text.to_owned()).collect() };
        let (ab, a_b) = (strings(&["ab"]), strings(&["a", "b"]));
        let headers = [("h.h".to_owned(), "1".to_owned())];
        let job = Job { name: "n", source: "s", headers: &[], options: &ab, expressions: &[] };
        let none = BTreeMap::new();
        let files: BTreeMap<_, _> = [(PathBuf::from("f.h"), b"1".to_vec())].into();
        let changed: BTreeMap<_, _> = [(PathBuf::from("f.h"), b"2".to_vec())].into();
        let keys = [
            Key::of((12, 6), job, &none),
            Key::of((12, 7), job, &none),
            Key::of((12, 6), Job { name: "m", ..job }, &none),
            Key::of((12, 6), Job { source: "t", ..job }, &none),
            Key::of((12, 6), Job { options: &a_b, ..job }, &none),
            Key::of((12, 6), Job { options: &[], expressions: &ab, ..job }, &none),
            Key::of((12, 6), Job { headers: &headers, ..job }, &none),
            Key::of((12, 6), job, &files),
            Key::of((12, 6), job, &changed),
        ];
        for (at, key) in keys.iter().enumerate() {
            assert!(!keys[..at].contains(key), "key {at} equals an earlier one");
        }
        assert_eq!(keys[0], Key::of((12, 6), job, &none));
    }
}
