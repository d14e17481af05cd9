//! The channel for copies between GPUs, on a software Orin whose channel groups open one.

use core::ptr::NonNull;
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use gpu_hal::{
    ChannelGroup, Channels, DeviceMemory, Driver, ErrorCode, MemoryInfo, Properties, Result as HalResult,
    SubmitRing,
};

use super::*;
use crate::device::Device;
use crate::kind::DeviceKind;
use crate::limits::DEFAULT_TIMEOUT;
use crate::queue::QueueOptions;

/// A driver whose channel groups have a channel for copies between GPUs: a copy channel of another group.
#[derive(Clone, Debug)]
struct Linked(Arc<dyn Driver>);

#[derive(Debug)]
struct LinkedGroup {
    driver: Linked,
    group: Arc<dyn ChannelGroup>,
    link: Mutex<Option<Arc<dyn ChannelGroup>>>,
}

// SAFETY: the driver behind answers.
unsafe impl Driver for Linked {
    fn properties(&self) -> &Properties {
        self.0.properties()
    }

    fn allocate(&self, bytes: u64, purpose: MemoryUse, label: &str) -> HalResult<Box<dyn DeviceMemory>> {
        self.0.allocate(bytes, purpose, label)
    }

    unsafe fn import(
        &self,
        pointer: NonNull<u8>,
        bytes: usize,
        label: &str,
    ) -> HalResult<Box<dyn DeviceMemory>> {
        // SAFETY: the caller's contract is the same.
        unsafe { self.0.import(pointer, bytes, label) }
    }

    fn memory_info(&self) -> Option<MemoryInfo> {
        self.0.memory_info()
    }

    fn clock_pair(&self) -> HalResult<(u64, SystemTime)> {
        self.0.clock_pair()
    }

    fn open_channels(&self) -> HalResult<Channels> {
        let Channels { group, compute, copy } = self.0.open_channels()?;
        let group = Arc::new(LinkedGroup { driver: self.clone(), group, link: Mutex::default() });
        Ok(Channels { group, compute, copy })
    }

    fn kernel_log(&self) -> Result<Vec<String>, String> {
        self.0.kernel_log()
    }
}

// SAFETY: the groups behind answer.
unsafe impl ChannelGroup for LinkedGroup {
    fn error(&self) -> Option<ErrorCode> {
        self.group.error()
    }

    fn channel_ids(&self) -> Vec<u32> {
        let link = self.link.lock().unwrap().clone();
        [&self.group].into_iter().chain(&link).flat_map(|group| group.channel_ids()).collect()
    }

    fn abort(&self) -> HalResult<()> {
        if let Some(link) = &*self.link.lock().unwrap() {
            link.abort()?;
        }
        self.group.abort()
    }

    fn sleep(&self, timeout: Duration) -> bool {
        self.group.sleep(timeout)
    }

    fn open_link(self: Arc<Self>) -> HalResult<Option<SubmitRing>> {
        let Channels { group, copy, .. } = self.driver.0.open_channels()?;
        let before = self.link.lock().unwrap().replace(group);
        assert!(before.is_none(), "asked twice");
        Ok(Some(copy))
    }
}

fn device() -> Device {
    let orin = Arc::new(orin_sim::SoftwareOrin::new(orin_sim::Config::default()).unwrap());
    let driver = Device::driver_through(orin, DeviceKind::Sim).unwrap();
    Device::with_driver(Box::new(Linked(driver.into()))).unwrap()
}

fn copy_over_link(queue: &mut Queue, source: &Buffer<u32>, target: &mut Buffer<u32>) {
    assert!(queue.has_link().unwrap());
    let bytes = source.len() as u64 * 4;
    queue.copy_on(Engine::Link, source.into(), SliceMut::from(target).as_slice(), bytes).unwrap();
}

