//! The files of this process in `/proc`, also in a root file system without it.

use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::OnceLock;

use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

/// A mount of procfs that is in no folder, for a root without `/proc`. An error if this process may not mount.
fn mount() -> Result<Option<&'static OwnedFd>, Errno> {
    static MOUNT: OnceLock<Result<Option<OwnedFd>, Errno>> = OnceLock::new();
    let mount = MOUNT.get_or_init(|| {
        if std::fs::exists("/proc/self/fd").unwrap_or(false) {
            return Ok(None);
        }
        let context = fsopen("proc", FsOpenFlags::FSOPEN_CLOEXEC)?;
        fsconfig_create(&context)?;
        fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, MountAttrFlags::empty()).map(Some)
    });
    mount.as_ref().map(Option::as_ref).map_err(|errno| *errno)
}

/// Fails if the files cannot be reached.
pub(crate) fn check() -> Result<(), Errno> {
    mount().map(|_| ())
}

/// Opens the file `name` of `/proc/self`.
fn open(name: &str, access: OFlags) -> Result<OwnedFd, Errno> {
    let access = access | OFlags::CLOEXEC;
    match mount()? {
        Some(mount) => rustix::fs::openat(mount, format!("self/{name}"), access, Mode::empty()),
        None => rustix::fs::openat(CWD, format!("/proc/self/{name}"), access, Mode::empty()),
    }
}

/// The text of the file `name` of `/proc/self`.
pub(crate) fn read_to_string(name: &str) -> std::io::Result<String> {
    let mut text = String::new();
    File::from(open(name, OFlags::RDONLY)?).read_to_string(&mut text)?;
    Ok(text)
}

/// Another open file of the same inode.
pub(crate) fn reopen(file: impl AsFd, access: OFlags) -> Result<OwnedFd, Errno> {
    open(&format!("fd/{}", file.as_fd().as_raw_fd()), access)
}

/// The numbers of the open descriptors.
pub(crate) fn open_numbers() -> impl Iterator<Item = i32> {
    let folder = open("fd", OFlags::RDONLY | OFlags::DIRECTORY).and_then(rustix::fs::Dir::new);
    folder.into_iter().flatten().filter_map(|entry| entry.ok()?.file_name().to_str().ok()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_listed_and_reopened() {
        let file = rustix::fs::memfd_create("f", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        rustix::io::write(&file, b"text").unwrap();
        assert!(open_numbers().any(|number| number == file.as_raw_fd()));
        let again = reopen(&file, OFlags::RDONLY).unwrap();
        let mut bytes = [0; 4];
        assert_eq!((rustix::io::read(&again, &mut bytes), &bytes), (Ok(4), b"text"));
        assert_eq!(rustix::io::write(&again, b"x"), Err(Errno::BADF));
        assert!(read_to_string("maps").unwrap().contains("/memfd:") || read_to_string("comm").is_ok());
    }
}
