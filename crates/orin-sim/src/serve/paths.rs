//! Paths of the board's nodes, and the answers to stat and access.

use core::mem::zeroed;

use crate::NodeKind;
use crate::caller::CallerFile;
use kernel_door::OpenFlags;
use nvgpu_sys::paths;
use rustix::io::Errno;

/// Prefixes of paths that belong to the board, whether or not the board has the node.
const BEGINNINGS: [&[u8]; 7] = [
    b"/dev/nvmap",
    b"/dev/nvgpu",
    b"/dev/nvhost-",
    b"/dev/host1x-fence",
    b"/dev/udmabuf",
    b"/dev/dma_heap/",
    b"/sys/class/devfreq/17000000.gpu",
];
/// Files of the system that describe the board.
const FILES: [&[u8]; 4] =
    [paths::KMSG.to_bytes(), b"/etc/nv_tegra_release", b"/proc/sys/kernel/osrelease", b"/proc/meminfo"];

/// Longest path that the supervisor reads, in bytes with the terminating zero. Longer paths are not the board's.
pub(crate) const LONGEST: usize = 64;

/// Major number of the board's character devices; free for local use (Linux `Documentation/admin-guide/devices.txt`).
const MAJOR: u32 = 240;
/// Preferred transfer size of files in bytes (`st_blksize`).
const BLOCK: u32 = 4096;

/// Whether a path belongs to the board.
pub(crate) fn is_of_board(path: &[u8]) -> bool {
    FILES.contains(&path) || BEGINNINGS.iter().any(|beginning| path.starts_with(beginning))
}

/// An absolute path without empty components and `.` and `..`, and whether the path demands a folder: it ends with a
/// slash or one of these. `..` removes the component before it, whatever that is.
pub(crate) fn normal(path: &[u8]) -> (Vec<u8>, bool) {
    let mut normal = Vec::with_capacity(path.len());
    let mut folder = false;
    for part in path.split(|byte| *byte == b'/').skip(1) {
        folder = matches!(part, b"" | b"." | b"..");
        match part {
            b"" | b"." => {}
            b".." => normal.truncate(normal.iter().rposition(|byte| *byte == b'/').unwrap_or(0)),
            part => {
                normal.push(b'/');
                normal.extend_from_slice(part);
            }
        }
    }
    (normal, folder)
}

/// Fails for flags that no file which exists, or none but a folder, is opened with.
pub(crate) fn check_open(kind: NodeKind, demands_folder: bool, flags: i32) -> Result<(), Errno> {
    let exclusive = libc::O_CREAT | libc::O_EXCL;
    if flags & exclusive == exclusive {
        return Err(Errno::EXIST);
    }
    check_folder(kind, demands_folder || flags & libc::O_DIRECTORY != 0)
}

/// Fails if a folder is demanded of a file.
pub(crate) fn check_folder(kind: NodeKind, demanded: bool) -> Result<(), Errno> {
    if demanded && !matches!(kind, NodeKind::Folder) { Err(Errno::NOTDIR) } else { Ok(()) }
}

/// The flags of an open; `None` if it is not for the board: writing to the kernel log.
pub(crate) fn open_flags(path: &[u8], flags: i32) -> Option<OpenFlags> {
    let mode = flags & libc::O_ACCMODE;
    if path == paths::KMSG.to_bytes() && mode == libc::O_WRONLY {
        return None;
    }
    let mut opened = OpenFlags::empty();
    opened.set(OpenFlags::READ_WRITE, mode != libc::O_RDONLY);
    opened.set(OpenFlags::CLOSE_ON_EXEC, flags & libc::O_CLOEXEC != 0);
    opened.set(OpenFlags::NON_BLOCKING, flags & libc::O_NONBLOCK != 0);
    opened.set(OpenFlags::SYNC, flags & libc::O_SYNC != 0);
    Some(opened)
}

/// The answer of access(2) for a node.
pub(crate) fn access(kind: NodeKind, mode: i32) -> Result<(), Errno> {
    let refused = match kind {
        NodeKind::Device { refused } => refused && mode != libc::F_OK || mode & libc::X_OK != 0,
        NodeKind::Text { .. } => mode & (libc::W_OK | libc::X_OK) != 0,
        _ => mode & libc::W_OK != 0,
    };
    if refused { Err(Errno::ACCESS) } else { Ok(()) }
}

/// File type and permissions, and length in bytes.
fn mode_and_size(kind: NodeKind) -> (u32, usize) {
    match kind {
        NodeKind::Device { .. } => (libc::S_IFCHR | 0o660, 0),
        NodeKind::Text { bytes } => (libc::S_IFREG | 0o444, bytes),
        _ => (libc::S_IFDIR | 0o755, 0),
    }
}

/// Inode number of a path: its FNV-1a hash.
fn inode(path: &[u8]) -> u64 {
    path.iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

/// The minor number of a node.
fn minor(path: &[u8]) -> u32 {
    // CAST: one byte.
    inode(path) as u32 & 0xff
}

/// What stat(2) reports of a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Status {
    /// Device number of the file system.
    device: u64,
    inode: u64,
    /// File type and permissions.
    mode: u32,
    /// Length in bytes.
    size: u64,
    /// Device number of the node itself: major and minor.
    node: (u32, u32),
}

impl Status {
    pub(crate) fn of_node(path: &[u8], kind: NodeKind) -> Self {
        let (mode, size) = mode_and_size(kind);
        let is_device = mode & libc::S_IFMT == libc::S_IFCHR;
        let node = if is_device { (MAJOR, minor(path)) } else { (0, 0) };
        // CAST: a short text.
        Self { device: 0, inode: inode(path), mode, size: size as u64, node }
    }