#[test]
fn copies_over_the_link_keep_the_order_of_the_calls() {
    for policy in [WaitPolicy::Spin, WaitPolicy::Sleep] {
        let device = device();
        let mut queue = device.queue_with(&QueueOptions::default().wait(policy)).unwrap();
        let (mut source, mut target) = (device.alloc::<u32>(5000).unwrap(), device.alloc(5000).unwrap());
        let mut results = Vec::new();
        for round in 0..20 {
            queue.fill(&mut source, round).unwrap();
            copy_over_link(&mut queue, &source, &mut target);
            if round % 3 == 0 {
                // Twice in a row, and in one submission.
                copy_over_link(&mut queue, &source, &mut target);
            }
            results.push(queue.download(&target).unwrap());
        }
        for (round, result) in (0..).zip(results) {
            assert_eq!(result.wait(DEFAULT_TIMEOUT).unwrap(), [round; 5000]);
        }
        copy_over_link(&mut queue, &source, &mut target);
        queue.wait(DEFAULT_TIMEOUT).unwrap();
        assert_eq!(queue.state.channels().unwrap().rings.len(), 3);
    }
}

#[test]
fn the_pushbuffer_of_the_link_is_reused_and_submissions_may_be_held_back() {
    let device = device();
    let mut queue = device.queue_with(&QueueOptions::default().wait(WaitPolicy::Spin)).unwrap();
    let (source, mut target) = (device.alloc_from(&[7; 16]).unwrap(), device.alloc(16).unwrap());
    for _ in 0..30 {
        queue
            .together(|queue| {
                for _ in 0..100 {
                    copy_over_link(queue, &source, &mut target);
                    queue.submit()?;
                }
                queue.fill(&mut target, 0)?;
                copy_over_link(queue, &source, &mut target);
                Ok(())
            })
            .unwrap();
    }
    queue.wait(DEFAULT_TIMEOUT).unwrap();
    assert_eq!(target.to_vec().unwrap(), [7; 16]);
}

#[test]
fn a_recovered_queue_opens_the_link_anew() {
    let device = device();
    let mut queue = device.queue().unwrap();
    let (source, mut target) = (device.alloc_from(&[7; 16]).unwrap(), device.alloc(16).unwrap());
    copy_over_link(&mut queue, &source, &mut target);
    // A wait that nobody ends.
    let signal = device.signal(0).unwrap();
    queue.wait_signal(&signal, 1).unwrap();
    let stuck = queue.submit().unwrap();
    assert!(stuck.wait(Duration::from_millis(20)).is_err());
    device.recover().unwrap();
    queue.fill(&mut target, 0).unwrap();
    copy_over_link(&mut queue, &source, &mut target);
    queue.wait(DEFAULT_TIMEOUT).unwrap();
    assert_eq!(target.to_vec().unwrap(), [7; 16]);
}

#[test]
fn a_kernel_copies_where_there_is_no_link() {
    let device = Device::open(DeviceKind::Sim).unwrap();
    let mut queue = device.queue().unwrap();
    assert!(!queue.has_link().unwrap());
    let (source, mut target) = (device.alloc_from(&[7_u8; 33]).unwrap(), device.alloc(33).unwrap());
    queue.copy_by_kernel(Slice::from(&source), SliceMut::from(&mut target).as_slice(), 33).unwrap();
    queue.wait(DEFAULT_TIMEOUT).unwrap();
    assert_eq!(target.to_vec().unwrap(), [7; 33]);
}

#[test]
fn the_size_chooses_the_way_of_a_copy() {
    let device = Device::open(DeviceKind::Sim).unwrap();
    let mut copier = Copier::new(device.shared());
    assert_eq!([copier.way(false, u64::MAX), copier.way(true, u64::MAX)], [Way::Engine; 2]);
    copier.peers = PeerCopies { by_kernel_from: Some(100), by_link_engine_from: Some(1000) };
    copier.from = Some(50);
    let ways = [1, 50, 100, 1000].map(|bytes| [copier.way(false, bytes), copier.way(true, bytes)]);
    let (engine, kernel) = (Way::Engine, Way::Kernel);
    assert_eq!(ways, [[engine, engine], [kernel, engine], [kernel, kernel], [kernel, Way::Link]]);
}
