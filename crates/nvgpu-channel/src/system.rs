//! Access to the system outside the driver.
//!
//! Accesses to sysfs, `/proc` and system files of the Jetson, which do not go through
//! [`kernel_door::Door`], use the trait [`System`], so a test can emulate any machine.

use core::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// User and groups of a process.
///
/// ```
/// use nvgpu_channel::system::Identity;
///
/// let identity = Identity { user: 1000, groups: vec![44] };
/// assert!(identity.groups.contains(&44));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Identity {
    /// Effective user.
    pub user: u32,
    /// Effective and supplementary groups.
    pub groups: Vec<u32>,
}

/// Owner and permissions of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Permissions {
    /// Owner.
    pub user: u32,
    /// Group.
    pub group: u32,
    /// The permission bits, including set-user-id, set-group-id and sticky.
    pub mode: u32,
}

/// Files and identity on a machine.
///
/// # Errors
///
/// Each call returns the system's error unchanged.
pub trait System: Send + Sync + fmt::Debug {
    /// Reads a text file.
    fn read(&self, path: &Path) -> io::Result<String>;
    /// Writes text to an existing file, as sysfs requires.
    fn write(&self, path: &Path, text: &str) -> io::Result<()>;
    /// Lists the names in a directory.
    fn list(&self, path: &Path) -> io::Result<Vec<String>>;
    /// Reads a symbolic link.
    fn link(&self, path: &Path) -> io::Result<PathBuf>;
    /// Returns owner and permissions; fails if the file does not exist.
    fn permissions(&self, path: &Path) -> io::Result<Permissions>;
    /// Returns user and groups of this process.
    fn identity(&self) -> Identity;
}

/// The running machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinuxSystem;

impl System for LinuxSystem {
    fn read(&self, path: &Path) -> io::Result<String> {
        Ok(String::from_utf8_lossy(&std::fs::read(path)?).into_owned())
    }

    fn write(&self, path: &Path, text: &str) -> io::Result<()> {
        use std::io::Write;
        std::fs::OpenOptions::new().write(true).open(path)?.write_all(text.as_bytes())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(path)? {
            names.push(entry?.file_name().to_string_lossy().into_owned());
        }
        names.sort();
        Ok(names)
    }

    fn link(&self, path: &Path) -> io::Result<PathBuf> {
        std::fs::read_link(path)
    }

    fn permissions(&self, path: &Path) -> io::Result<Permissions> {
        use std::os::unix::fs::MetadataExt;
        let metadata = std::fs::metadata(path)?;
        Ok(Permissions { user: metadata.uid(), group: metadata.gid(), mode: metadata.mode() & 0o7777 })
    }

    fn identity(&self) -> Identity {
        let mut groups = vec![rustix::process::getegid().as_raw()];
        // If the list is not available, only the effective group is known.
        groups
            .extend(rustix::process::getgroups().unwrap_or_default().into_iter().map(|group| group.as_raw()));
        Identity { user: rustix::process::geteuid().as_raw(), groups }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_running_machine_answers() {
        let system = LinuxSystem;
        assert!(!system.read(Path::new("/proc/self/comm")).unwrap().is_empty());
        assert!(system.list(Path::new("/proc/self")).unwrap().contains(&"fd".to_owned()));
        assert!(system.link(Path::new("/proc/self/exe")).unwrap().is_absolute());
        assert_eq!(system.permissions(Path::new("/dev/null")).unwrap().mode & 0o666, 0o666);
        assert!(!system.identity().groups.is_empty());
        let absent = system.write(Path::new("/proc/no-such-file"), "1").unwrap_err();
        assert_eq!(absent.kind(), io::ErrorKind::NotFound);
    }
}
