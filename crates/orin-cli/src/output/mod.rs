//! Files that a command writes.
//!
//! A regular file is replaced by renaming a complete new one over it, so it never holds a part of the new contents.
//! A symlink is followed first and stays. Anything else (a device, a FIFO) is opened and written. Several outputs are
//! written together: if one of them fails, no regular file is changed.
//!
//! A regular file that is a mount point of its own, as containers mount single files, cannot be replaced. It is
//! overwritten in place instead: a reader may see a part of the new contents, and a program that is killed meanwhile
//! leaves a part. After an error the old contents are written back.

use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use rustix::fs::{Access, CWD, RenameFlags, renameat_with};
use tempfile::{Builder, NamedTempFile, PathPersistError, TempPath};

use crate::exit::UsageError;
use crate::stdout::plain_stdout;

/// Prefix of the names of unfinished files.
const PREFIX: &str = ".unfinished-";
/// Most symlinks that the kernel follows in a path.
const MOST_LINKS: usize = 40;

/// Error of an output that cannot be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OutputError {
    /// The place cannot be written at all; nothing was done.
    #[error("{} cannot be written: {reason}", path.display())]
    Place {
        /// The path as given.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The output would replace a file that the command reads.
    #[error("{} would be overwritten, and this command reads it: choose another file", path.display())]
    Input {
        /// The path as given.
        path: PathBuf,
    },
    /// Two outputs have the same place.
    #[error("two outputs would be written to {place}: choose another file for one")]
    Twice {
        /// The file, or standard output.
        place: String,
    },
    /// Writing failed. No regular file was changed.
    #[error("writing {}", path.display())]
    Write {
        /// The path as given.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// Standard output cannot be written.
    #[error("printing the result")]
    Stdout(#[source] io::Error),
}

/// A place that cannot be written is refused before the work.
impl From<OutputError> for UsageError {
    fn from(error: OutputError) -> Self {
        Self(error.to_string())
    }
}

/// A place for the result of a command.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use orin_cli::Output;
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("report.json");
/// // Refused before the work if the place cannot be written.
/// let output = Output::prepare(&path)?;
/// // After the work: the whole file, or the old one.
/// output.write(b"{}")?;
/// assert_eq!(std::fs::read(&path)?, b"{}");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    path: PathBuf,
    place: Place,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Place {
    Stdout,
    /// A regular file, or nothing yet; the path without symlinks at its end.
    File(PathBuf),
    /// A device, a FIFO, or a descriptor of the process.
    Stream,
}

impl Output {
    /// Checks that a file can be written, without touching it. `-` is standard output.
    ///
    /// # Errors
    ///
    /// [`OutputError::Place`] with the reason.
    pub fn prepare(path: impl Into<PathBuf>) -> Result<Self, OutputError> {
        let path = path.into();
        match place(&path) {
            Ok(place) => Ok(Self { path, place }),
            Err(error) => Err(OutputError::Place { reason: reason(&error), path }),
        }
    }

    /// Checks several outputs, and that they differ.
    ///
    /// # Errors
    ///
    /// [`OutputError::Place`] for the first that cannot be written, and [`OutputError::Twice`].
    pub fn prepare_all(
        paths: impl IntoIterator<Item = impl Into<PathBuf>>,
    ) -> Result<Vec<Self>, OutputError> {
        let mut outputs: Vec<Self> = Vec::new();
        for path in paths {
            let output = Self::prepare(path)?;
            // A stream, such as /dev/null, may take several.
            if output.place != Place::Stream && outputs.iter().any(|other| other.place == output.place) {
                let file = || output.path.display().to_string();
                let place = if output.is_stdout() { "standard output".to_owned() } else { file() };
                return Err(OutputError::Twice { place });
            }
            outputs.push(output);
        }
        Ok(outputs)
    }

    /// Checks that the output does not replace one of the files that the command reads. Devices and pipes may be both.
    ///
    /// # Errors
    ///
    /// [`OutputError::Input`].
    pub fn spare(&self, inputs: impl IntoIterator<Item = impl AsRef<Path>>) -> Result<(), OutputError> {
        let Place::File(target) = &self.place else { return Ok(()) };
        let identity = |path: &Path| fs::metadata(path).ok().map(|file| (file.dev(), file.ino()));
        let own = identity(target);
        if own.is_some() && inputs.into_iter().any(|input| identity(input.as_ref()) == own) {
            return Err(OutputError::Input { path: self.path.clone() });
        }
        Ok(())
    }

    /// The path as given.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether this is standard output.
    pub fn is_stdout(&self) -> bool {
        self.place == Place::Stdout
    }

    /// Writes the contents.
    ///
    /// # Errors
    ///
    /// As [`write_all`].
    pub fn write(&self, contents: &[u8]) -> Result<(), OutputError> {
        write_all(&[(self, contents)])
    }

    /// Opens the output for contents that arrive little by little. A regular file is written under another name in
    /// its folder, `.unfinished-` and six characters, until [`Growing::finish`].
    ///
    /// # Errors
    ///
    /// [`OutputError::Write`].
    pub fn grow(&self) -> Result<Growing, OutputError> {
        let open = || {
            Ok(match &self.place {
                Place::Stdout => Target::Stdout,
                Place::Stream => Target::Stream(OpenOptions::new().write(true).open(&self.path)?),
                Place::File(target) => Target::File(unfinished(target)?, target.clone()),
            })
        };
        let target = open().map_err(|source| failed(self, source))?;
        Ok(Growing { output: self.clone(), target })
    }
}

/// An output that is being written.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::io::Write;
/// use orin_cli::Output;
///
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("log");
/// let mut growing = Output::prepare(&path)?.grow()?;
/// writeln!(growing, "a line")?;
/// assert!(!path.exists());
/// growing.finish()?;
/// assert_eq!(std::fs::read(&path)?, b"a line\n");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Growing {
    output: Output,
    target: Target,
}

#[derive(Debug)]
enum Target {
    Stdout,
    Stream(File),
    /// The unfinished file, and the path that it will have.
    File(NamedTempFile, PathBuf),
}

impl Growing {
    /// Completes the output. A regular file takes its place only now; if this is not called, it is as before.
    ///
    /// # Errors
    ///
    /// [`OutputError::Write`].
    pub fn finish(self) -> Result<(), OutputError> {
        let Self { output, target } = self;
        let Target::File(file, target) = target else { return Ok(()) };
        let finish = || Replaced::by(&target, completed(file, &target)?).map(drop);
        finish().map_err(|source| failed(&output, source))
    }
}

impl Write for Growing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.target {
            Target::Stdout => plain_stdout().write(bytes),
            Target::Stream(file) => file.write(bytes),
            Target::File(file, _) => file.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.target {
            Target::Stdout => plain_stdout().flush(),
            Target::Stream(file) => file.flush(),
            Target::File(file, _) => file.flush(),
        }
    }
}

