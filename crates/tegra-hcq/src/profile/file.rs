//! Files that are written completely or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Most symlinks that the kernel follows in a path.
const MOST_LINKS: usize = 40;
/// Most names that are tried for the new file.
const MOST_NAMES: usize = 64;

/// Writes a file. See [`Profile::write_chrome_trace`](super::Profile::write_chrome_trace) for the rules.
pub(super) fn write(path: &Path, contents: &[u8]) -> io::Result<()> {
    let Some(target) = regular(path)? else {
        return OpenOptions::new().write(true).open(path)?.write_all(contents);
    };
    let (new, file) = unfinished(&target)?;
    match complete(file, &target, contents).and_then(|()| fs::rename(&new, &target)) {
        Ok(()) => Ok(()),
        Err(error) => {
            // The first error is the one to report.
            let _ = fs::remove_file(&new);
            // Something is mounted on the file.
            let is_mount_point =
                matches!(error.kind(), io::ErrorKind::ResourceBusy | io::ErrorKind::CrossesDevices);
            if is_mount_point { overwrite(&target, contents) } else { Err(error) }
        }
    }
}

/// The path of a regular file, or of nothing yet, without symlinks at its end. `None` for anything else, and for a link
/// that stands for an open descriptor, as `/dev/stdout` does.
fn regular(path: &Path) -> io::Result<Option<PathBuf>> {
    let mut target = path.to_owned();
    for _ in 0..MOST_LINKS {
        match fs::symlink_metadata(&target) {
            Ok(found) if found.is_symlink() => {}
            Ok(found) => return Ok(found.is_file().then_some(target)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Some(target)),
            Err(error) => return Err(error),
        }
        let folder = fs::canonicalize(folder_of(&target))?;
        if folder.starts_with("/proc") {
            return Ok(None);
        }
        target = folder.join(fs::read_link(&target)?);
    }
    Err(rustix::io::Errno::LOOP.into())
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Creates an empty file in the folder of `target`.
fn unfinished(target: &Path) -> io::Result<(PathBuf, File)> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let attempt = || {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let new = folder_of(target).join(format!(".unfinished-{}-{number}", std::process::id()));
        let file = OpenOptions::new().write(true).create_new(true).open(&new)?;
        Ok((new, file))
    };
    // An earlier process with this id may have left files.
    let is_taken = |made: &io::Result<_>| {
        made.as_ref().is_err_and(|error: &io::Error| error.kind() == io::ErrorKind::AlreadyExists)
    };
    (1..MOST_NAMES).map(|_| attempt()).find(|made| !is_taken(made)).unwrap_or_else(attempt)
}

/// Writes the contents of a new file, and gives it the owner and the permissions of the old one.
fn complete(mut file: File, target: &Path, contents: &[u8]) -> io::Result<()> {
    file.write_all(contents)?;
    if let Ok(old) = fs::metadata(target) {
        // Only root may give files away; another user keeps a file of its own.
        let _ = fchown(&file, Some(old.uid()), Some(old.gid()));
        file.set_permissions(old.permissions())?;
    }
    // Errors of a full or remote disk may appear only here.
    file.sync_all()
}

/// Overwrites a file in place; writes the old contents back after an error.
fn overwrite(target: &Path, contents: &[u8]) -> io::Result<()> {
    let old = fs::read(target)?;
    let mut file = OpenOptions::new().write(true).truncate(true).open(target)?;
    file.write_all(contents).and_then(|()| file.sync_all()).inspect_err(|_| {
        // The first error is the one to report.
        let _ = fs::write(target, &old);
    })
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_reader_of_the_old_file_sees_all_of_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("trace.json");
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let mut reader = File::open(&path).unwrap();
        write(&path, b"new").unwrap();
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!((text.as_str(), fs::read_to_string(&path).unwrap().as_str()), ("old", "new"));
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o640, "the permissions stay");
        assert_eq!(names(folder.path()), ["trace.json"], "no unfinished file is left");
    }

    #[test]
    fn symlinks_are_followed_and_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("file"), "old").unwrap();
        symlink("file", path("link")).unwrap();
        symlink("later", path("dangling")).unwrap();
        symlink("circle", path("circle")).unwrap();
        write(&path("link"), b"new").unwrap();
        write(&path("dangling"), b"made").unwrap();
        assert!(fs::symlink_metadata(path("link")).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(path("file")).unwrap(), "new");
        assert_eq!(fs::read_to_string(path("later")).unwrap(), "made");
        write(&path("circle"), b"x").unwrap_err();
    }

    #[test]
    fn devices_and_descriptors_are_written_in_place() {
        write(Path::new("/dev/null"), b"x").unwrap();
        assert!(!fs::metadata("/dev/null").unwrap().is_file());
        let error = write(Path::new("/dev/full"), b"x").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(!fs::metadata("/dev/full").unwrap().is_file());

        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let file = File::create(&path).unwrap();
        let descriptor = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file));
        write(Path::new(&descriptor), b"x").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().ino(), file.metadata().unwrap().ino());
        assert_eq!(fs::read_to_string(&path).unwrap(), "x");
    }

    #[test]
    fn an_error_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), b"x").unwrap_err();
        write(&folder.path().join("no/such/trace.json"), b"x").unwrap_err();
        // The new file cannot be renamed to this.
        write(&folder.path().join("folder/"), b"x").unwrap_err();
        assert!(names(folder.path()).is_empty());
    }

    /// Names the folder of the mount point, in the process that has it.
    const FOLDER: &str = "TEGRA_HCQ_TEST_FOLDER";

    #[test]
    fn a_mount_point_is_overwritten_in_place() {
        if let Some(folder) = std::env::var_os(FOLDER).map(PathBuf::from) {
            write(&folder.join("mounted"), b"new").unwrap();
            assert_eq!(names(&folder), ["mounted", "own"]);
            return;
        }
        let unshare = || {
            let mut command = std::process::Command::new("unshare");
            command.args(["--user", "--map-root-user", "--mount"]);
            command
        };
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::write(path("mounted"), "").unwrap();
        fs::write(path("own"), "a longer text").unwrap();
        let mount = ["mount", "--bind", "own", "mounted"];
        if !unshare().args(mount).current_dir(folder.path()).status().is_ok_and(|status| status.success()) {
            println!("SKIPPED: this process may not mount");
            return;
        }
        // This test again, in a process that sees the mount.
        let again = format!("{} && exec \"$0\" --exact \"$1\"", mount.join(" "));
        let name = "profile::file::tests::a_mount_point_is_overwritten_in_place";
        let mut command = unshare();
        command.args(["sh", "-c", &again]).arg(std::env::current_exe().unwrap()).arg(name);
        assert!(command.env(FOLDER, folder.path()).current_dir(folder.path()).status().unwrap().success());
        assert_eq!(fs::read_to_string(path("own")).unwrap(), "new");
    }
}
