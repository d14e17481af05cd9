//! Several processes on one board: shared and separate objects.

use std::sync::Arc;

use crate::support::*;
use kernel_door::{Door, DoorFd, Errno, OpenFlags, Protection};
use nvgpu_sys::nvmap::{self, CreateHandle};
use nvgpu_sys::{ctrl, paths, tsg};
use orin_sim::board::BOARDS;
use orin_sim::{CallerMemory, Config, LiveCounts, ProcessCounts, Profile, SoftwareOrin};
use zerocopy::IntoBytes as _;

const READ_WRITE: Protection = Protection::READ.union(Protection::WRITE);

fn bench_of(orin: &SoftwareOrin) -> Bench {
    let door: Arc<dyn Door> = Arc::new(orin.clone());
    let nvmap = DoorFd::open(&door, paths::NVMAP, FLAGS).unwrap();
    let ctrl = DoorFd::open(&door, paths::CTRL, FLAGS).unwrap();
    Bench { release: Release::R36_4_3, orin: orin.clone(), door, nvmap, ctrl }
}

/// The instance id of a control node.
fn instance(bench: &Bench) -> u64 {
    ctrl::get_characteristics(&bench.ctrl).unwrap().0.device_instance_id
}

#[test]
fn handles_and_descriptors_belong_to_one_process() {
    let first = Bench::new();
    let second = bench_of(&first.orin.process());
    let handle = first.create(4096);
    first.alloc(handle);
    let mut args = CreateHandle { size_or_fd: 0, handle };
    assert_eq!(nvmap::GET_FD.send(&second.nvmap, &mut args), Err(Errno::BADF), "a number of another process");
    assert_eq!(second.create(4096), handle + 1, "numbers are given out machine-wide");

    // A descriptor must be passed; then both see the same memory.
    let exported = first.export(handle);
    assert_eq!(close(&second.door, exported.raw()), Err(Errno::BADF));
    let passed = adopt(&second.door, first.orin.send(exported.raw(), &second.orin).unwrap());
    let (here, there) = (cpu(&exported, 4096), cpu(&passed, 4096));
    word(&here, 16).store(77, std::sync::atomic::Ordering::Release);
    assert_eq!(word(&there, 16).load(std::sync::atomic::Ordering::Acquire), 77);
    let mut import = CreateHandle { size_or_fd: raw(&passed), handle: 0 };
    nvmap::FROM_FD.send(&second.nvmap, &mut import).unwrap();
    assert_eq!(first.orin.process_counts(), ProcessCounts { descriptors: 3, mappings: 1, handles: 1 });
    assert_eq!(second.orin.process_counts(), ProcessCounts { descriptors: 3, mappings: 1, handles: 2 });

    // The client ends with its last descriptor; the other client's numbers remain.
    drop((here, exported, first.nvmap));
    assert_eq!(first.orin.process_counts().handles, 0);
    assert_eq!(second.orin.process_counts().handles, 2);
    assert_eq!(second.orin.live().buffers, 2);
}

#[test]
fn a_token_opens_a_tsg_elsewhere_once() {
    let first = Bench::new();
    let second = bench_of(&first.orin.process());
    let (source, target) = (instance(&first), instance(&second));
    assert_ne!(source, target);
    let tsg = first.tsg();
    let token = |target_device_instance_id| {
        let mut args = tsg::GetShareToken {
            source_device_instance_id: source,
            target_device_instance_id,
            share_token: 0,
        };
        tsg::GET_SHARE_TOKEN.send(&tsg, &mut args).map(|_| args.share_token)
    };
    let open = |share_token| {
        let mut args = ctrl::OpenTsg {
            tsg_fd: 0,
            flags: ctrl::OpenTsgFlags::SHARE.bits(),
            source_device_instance_id: source,
            share_token,
        };
        ctrl::OPEN_TSG.send(&second.ctrl, &mut args)?;
        Ok(adopt(&second.door, args.tsg_fd.cast_signed()))
    };
    assert_eq!(token(99), Err(Errno::INVAL), "there is no such instance");
    let good = token(target).unwrap();
    let shared = open(good).unwrap();
    assert_eq!(first.orin.live().tsgs, 1, "it is the same TSG");
    assert_eq!(open(good).err(), Some(Errno::INVAL), "a token is used up");
    let (space, channel) = (second.space(), second.channel());
    bind_space(&space, &channel).unwrap();
    bind_tsg(&shared, &channel, 0).unwrap();
    // A token that was revoked, or whose node was closed, is invalid.
    let revoked = token(target).unwrap();
    let mut args = tsg::RevokeShareToken {
        source_device_instance_id: source,
        target_device_instance_id: target,
        share_token: revoked,
    };
    assert_eq!(tsg::REVOKE_SHARE_TOKEN.send(&tsg, &mut args), Ok(0));
    assert_eq!(tsg::REVOKE_SHARE_TOKEN.send(&tsg, &mut args), Err(Errno::INVAL));
    assert_eq!(open(revoked).err(), Some(Errno::INVAL));
    let stale = token(target).unwrap();
    drop(first.ctrl);
    assert_eq!(open(stale).err(), Some(Errno::INVAL));
    drop(tsg);
    assert_eq!(first.orin.live().tsgs, 1, "the other process holds it");
}

