//! The role of each descriptor of each process.
//!
//! Threads share one table; a forked process has a copy of its parent's. A process whose creation is not
//! in the trace counts as a thread, as in CUDA programs.

use std::collections::HashMap;

use kernel_door::RequestInfo;
use nvgpu_sys::{address_space, channel, ctrl, host1x, nvmap, sync_file, tsg};

/// Origin of a descriptor, which determines its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Role {
    /// `/dev/nvgpu/igpu0/ctrl`.
    Ctrl,
    /// An address space.
    AddressSpace,
    /// A TSG.
    Tsg,
    /// A channel.
    Channel,
    /// `/dev/nvmap`.
    Nvmap,
    /// `/dev/host1x-fence`.
    Host1xFence,
    /// A buffer.
    DmaBuf,
    /// A sync-file of a syncpoint threshold.
    SyncFile,
    /// A descriptor to poll for a syncpoint threshold.
    Pollfd,
    /// A descriptor to poll for events of a TSG, a channel or the GPU.
    Event,
    /// Another node of nvgpu: debugger, profiler, scheduler control.
    OtherNode,
    /// A file that is not the GPU's.
    Foreign,
    /// A device whose driver has taken a request that the GPU does not have, so its others are not the GPU's either.
    OtherDriver,
}

impl Role {
    /// The roles with known requests.
    pub(super) const WITH_REQUESTS: [Self; 7] = [
        Self::Ctrl,
        Self::AddressSpace,
        Self::Tsg,
        Self::Channel,
        Self::Nvmap,
        Self::Host1xFence,
        Self::SyncFile,
    ];

    /// Whether the file is not the GPU's.
    pub(super) fn is_foreign(self) -> bool {
        matches!(self, Self::Foreign | Self::OtherDriver)
    }

    /// A word for the listing.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ctrl => "ctrl",
            Self::AddressSpace => "as",
            Self::Tsg => "tsg",
            Self::Channel => "channel",
            Self::Nvmap => "nvmap",
            Self::Host1xFence => "host1x-fence",
            Self::DmaBuf => "dmabuf",
            Self::SyncFile => "sync-file",
            Self::Pollfd => "pollfd",
            Self::Event => "event",
            Self::OtherNode => "nvgpu",
            Self::Foreign | Self::OtherDriver => "other",
        }
    }

    /// The requests that a descriptor of this role accepts.
    pub(super) fn requests(self) -> &'static [RequestInfo] {
        match self {
            Self::Ctrl => ctrl::ALL,
            Self::AddressSpace => address_space::ALL,
            Self::Tsg => tsg::ALL,
            Self::Channel => channel::ALL,
            Self::Nvmap => nvmap::ALL,
            Self::Host1xFence => host1x::ALL,
            Self::SyncFile => sync_file::ALL,
            _ => &[],
        }
    }

    /// The role implied by a family letter, for unknown numbers. `H` and `N` are also the letters of
    /// nvhost nodes and nvgpu's scheduler node, `T` of terminals.
    pub(super) fn of_family(letter: u8) -> Option<Self> {
        match letter {
            ctrl::FAMILY => Some(Self::Ctrl),
            address_space::FAMILY => Some(Self::AddressSpace),
            host1x::FAMILY => Some(Self::Host1xFence),
            _ => None,
        }
    }

    /// The role of an opened path: nodes of r36, of earlier releases, and strace's descriptions of
    /// descriptors without a path. `None` if the description is ambiguous.
    pub(super) fn of_path(path: &str) -> Option<Self> {
        // With -yy a device's numbers follow: /dev/nvmap<char 10:62>.
        let path = path.split('<').next().unwrap_or(path);
        if let Some(node) = path.strip_prefix("/dev/nvgpu/") {
            return Some(match node.rsplit('/').next() {
                Some("ctrl") => Self::Ctrl,
                Some("as") => Self::AddressSpace,
                Some("tsg") => Self::Tsg,
                Some("channel") => Self::Channel,
                _ => Self::OtherNode,
            });
        }
        match path {
            "/dev/nvmap" => return Some(Self::Nvmap),
            "/dev/host1x-fence" => return Some(Self::Host1xFence),
            "/dev/nvhost-ctrl-gpu" => return Some(Self::Ctrl),
            "/dev/nvhost-as-gpu" => return Some(Self::AddressSpace),
            "/dev/nvhost-tsg-gpu" => return Some(Self::Tsg),
            "/dev/nvhost-gpu" => return Some(Self::Channel),
            _ => {}
        }
        if let Some(node) = path.strip_prefix("/dev/nvhost-")
            && node.ends_with("-gpu")
        {
            return Some(Self::OtherNode);
        }
        if path.starts_with("/dmabuf:") || path.contains("anon_inode:dmabuf") {
            return Some(Self::DmaBuf);
        }
        if path.contains("sync_file") {
            return Some(Self::SyncFile);
        }
        // Names of anonymous inodes: an address space and a channel both are nvhost-...-fd<n>.
        if let Some((_, name)) = path.split_once("anon_inode:") {
            let name = name.trim_start_matches('[');
            if name.starts_with("nvgpu-event") {
                return Some(Self::Event);
            }
            if name.starts_with("nvgpu-") && name.contains("-tsg") {
                return Some(Self::Tsg);
            }
            if name.starts_with("nvhost-") || name.starts_with("nvgpu-") || name.starts_with("host1x") {
                return None;
            }
        }
        Some(Self::Foreign)
    }
}