    /// Of an anonymous file, which has no type.
    pub(crate) fn of_object(file: CallerFile, size: u64) -> Self {
        Self { device: file.device, inode: file.inode, mode: 0o600, size, node: (0, 0) }
    }
}

/// The bytes of a struct of the kernel's interface.
fn bytes_of<T>(value: &T) -> Vec<u8> {
    let start = core::ptr::from_ref(value).cast::<u8>();
    // SAFETY: the value was zeroed as a whole, so all of its bytes are initialised; it outlives the copy.
    unsafe { core::slice::from_raw_parts(start, size_of::<T>()) }.to_vec()
}

/// `struct stat` of a file, as the kernel stores it.
pub(crate) fn stat(status: &Status) -> Vec<u8> {
    // SAFETY: zeros are a valid value.
    let mut stat: libc::stat = unsafe { zeroed() };
    (stat.st_dev, stat.st_ino, stat.st_nlink) = (status.device, status.inode, 1);
    (stat.st_mode, stat.st_rdev) = (status.mode, libc::makedev(status.node.0, status.node.1));
    // CAST: a small constant.
    (stat.st_size, stat.st_blksize) = (status.size.cast_signed(), BLOCK as _);
    bytes_of(&stat)
}

/// `struct statx` of a file.
pub(crate) fn statx(status: &Status) -> Vec<u8> {
    // SAFETY: as in `stat`.
    let mut statx: libc::statx = unsafe { zeroed() };
    statx.stx_mask = libc::STATX_BASIC_STATS;
    (statx.stx_dev_major, statx.stx_dev_minor) = (libc::major(status.device), libc::minor(status.device));
    // CAST: a mode has 16 bits.
    (statx.stx_mode, statx.stx_nlink, statx.stx_ino) = (status.mode as u16, 1, status.inode);
    (statx.stx_size, statx.stx_blksize) = (status.size, BLOCK);
    (statx.stx_rdev_major, statx.stx_rdev_minor) = status.node;
    bytes_of(&statx)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_the_board_are_recognised() {
        for path in [paths::NVMAP, paths::CTRL, paths::CTRL_LEGACY, paths::HOST1X_FENCE, paths::KMSG] {
            assert!(is_of_board(path.to_bytes()) && path.to_bytes_with_nul().len() <= LONGEST, "{path:?}");
        }
        for path in ["/sys/class/devfreq/17000000.gpu/max_freq", "/proc/meminfo", "/etc/nv_tegra_release"] {
            assert!(is_of_board(path.as_bytes()), "{path}");
        }
        for path in
            ["/dev/null", "/proc/meminfo2", "/dev/nvidia0", "/dev/kmsg2", "dev/nvmap", "/tmp/dev/nvmap", ""]
        {
            assert!(!is_of_board(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn forms_of_a_path_are_one_node() {
        for (form, path, folder) in [
            ("/dev/nvmap", "/dev/nvmap", false),
            ("//dev//nvmap", "/dev/nvmap", false),
            ("/dev/./nvmap", "/dev/nvmap", false),
            ("/tmp/../dev/x/../nvmap", "/dev/nvmap", false),
            ("/../dev/nvmap", "/dev/nvmap", false),
            ("/dev/nvmap/", "/dev/nvmap", true),
            ("/dev/nvmap/.", "/dev/nvmap", true),
            ("/dev/nvmap/..", "/dev", true),
            ("/", "", true),
        ] {
            assert_eq!(normal(form.as_bytes()), (path.as_bytes().to_vec(), folder), "{form}");
        }
    }

    #[test]
    fn the_kernel_log_is_written_to_the_host() {
        assert_eq!(open_flags(b"/dev/kmsg", libc::O_WRONLY), None);
        assert_eq!(
            open_flags(b"/dev/kmsg", libc::O_RDONLY | libc::O_NONBLOCK),
            Some(OpenFlags::NON_BLOCKING)
        );
        let flags = libc::O_RDWR | libc::O_SYNC | libc::O_CLOEXEC;
        let expected = OpenFlags::READ_WRITE | OpenFlags::SYNC | OpenFlags::CLOSE_ON_EXEC;
        assert_eq!(open_flags(b"/dev/nvmap", flags), Some(expected));
    }

    #[test]
    fn access_follows_the_mode_of_the_node() {
        let (device, refused) = (NodeKind::Device { refused: false }, NodeKind::Device { refused: true });
        let both = libc::R_OK | libc::W_OK;
        assert_eq!(access(device, both), Ok(()));
        assert_eq!((access(refused, libc::F_OK), access(refused, both)), (Ok(()), Err(Errno::ACCESS)));
        let text = NodeKind::Text { bytes: 11 };
        assert_eq!((access(text, libc::R_OK), access(text, libc::W_OK)), (Ok(()), Err(Errno::ACCESS)));
        assert_eq!(access(NodeKind::Folder, libc::X_OK), Ok(()));
    }

    #[test]
    fn both_forms_of_stat_agree() {
        let path = b"/dev/nvmap";
        let kind = NodeKind::Device { refused: false };
        let status = Status::of_node(path, kind);
        let (short, long) = (stat(&status), statx(&status));
        // SAFETY: the bytes are those of a value of the type; the read is unaligned.
        let (short, long) = unsafe {
            (
                short.as_ptr().cast::<libc::stat>().read_unaligned(),
                long.as_ptr().cast::<libc::statx>().read_unaligned(),
            )
        };
        assert_eq!(short.st_mode, u32::from(long.stx_mode));
        assert_eq!(short.st_mode & libc::S_IFMT, libc::S_IFCHR);
        assert_eq!(short.st_rdev, libc::makedev(long.stx_rdev_major, long.stx_rdev_minor));
        assert_eq!(short.st_ino, long.stx_ino);
    }
}