/// Writes a file, with [`Output::prepare`] and [`Output::write`].
///
/// # Errors
///
/// Those of [`Output::prepare`] and [`write_all`].
pub fn write_file(path: impl Into<PathBuf>, contents: impl AsRef<[u8]>) -> Result<(), OutputError> {
    Output::prepare(path)?.write(contents.as_ref())
}

/// Writes several outputs. All new files are complete before the first one replaces another file.
///
/// # Errors
///
/// [`OutputError::Write`] or [`OutputError::Stdout`] for the first output that cannot be written. Regular files are as
/// before then; streams may have received their contents.
pub fn write_all(outputs: &[(&Output, &[u8])]) -> Result<(), OutputError> {
    let mut new = Vec::new();
    for (output, contents) in outputs {
        if let Place::File(target) = &output.place {
            let file = new_file(target, contents).map_err(|source| failed(output, source))?;
            new.push((*output, target.as_path(), file));
        }
    }
    for (output, contents) in outputs {
        match &output.place {
            Place::Stream => stream(&output.path, contents).map_err(|source| failed(output, source))?,
            Place::Stdout => {
                let mut stdout = plain_stdout();
                let printed = stdout.write_all(contents).and_then(|()| stdout.flush());
                printed.map_err(OutputError::Stdout)?;
            }
            Place::File(_) => {}
        }
    }
    let mut replaced: Vec<Replaced<'_>> = Vec::new();
    for (output, target, file) in new {
        match Replaced::by(target, file) {
            Ok(done) => replaced.push(done),
            Err(source) => {
                replaced.into_iter().rev().for_each(Replaced::undo);
                return Err(failed(output, source));
            }
        }
    }
    Ok(())
}

fn failed(output: &Output, source: io::Error) -> OutputError {
    OutputError::Write { path: output.path.clone(), source }
}

/// The text of an error, without its number.
fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

