//! The report: one `.tar.gz` with text files.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Component, Path};

use anyhow::{Context, Result, bail, ensure};
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use serde_json::Value;

use super::privacy::Scrubber;

/// Folder of all files in the archive.
const FOLDER: &str = "bring-up";
/// Name of the summary.
pub(super) const SUMMARY: &str = "report.json";
/// Version of the report's layout.
pub(super) const FORMAT: u64 = 1;
/// Largest archive that is read, in bytes.
const MOST_PACKED: u64 = 32 << 20;
/// Largest contents of an archive that are read, in bytes, with headers.
const MOST_BYTES: u64 = 128 << 20;
/// Largest number of files in an archive.
const MOST_FILES: usize = 1000;

/// The file that explains a report.
const README: &str = "\
A report of `orin bring-up`: what a board (or the software Orin) answered to the first steps of a GPU driver.
Attach it to an issue. Everything is text; `orin bring-up --show FILE` prints it all.

report.json            versions, device, and the outcome of each stage
journal.txt            the order of stages and steps, as written to the disk during the run
stage-NN.json          facts of a stage: what was measured, the kernel log's lines about the GPU during the stage, and
                       after a failure the state of the channel (GP_GET, GP_PUT, USERD, last pushbuffer words)
stage-NN-calls.jsonl   system calls to the GPU's driver: words before and after, result or errno, time in microseconds
stage-NN-bundle/       after a failure: submissions, launch descriptors (QMD), mappings
earlier/               files of an earlier run that ended within a stage, for example because the machine froze

Not in it: host name, user names, home folders, serial numbers, MAC addresses, UUIDs, contents of files, environment
variables, lines of the kernel log that are not about the GPU. Names of programs that hold the GPU open, the release of
the kernel and of L4T, the board's model and the power mode are in stage-00.json. Addresses in the files are addresses
of this run's own memory.
";

/// A report in memory: files by name.
#[derive(Clone, Debug, Default)]
pub(super) struct Report {
    files: BTreeMap<String, Vec<u8>>,
}

impl Report {
    /// Collects the files of a run's folder.
    pub(super) fn of_folder(folder: &Path) -> Result<Self> {
        let mut report = Self::default();
        report.files.insert("README.txt".to_owned(), README.as_bytes().to_vec());
        report.add_folder(folder, "")?;
        Ok(report)
    }

    fn add_folder(&mut self, folder: &Path, prefix: &str) -> Result<()> {
        let scrubber = Scrubber::of_this_machine();
        for entry in fs::read_dir(folder).with_context(|| format!("reading {}", folder.display()))? {
            let entry = entry?;
            let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
            let kind = entry.file_type()?;
            if kind.is_dir() {
                self.add_folder(&entry.path(), &format!("{name}/"))?;
            } else if kind.is_file() {
                let bytes = fs::read(entry.path()).with_context(|| format!("reading {name}"))?;
                self.files.insert(name, scrubber.text(&String::from_utf8_lossy(&bytes)).into_bytes());
            }
        }
        Ok(())
    }

    /// The bytes of the archive.
    pub(super) fn pack(&self) -> Result<Vec<u8>> {
        let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
        for (name, bytes) in &self.files {
            let mut header = tar::Header::new_gnu();
            // CAST: a usize has at most 64 bits.
            header.set_size(bytes.len() as u64);
            header.set_mode(0o644);
            archive
                .append_data(&mut header, format!("{FOLDER}/{name}"), bytes.as_slice())
                .with_context(|| format!("packing {name}"))?;
        }
        archive.into_inner().and_then(GzEncoder::finish).context("packing the report")
    }

    /// Reads an archive. Sizes and names are checked before anything is kept.
    ///
    /// # Errors
    ///
    /// Returns an error if the file is too large, damaged, truncated, or not a report.
    pub(super) fn read(path: &Path) -> Result<Self> {
        let name = || path.display().to_string();
        let file = File::open(path).with_context(name)?;
        let packed = file.metadata().with_context(name)?.len();
        ensure!(packed <= MOST_PACKED, "{}: {packed} bytes are too many for a report", path.display());
        Self::unpack(file).with_context(|| format!("{} is not a whole report", path.display()))
    }

    fn unpack(packed: impl Read) -> Result<Self> {
        let mut left = MOST_BYTES;
        let plain = Limited { inner: GzDecoder::new(packed), left: &mut left };
        let mut archive = tar::Archive::new(plain);
        let mut report = Self::default();
        for entry in archive.entries()? {
            let mut entry = entry.context("reading the archive")?;
            let kind = entry.header().entry_type();
            if kind.is_dir() {
                continue;
            }
            let name = inner_name(&entry.path().context("name of a file")?)?;
            ensure!(kind.is_file(), "{name} is not a plain file");
            ensure!(report.files.len() < MOST_FILES, "more than {MOST_FILES} files");
            let size = entry.size();
            ensure!(size <= MOST_BYTES, "{name} has {size} bytes");
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).with_context(|| format!("reading {name}"))?;
            // CAST: a usize has at most 64 bits.
            ensure!(bytes.len() as u64 == size, "{name} is truncated");
            ensure!(report.files.insert(name.clone(), bytes).is_none(), "{name} is there twice");
        }
        // The end of the compressed data carries its checksum.
        io::copy(&mut archive.into_inner(), &mut io::sink()).context("reading the archive's end")?;
        let format = report.json(SUMMARY)?["format"].as_u64();
        ensure!(format == Some(FORMAT), "{SUMMARY} has format {format:?}, this program reads {FORMAT}");
        Ok(report)
    }

    /// The files by name.
    pub(super) fn files(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.files.iter().map(|(name, bytes)| (name.as_str(), bytes.as_slice()))
    }

    /// A file as JSON.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no such file, or if it is not JSON.
    pub(super) fn json(&self, name: &str) -> Result<Value> {
        let bytes = self.files.get(name).with_context(|| format!("{name} is missing"))?;
        serde_json::from_slice(bytes).with_context(|| format!("{name} is not JSON"))
    }
}