/// State of a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Descriptor {
    /// Its role.
    pub(super) role: Role,
    /// Whether the role was guessed from a request.
    pub(super) inferred: bool,
}

impl Descriptor {
    /// A descriptor whose origin is in the trace.
    pub(super) fn certain(role: Role) -> Self {
        Self { role, inferred: false }
    }
}

/// One table of descriptors.
type Table = HashMap<i64, Descriptor>;

/// The tables of all processes of a trace.
#[derive(Debug, Default)]
pub(super) struct Descriptors {
    /// Tables by number; 0 belongs to the first process and to all whose creation is not in the trace.
    tables: HashMap<u64, Table>,
    /// The table of each process that does not use table 0.
    owners: HashMap<u32, u64>,
    /// Number of the newest table.
    last_table: u64,
}

impl Descriptors {
    /// The table of a process; `None` if the trace has no process column.
    fn table(&mut self, pid: Option<u32>) -> &mut Table {
        let number = self.number(pid);
        self.tables.entry(number).or_default()
    }

    fn number(&self, pid: Option<u32>) -> u64 {
        pid.and_then(|pid| self.owners.get(&pid)).copied().unwrap_or(0)
    }

    /// The state of a descriptor.
    pub(super) fn get(&self, pid: Option<u32>, fd: i64) -> Option<Descriptor> {
        self.tables.get(&self.number(pid))?.get(&fd).copied()
    }

    /// Records a descriptor that a call of this process created or revealed.
    pub(super) fn set(&mut self, pid: Option<u32>, fd: i64, descriptor: Descriptor) {
        if fd >= 0 {
            self.table(pid).insert(fd, descriptor);
        }
    }

    /// Forgets a descriptor.
    pub(super) fn close(&mut self, pid: Option<u32>, fd: i64) {
        self.table(pid).remove(&fd);
    }

    /// Forgets the descriptors from `first` to `last`.
    pub(super) fn close_range(&mut self, pid: Option<u32>, first: i64, last: i64) {
        self.table(pid).retain(|fd, _| *fd < first || *fd > last);
    }

    /// Makes `to` a duplicate of `from`.
    pub(super) fn duplicate(&mut self, pid: Option<u32>, from: i64, to: i64) {
        match self.get(pid, from) {
            Some(descriptor) => self.set(pid, to, descriptor),
            None => self.close(pid, to),
        }
    }