/// Decides how to write to a path, and checks that it can be done.
fn place(path: &Path) -> io::Result<Place> {
    if path == Path::new("-") {
        return Ok(Place::Stdout);
    }
    let Some(target) = followed(path)? else {
        writable(path)?;
        return Ok(Place::Stream);
    };
    match fs::metadata(&target) {
        Ok(metadata) if metadata.is_dir() => return Err(io::Error::other("it is a folder")),
        Ok(metadata) if metadata.file_type().is_socket() => return Err(io::Error::other("it is a socket")),
        Ok(metadata) if !metadata.is_file() => {
            writable(path)?;
            return Ok(Place::Stream);
        }
        // Replacing a file needs no permission to write to it, but that is what the permission is for.
        Ok(_) => writable(&target)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    if target.file_name().is_none() || path.as_os_str().as_encoded_bytes().ends_with(b"/") {
        return Err(io::Error::other("it is no name of a file"));
    }
    // Shows that the folder exists and takes a new file.
    unfinished(&target)?;
    Ok(Place::File(target))
}

fn writable(path: &Path) -> io::Result<()> {
    Ok(rustix::fs::access(path, Access::WRITE_OK)?)
}

/// The path without symlinks at its end; `None` if a link stands for an open descriptor, as `/dev/stdout` does.
fn followed(path: &Path) -> io::Result<Option<PathBuf>> {
    let mut path = path.to_owned();
    for _ in 0..MOST_LINKS {
        match fs::symlink_metadata(&path) {
            Ok(metadata) if metadata.is_symlink() => {}
            _ => return Ok(Some(path)),
        }
        let folder = fs::canonicalize(folder_of(&path))?;
        if folder.starts_with("/proc") {
            return Ok(None);
        }
        path = folder.join(fs::read_link(&path)?);
    }
    Err(io::Error::other("too many levels of symbolic links"))
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Creates an empty file in the folder of `target`.
fn unfinished(target: &Path) -> io::Result<NamedTempFile> {
    let folder = folder_of(target);
    // The error of `make_in` has the name of the unfinished file, which would distract, and no number.
    let mut reason = None;
    let open = |path: &Path| {
        // The kernel applies the umask.
        let opened = OpenOptions::new().read(true).write(true).create_new(true).mode(0o666).open(path);
        opened.inspect_err(|error| reason = error.raw_os_error())
    };
    let made = Builder::new().prefix(PREFIX).make_in(folder, open);
    made.map_err(|error| match error.kind() {
        io::ErrorKind::NotFound if folder.is_dir() => {
            io::Error::other(format!("files cannot be created in {}", folder.display()))
        }
        io::ErrorKind::NotFound => io::Error::other(format!("there is no folder {}", folder.display())),
        kind => reason.map_or_else(|| kind.into(), io::Error::from_raw_os_error),
    })
}

/// Writes a complete file beside `target`, with its permissions.
fn new_file(target: &Path, contents: &[u8]) -> io::Result<TempPath> {
    let mut file = unfinished(target)?;
    file.write_all(contents)?;
    completed(file, target)
}

/// Gives a complete file the permissions of `target`, and waits until it is on the disk.
fn completed(file: NamedTempFile, target: &Path) -> io::Result<TempPath> {
    if let Ok(old) = fs::metadata(target) {
        adopt(file.as_file(), &old)?;
    }
    // Errors of a full or remote disk may appear only here.
    file.as_file().sync_all()?;
    Ok(file.into_temp_path())
}

/// Gives a file the owner and the permissions of another.
fn adopt(file: &File, old: &Metadata) -> io::Result<()> {
    // Only root may give files away; another user keeps a file of its own.
    let _ = fchown(file, Some(old.uid()), Some(old.gid()));
    file.set_permissions(Permissions::from_mode(old.mode() & 0o777))
}

fn stream(path: &Path, contents: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(path)?;
    file.write_all(contents)?;
    file.flush()
}

/// A file that has been replaced or created.
struct Replaced<'a> {
    target: &'a Path,
    before: Before,
}

/// State of a path before it was replaced.
enum Before {
    /// Nothing.
    Nothing,
    /// The old file, under the name of the unfinished one.
    File(TempPath),
    /// The old contents of a file that was overwritten.
    Contents(Vec<u8>),
    /// A file that is gone: the file system cannot exchange files.
    Gone,
}

impl<'a> Replaced<'a> {
    /// Moves a new file to its place.
    fn by(target: &'a Path, new: TempPath) -> io::Result<Self> {
        // A folder that has taken the place since would be exchanged as well.
        if fs::symlink_metadata(target).is_ok_and(|found| found.is_file())
            && renameat_with(CWD, &*new, CWD, target, RenameFlags::EXCHANGE).is_ok()
        {
            return Ok(Self { target, before: Before::File(new) });
        }
        let before = if target.exists() { Before::Gone } else { Before::Nothing };
        match new.persist(target) {
            Ok(()) => Ok(Self { target, before }),
            Err(PathPersistError { error, path }) if is_mount_point(&error) => {
                Ok(Self { target, before: Before::Contents(overwrite(target, &fs::read(&path)?)?) })
            }
            Err(PathPersistError { error, .. }) => Err(error),
        }
    }

    /// Restores the old state as far as possible: another error is being reported.
    fn undo(self) {
        match self.before {
            Before::Nothing => {
                let _ = fs::remove_file(self.target);
            }
            Before::File(old) => {
                let _ = renameat_with(CWD, &*old, CWD, self.target, RenameFlags::EXCHANGE);
            }
            Before::Contents(old) => {
                let _ = fs::write(self.target, old);
            }
            Before::Gone => {}
        }
    }
}

/// Whether a file could not be replaced because something is mounted on it.
fn is_mount_point(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ResourceBusy | io::ErrorKind::CrossesDevices)
}

/// Overwrites a file in place and returns the old contents; writes them back after an error.
fn overwrite(target: &Path, contents: &[u8]) -> io::Result<Vec<u8>> {
    let old = fs::read(target)?;
    let mut file = OpenOptions::new().write(true).truncate(true).open(target)?;
    match file.write_all(contents).and_then(|()| file.sync_all()) {
        Ok(()) => Ok(old),
        Err(error) => {
            let _ = fs::write(target, old);
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests;