/// The name of a file below the archive's folder.
fn inner_name(path: &Path) -> Result<String> {
    let inner = path.strip_prefix(FOLDER).ok().filter(|inner| {
        let mut parts = inner.components();
        parts.next().is_some() && inner.components().all(|part| matches!(part, Component::Normal(_)))
    });
    match inner.and_then(Path::to_str) {
        Some(name) if name.len() <= 200 => Ok(name.to_owned()),
        _ => bail!("{:?} does not belong in a report", path.display().to_string()),
    }
}

/// A reader that fails beyond a number of bytes.
struct Limited<'a, R> {
    inner: R,
    left: &'a mut u64,
}

impl<R: Read> Read for Limited<'_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        // CAST: a usize has at most 64 bits.
        *self.left = self.left.checked_sub(count as u64).ok_or_else(|| {
            io::Error::new(io::ErrorKind::FileTooLarge, format!("the contents exceed {MOST_BYTES} bytes"))
        })?;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn pack(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
        for (name, bytes) in files {
            let mut header = tar::Header::new_gnu();
            // `set_path` refuses `..`, so the name is stored by hand.
            header.as_mut_bytes()[..name.len()].copy_from_slice(name.as_bytes());
            header.set_size(bytes.len() as u64);
            header.set_mode(0o644);
            header.set_cksum();
            archive.append(&header, *bytes).unwrap();
        }
        archive.into_inner().unwrap().finish().unwrap()
    }

    fn error(packed: &[u8]) -> String {
        format!("{:#}", Report::unpack(packed).unwrap_err())
    }

    const GOOD: (&str, &[u8]) = ("bring-up/report.json", b"{\"format\": 1}");

    #[test]
    fn a_report_is_read_back() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(SUMMARY), GOOD.1).unwrap();
        fs::create_dir(folder.path().join("earlier")).unwrap();
        fs::write(folder.path().join("earlier/journal.txt"), "stage 3 starting\n").unwrap();
        let report = Report::of_folder(folder.path()).unwrap();
        let path = folder.path().join("r.tar.gz");
        fs::write(&path, report.pack().unwrap()).unwrap();
        let read = Report::read(&path).unwrap();
        assert_eq!(read.files, report.files);
        assert_eq!(read.files["earlier/journal.txt"], b"stage 3 starting\n");
        assert!(String::from_utf8_lossy(&read.files["README.txt"]).contains("Not in it"));
    }

    #[test]
    fn every_truncation_is_an_error() {
        let whole = pack(&[GOOD, ("bring-up/stage-00.json", &[b' '; 3000])]);
        assert!(Report::unpack(whole.as_slice()).is_ok());
        for len in 0..whole.len() {
            assert!(Report::unpack(&whole[..len]).is_err(), "{len} of {} bytes", whole.len());
        }
    }

    #[test]
    fn hostile_archives_are_refused_with_a_reason() {
        assert!(error(b"not an archive").contains("gzip"), "{}", error(b"not an archive"));
        assert!(error(&pack(&[])).contains("report.json is missing"));
        for name in ["bring-up/../../etc/passwd", "/bring-up/x", "other/x", "bring-up"] {
            assert!(error(&pack(&[GOOD, (name, b"x")])).contains("does not belong"), "{name}");
        }
        assert!(error(&pack(&[GOOD, GOOD])).contains("twice"));
        assert!(error(&pack(&[("bring-up/report.json", b"{\"format\": 9}")])).contains("format"));
        assert!(error(&pack(&[("bring-up/report.json", b"[")])).contains("not JSON"));
        let names: Vec<String> = (0..=MOST_FILES).map(|number| format!("bring-up/{number}")).collect();
        let files: Vec<(&str, &[u8])> = names.iter().map(|name| (name.as_str(), b"".as_slice())).collect();
        assert!(error(&pack(&files)).contains("more than"));
    }

    #[test]
    fn a_bomb_is_refused_before_it_is_unpacked() {
        // One file that claims more than an archive may hold.
        let mut header = tar::Header::new_gnu();
        header.set_path("bring-up/bomb").unwrap();
        header.set_size(MOST_BYTES + 1);
        header.set_cksum();
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(header.as_bytes()).unwrap();
        assert!(error(&encoder.finish().unwrap()).contains("bomb has"));
        // Many that exceed the limit together.
        let zeros = vec![0; 40 << 20];
        let files: Vec<_> = ["bring-up/a", "bring-up/b", "bring-up/c", "bring-up/d"]
            .map(|name| (name, zeros.as_slice()))
            .to_vec();
        assert!(error(&pack(&files)).contains("exceed"));
    }

    #[test]
    fn links_are_refused() {
        let mut archive = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::fast()));
        let mut header = tar::Header::new_gnu();
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_size(0);
        archive.append_link(&mut header, "bring-up/x", "/etc/passwd").unwrap();
        let packed = archive.into_inner().unwrap().finish().unwrap();
        assert!(error(&packed).contains("not a plain file"));
    }
}