#[test]
fn a_child_shares_open_files_and_inherits_no_mapping() {
    let parent = Bench::new();
    let doorbell = parent.doorbell();
    let (child, numbers) = parent.orin.fork().unwrap();
    assert_eq!(child.process_counts(), ProcessCounts { descriptors: 2, mappings: 0, handles: 0 });
    let door: Arc<dyn Door> = Arc::new(child.clone());
    let ctrl = adopt(&door, numbers[&parent.ctrl.raw()]);
    // One open of the node allows one doorbell mapping, which the parent has.
    assert_eq!(ctrl.map(0, 4096, READ_WRITE).err(), Some(Errno::BUSY));
    let own = DoorFd::open(&door, paths::CTRL, FLAGS).unwrap();
    assert!(own.map(0, 4096, READ_WRITE).is_ok());
    drop(doorbell);
    let mapped = ctrl.map(0, 4096, READ_WRITE).unwrap();
    assert_eq!(parent.ctrl.map(0, 4096, READ_WRITE).err(), Some(Errno::BUSY));
    drop(mapped);

    // The inherited descriptor of nvmap is the parent's client.
    let nvmap = adopt(&door, numbers[&parent.nvmap.raw()]);
    let mut args = CreateHandle { size_or_fd: 4096, handle: 0 };
    nvmap::CREATE.send(&nvmap, &mut args).unwrap();
    assert_eq!(parent.orin.process_counts().handles, 1);
    // Closing one copy does not affect the other.
    drop(nvmap);
    assert_eq!(parent.orin.live().handles, 1);
    drop((ctrl, own));
    assert!(ctrl::NUM_VSMS.send(&parent.ctrl, &mut ctrl::NumVsms::default()).is_ok());
}

#[test]
fn the_death_of_a_process_does_not_affect_others() {
    let first = Bench::new();
    let victim = first.orin.process();
    let dead = bench_of(&victim);
    let chain = dead.chain();
    let doorbell = dead.doorbell();
    let mine = first.chain();
    assert_eq!(victim.live().channels, 2);
    victim.exit();
    assert_eq!(victim.process_counts(), ProcessCounts::default());
    assert_eq!((first.orin.live().channels, first.orin.live().tsgs), (1, 1));
    let result = ctrl::NUM_VSMS.send(&dead.ctrl, &mut ctrl::NumVsms::default());
    assert!(result.is_err(), "use after the end");
    // These numbers are closed and may have been reused.
    for fd in [chain.space, chain.tsg, chain.channel, chain.ring, chain.userd, dead.nvmap, dead.ctrl] {
        std::mem::forget(fd);
    }
    drop((doorbell, mine));
    assert_eq!(first.orin.live(), LiveCounts { descriptors: 2, ..LiveCounts::default() });
}

#[test]
fn each_board_has_its_nominal_memory() {
    let total = |profile| {
        let bench = Bench::with(Config::of(profile));
        let mut args = nvmap::QueryHeapParams { heap_mask: nvmap::Heaps::IOVMM.bits(), ..Default::default() };
        nvmap::QUERY_HEAP_PARAMS.send(&bench.nvmap, &mut args).unwrap();
        args.total
    };
    for board in &BOARDS {
        assert_eq!(total(board.name.parse().unwrap()), board.memory_bytes, "{}", board.name);
    }
    assert_eq!(total(Profile::default()), 64 << 30);
}

