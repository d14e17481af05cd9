//! The device nodes, and the permissions of this user.

use core::ffi::CStr;
use std::path::Path;
use std::sync::Arc;

use kernel_door::{Door, DoorFd, Errno, OpenFlags};
use nvgpu_sys::{cure, paths};

use super::Report;
use crate::system::{Permissions, System};

/// One node and its purpose.
pub(super) struct Node {
    subject: &'static str,
    pub(super) path: &'static CStr,
    /// Features that need it; `None` if everything does.
    loss: Option<&'static str>,
    /// The kernel module that creates it; empty for the kernel itself.
    module: &'static str,
    flags: OpenFlags,
}

impl Node {
    /// Whether a descriptor that is open for reading only does everything: nvmap does not check the mode of the file.
    fn reading_suffices(&self) -> bool {
        self.path == paths::NVMAP
    }

    /// Permissions that a group needs.
    fn needed_mode(&self) -> u32 {
        if self.reading_suffices() { 0o040 } else { 0o060 }
    }
}

pub(super) const NODES: [Node; 4] = [
    Node {
        subject: "memory node",
        path: paths::NVMAP,
        loss: None,
        module: "nvmap",
        flags: OpenFlags::READ_WRITE,
    },
    Node {
        subject: "GPU node",
        path: paths::CTRL,
        loss: None,
        module: "nvgpu",
        flags: OpenFlags::READ_WRITE,
    },
    Node {
        subject: "fence node",
        path: paths::HOST1X_FENCE,
        loss: Some("the CPU cannot sleep on syncpoints"),
        module: "host1x-fence",
        flags: OpenFlags::READ_WRITE,
    },
    Node {
        subject: "kernel log",
        path: paths::KMSG,
        loss: Some("faults are reported by their code only, without the kernel log"),
        module: "",
        flags: OpenFlags::NON_BLOCKING,
    },
];

/// Opens each node; returns whether the required nodes opened.
pub(super) fn examine(report: &mut Report, door: &Arc<dyn Door>, system: Option<&dyn System>) -> bool {
    let mut reachable = true;
    for node in &NODES {
        let path = node.path.to_string_lossy();
        let open = |flags| DoorFd::open(door, node.path, flags | OpenFlags::CLOSE_ON_EXEC);
        match open(node.flags) {
            Ok(_) => report.ok(node.subject, format!("{path} opens")),
            Err(Errno::ACCESS) if node.reading_suffices() && open(OpenFlags::empty()).is_ok() => {
                report.ok(node.subject, format!("{path} opens for reading only, which is enough"));
            }
            Err(errno) => {
                let cure = node_cure(node, errno, system);
                match node.loss {
                    Some(loss) => report.warning(node.subject, format!("{path}: {errno}: {loss}"), cure),
                    None => {
                        report.error(node.subject, format!("{path}: {errno}"), cure);
                        reachable = false;
                    }
                }
            }
        }
    }
    reachable
}

/// Returns the remedy for a node that does not open.
fn node_cure(node: &Node, errno: Errno, system: Option<&dyn System>) -> String {
    let path = node.path.to_string_lossy();
    match errno {
        Errno::ACCESS | Errno::PERM if node.path == paths::KMSG => {
            "run as root, or: sudo sysctl kernel.dmesg_restrict=0".into()
        }
        Errno::ACCESS | Errno::PERM => {
            let permissions = system.and_then(|system| system.permissions(Path::new(&*path)).ok());
            match system.zip(permissions) {
                Some((system, permissions)) => permission_cure(node, system, permissions),
                None => cure::JOIN_GROUP.into(),
            }
        }
        Errno::NOENT | Errno::NXIO | Errno::NODEV if system.is_none() => {
            "none: this software kernel does not have it".into()
        }
        Errno::NOENT | Errno::NXIO | Errno::NODEV if node.module.is_empty() => {
            format!("this is a container without it: start it with --device {path} --cap-add SYSLOG")
        }
        Errno::NOENT | Errno::NXIO | Errno::NODEV => {
            let power = Path::new("/dev/nvgpu/igpu0/power");
            let off =
                node.path == paths::CTRL && system.is_some_and(|system| system.permissions(power).is_ok());
            if off {
                format!("the GPU has never been powered on: echo 1 | sudo tee {}", power.display())
            } else {
                format!("load the kernel module: sudo modprobe {}", node.module)
            }
        }
        _ => kernel_door::cure::of_call(errno).unwrap_or("check the kernel log: sudo dmesg").into(),
    }
}

/// Returns the remedy for a node that this user may not open.
fn permission_cure(node: &Node, system: &dyn System, permissions: Permissions) -> String {
    let path = node.path.to_string_lossy();
    let identity = system.identity();
    let shared = permissions.mode & node.needed_mode() == node.needed_mode();
    if !shared {
        let mode = permissions.mode;
        return format!(
            "{path} has mode {mode:#o}: L4T's udev rules make it 0660 for group video; reinstall them"
        );
    }
    let group = group_name(system, permissions.group);
    if identity.groups.contains(&permissions.group) {
        return format!(
            "you are in group {group}, which may open it; another mechanism denies it, for example a container \
             without --device {path}"
        );
    }
    format!("add yourself to group {group} (sudo usermod -aG {group} $USER) and log in again")
}

/// Returns the name of a group, or its number.
fn group_name(system: &dyn System, id: u32) -> String {
    let number = id.to_string();
    let groups = system.read(Path::new("/etc/group")).unwrap_or_default();
    let named = groups.lines().find_map(|line| {
        // name:password:number:members
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == number).then(|| name.to_owned())
    });
    named.unwrap_or(number)
}