    /// Records a new process, which shares its parent's descriptors or has copies.
    pub(super) fn fork(&mut self, parent: Option<u32>, child: u32, shares: bool) {
        let number = self.number(parent);
        // A reused number: the end of its last process is not in the trace.
        self.exit(child);
        if shares {
            self.owners.insert(child, number);
        } else {
            let copy = self.tables.get(&number).cloned().unwrap_or_default();
            self.last_table += 1;
            self.tables.insert(self.last_table, copy);
            self.owners.insert(child, self.last_table);
        }
    }

    /// Forgets a process.
    pub(super) fn exit(&mut self, pid: u32) {
        if let Some(number) = self.owners.remove(&pid)
            && number != 0
            && !self.owners.values().any(|other| *other == number)
        {
            self.tables.remove(&number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_all_releases_have_roles() {
        for (path, role) in [
            ("/dev/nvgpu/igpu0/ctrl", Some(Role::Ctrl)),
            ("/dev/nvgpu/dgpu-0001:01:00.0/as", Some(Role::AddressSpace)),
            ("/dev/nvgpu/igpu0/dbg", Some(Role::OtherNode)),
            ("/dev/nvhost-ctrl-gpu", Some(Role::Ctrl)),
            ("/dev/nvhost-gpu", Some(Role::Channel)),
            ("/dev/nvhost-prof-gpu", Some(Role::OtherNode)),
            ("/dev/nvhost-ctrl", Some(Role::Foreign)),
            ("/dev/nvmap<char 10:62>", Some(Role::Nvmap)),
            ("/dev/host1x-fence", Some(Role::Host1xFence)),
            ("/dmabuf:", Some(Role::DmaBuf)),
            ("anon_inode:nvgpu-ga10b-tsg3", Some(Role::Tsg)),
            ("anon_inode:[nvgpu-event2-fd9]", Some(Role::Event)),
            ("anon_inode:nvhost-ga10b-fd5", None),
            ("anon_inode:[eventfd]", Some(Role::Foreign)),
            ("/dev/dri/renderD128", Some(Role::Foreign)),
            ("", Some(Role::Foreign)),
        ] {
            assert_eq!(Role::of_path(path), role, "{path}");
        }
    }

    #[test]
    fn threads_share_and_forks_copy() {
        let mut descriptors = Descriptors::default();
        let (ctrl, nvmap) = (Descriptor::certain(Role::Ctrl), Descriptor::certain(Role::Nvmap));
        descriptors.set(Some(1), 4, ctrl);
        descriptors.fork(Some(1), 2, true);
        descriptors.fork(Some(1), 3, false);
        descriptors.set(Some(2), 5, nvmap);
        descriptors.close(Some(3), 4);
        assert_eq!(descriptors.get(Some(1), 5), Some(nvmap), "threads share descriptors");
        assert_eq!(descriptors.get(Some(3), 5), None, "made after the fork");
        assert_eq!(descriptors.get(Some(1), 4), Some(ctrl), "the copy was closed, not this one");
        descriptors.exit(3);
        assert_eq!(descriptors.tables.len(), 1, "the copy is gone with its process");
        for _ in 0..3 {
            descriptors.fork(Some(1), 4, false);
        }
        assert_eq!(descriptors.tables.len(), 2, "a process id identifies one process");
    }

    #[test]
    fn duplicates_and_ranges() {
        let mut descriptors = Descriptors::default();
        let ctrl = Descriptor::certain(Role::Ctrl);
        descriptors.set(None, 4, ctrl);
        descriptors.duplicate(None, 4, 9);
        assert_eq!(descriptors.get(None, 9), Some(ctrl));
        descriptors.duplicate(None, 7, 9);
        assert_eq!(descriptors.get(None, 9), None, "a duplicate of something unknown");
        descriptors.close_range(None, 3, i64::MAX);
        assert_eq!(descriptors.get(None, 4), None);
        descriptors.set(None, -1, ctrl);
        assert_eq!(descriptors.get(None, -1), None);
    }
}