#[test]
fn descriptors_are_sent_to_live_processes_of_the_same_board() {
    let (here, elsewhere) = (Bench::new(), SoftwareOrin::new(Config::default()).unwrap());
    let buffer = here.buffer(4096);
    assert_eq!(here.orin.send(buffer.raw(), &elsewhere), Err(rustix::io::Errno::XDEV));
    let child = here.orin.process();
    let passed = here.orin.send(buffer.raw(), &child).unwrap();
    child.exit();
    assert_eq!(here.orin.send(buffer.raw(), &child), Err(rustix::io::Errno::SRCH));
    assert_eq!(child.send(passed, &here.orin), Err(rustix::io::Errno::BADF));
}

/// A process of the host other than this one: a vector at address 0x1000.
#[derive(Debug)]
struct Elsewhere(std::sync::Mutex<Vec<u8>>);

impl Elsewhere {
    const START: u64 = 0x1000;

    fn with<R>(&self, address: u64, len: usize, access: impl FnOnce(&mut [u8]) -> R) -> Option<R> {
        let start = usize::try_from(address.checked_sub(Self::START)?).ok()?;
        let mut memory = self.0.lock().unwrap();
        Some(access(memory.get_mut(start..)?.get_mut(..len)?))
    }
}

impl CallerMemory for Elsewhere {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), Errno> {
        self.with(address, buffer.len(), |bytes| buffer.copy_from_slice(bytes)).ok_or(Errno::FAULT)
    }

    fn write(&self, address: u64, bytes: &[u8]) -> usize {
        self.with(address, bytes.len(), |target| target.copy_from_slice(bytes)).map_or(bytes.len(), |()| 0)
    }
}

#[test]
fn requests_reach_the_memory_of_their_process() {
    let memory = Arc::new(Elsewhere(std::sync::Mutex::new(vec![0; 256])));
    let own = SoftwareOrin::new(Config::default()).unwrap();
    let other = own.process_with_memory(memory.clone());
    let open = |orin: &SoftwareOrin| orin.open(c"/dev/nvmap", OpenFlags::READ_WRITE).unwrap();
    let nvmap = open(&other);
    let call = |request: u32, address: u64| {
        let argument = core::ptr::without_provenance_mut(usize::try_from(address).unwrap());
        // SAFETY: the model resolves addresses through `Elsewhere`.
        unsafe { other.ioctl(nvmap, request, argument) }
    };
    memory.with(0x1010, 4, |bytes| bytes.copy_from_slice(&8192_u32.to_le_bytes())).unwrap();
    assert_eq!(call(nvmap::CREATE.code(), 0x1010), Ok(0));
    assert_ne!(memory.with(0x1014, 4, |bytes| bytes.to_vec()).unwrap(), [0; 4], "the handle");
    assert_eq!(call(nvmap::CREATE.code(), 0x1100 - 4), Err(Errno::FAULT));
    assert_eq!(call(nvmap::CREATE.code(), Elsewhere::START - 4), Err(Errno::FAULT));
    // A process that it starts has the same memory; the board's first process does not.
    let child = other.process();
    let its_nvmap = open(&child);
    let argument = core::ptr::without_provenance_mut(0x1010);
    // SAFETY: as above.
    assert_eq!(unsafe { child.ioctl(its_nvmap, nvmap::CREATE.code(), argument) }, Ok(0));
    let mut create = CreateHandle { size_or_fd: 4096, handle: 0 };
    let argument = core::ptr::from_mut(&mut create).cast();
    // SAFETY: the request accesses only `create`.
    assert_eq!(unsafe { own.ioctl(open(&own), nvmap::CREATE.code(), argument) }, Ok(0));
    // Its memory cannot be mapped for the GPU.
    let from_va = nvmap::CreateHandleFromVa { va: 0x1000, size: 4096, flags: TAG, size_or_handle: 0 };
    memory.with(0x1020, 24, |bytes| bytes.copy_from_slice(from_va.as_bytes())).unwrap();
    assert_eq!(call(nvmap::FROM_VA.code(), 0x1020), Err(Errno::INVAL));
    let refusal = "orin-sim: FROM_VA of 0x1000: the memory of another process cannot be imported";
    assert!(own.kernel_log().iter().any(|line| line.contains(refusal)), "{:?}", own.kernel_log());
}
