//! Requests and answers that the software Orin does not support: a door in front of it answers them.

use core::ffi::{CStr, c_void};
use core::time::Duration;
use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::{Arc, Mutex};

use kernel_door::forward::Forward;
use kernel_door::{Door, Errno, Events, OpenFlags};
use nvgpu_channel::{Error, Gpu, GpuVa, MapOptions, UserSyncpoint, open_kernel_log};
use nvgpu_sys::{address_space, channel, paths, tsg};
use orin_sim::{Config, SoftwareOrin};

/// A descriptor of the door in front.
const EVENT_FD: RawFd = 100_000;

/// Answers of the door in front.
#[derive(Debug, Default)]
struct Answers {
    /// Results of polls of the event, in order.
    polls: VecDeque<Result<Events, Errno>>,
    /// Results of reads of the kernel log, in order.
    records: VecDeque<Result<&'static str, Errno>>,
    /// Errno of GET_TIMEDOUT.
    timed_out: Option<Errno>,
    /// Offset that MAP_BUFFER_EX and ALLOC_SPACE add to addresses.
    displacement: u64,
    /// Closed descriptors of the door in front.
    closed: usize,
}

#[derive(Debug)]
struct Front {
    behind: SoftwareOrin,
    answers: Arc<Mutex<Answers>>,
}

// SAFETY: mappings come from the door behind.
unsafe impl Forward for Front {
    fn behind(&self) -> &dyn Door {
        &self.behind
    }

    fn open(&self, path: &CStr, flags: OpenFlags) -> Result<RawFd, Errno> {
        if path == paths::KMSG { Ok(EVENT_FD) } else { self.behind.open(path, flags) }
    }

    unsafe fn ioctl(&self, fd: RawFd, request: u32, argument: *mut c_void) -> Result<i32, Errno> {
        let answers = self.answers.lock().unwrap();
        match request {
            channel::code::GET_USER_SYNCPOINT => {
                // The answer of an Orin, with this layout.
                let answer = channel::GetUserSyncpoint {
                    gpu_va: 0xff_ffe1_0000,
                    syncpoint_id: 17,
                    syncpoint_max: 28_000,
                };
                // SAFETY: the argument of the request is this struct, by the contract of `ioctl`.
                unsafe { argument.cast::<channel::GetUserSyncpoint>().write(answer) };
                Ok(0)
            }
            tsg::code::EVENT_ID_CTRL => {
                // SAFETY: the argument of the request is this struct, by the contract of `ioctl`.
                let argument = unsafe { &mut *argument.cast::<tsg::EventIdCtrl>() };
                assert_eq!((argument.cmd, argument.event_id), (1, 2));
                argument.event_fd = EVENT_FD;
                Ok(0)
            }
            channel::code::GET_TIMEDOUT if answers.timed_out.is_some() => Err(answers.timed_out.unwrap()),
            // SAFETY: the call is forwarded unchanged.
            _ => unsafe { self.behind.ioctl(fd, request, argument) }.inspect(|_| match request {
                address_space::code::MAP_BUFFER_EX => {
                    // SAFETY: the argument of the request is this struct, by the contract of `ioctl`.
                    unsafe {
                        (*argument.cast::<address_space::MapBufferEx>()).offset += answers.displacement
                    };
                }
                address_space::code::ALLOC_SPACE => {
                    // SAFETY: the argument of the request is this struct, by the contract of `ioctl`.
                    unsafe { (*argument.cast::<address_space::AllocSpace>()).offset += answers.displacement };
                }
                _ => {}
            }),
        }
    }

    unsafe fn read(&self, fd: RawFd, buffer: &mut [u8]) -> Result<usize, Errno> {
        assert_eq!(fd, EVENT_FD);
        let text = self.answers.lock().unwrap().records.pop_front().unwrap_or(Err(Errno::AGAIN))?;
        buffer[..text.len()].copy_from_slice(text.as_bytes());
        Ok(text.len())
    }

    unsafe fn seek_end(&self, fd: RawFd) -> Result<(), Errno> {
        assert_eq!(fd, EVENT_FD);
        Ok(())
    }

    unsafe fn poll(&self, fd: RawFd, _wanted: Events, _timeout: Duration) -> Result<Events, Errno> {
        assert_eq!(fd, EVENT_FD);
        self.answers.lock().unwrap().polls.pop_front().unwrap()
    }

    unsafe fn close(&self, fd: RawFd) -> Result<(), Errno> {
        if fd == EVENT_FD {
            self.answers.lock().unwrap().closed += 1;
            return Ok(());
        }
        // SAFETY: the call is forwarded unchanged.
        unsafe { self.behind.close(fd) }
    }
}

fn open() -> (Arc<Mutex<Answers>>, Arc<dyn Door>) {
    let behind = SoftwareOrin::new(Config::default()).unwrap();
    let answers = Arc::new(Mutex::new(Answers::default()));
    let door: Arc<dyn Door> = Arc::new(Front { behind, answers: Arc::clone(&answers) });
    (answers, door)
}

#[test]
fn a_channels_syncpoint_is_read_in_the_kernels_order() {
    let (_answers, door) = open();
    let gpu = Gpu::open(&door).unwrap();
    let channel = crate::common::compute_channel(&gpu, &gpu.address_space().unwrap(), 16);
    let expected = UserSyncpoint { id: 17, gpu_va: GpuVa(0xff_ffe1_0000), value: 28_000 };
    assert_eq!(channel.user_syncpoint().unwrap(), expected);
}

#[test]
fn the_completion_event_tells_events_from_silence() {
    let (answers, door) = open();
    let tsg = Gpu::open(&door).unwrap().tsg().unwrap();
    let event = tsg.completion_event().unwrap();
    let both = Events::IN | Events::PRIORITY;
    answers.lock().unwrap().polls =
        VecDeque::from([Ok(both), Ok(Events::empty()), Err(Errno::INTR), Err(Errno::INVAL)]);
    let timeout = Duration::from_millis(1);
    assert!(event.wait(timeout).unwrap());
    assert!(!event.wait(timeout).unwrap());
    assert!(!event.wait(timeout).unwrap());
    assert_eq!(event.wait(timeout).unwrap_err().errno(), Some(Errno::INVAL));
    drop(event);
    assert_eq!(answers.lock().unwrap().closed, 1);
}

/// The kernel returns ETIMEDOUT for every request to a channel that is being torn down.
#[test]
fn a_channel_that_can_no_longer_be_asked_is_out_of_service() {
    let (answers, door) = open();
    let gpu = Gpu::open(&door).unwrap();
    let channel = crate::common::compute_channel(&gpu, &gpu.address_space().unwrap(), 16);
    assert!(channel.in_service().unwrap());
    answers.lock().unwrap().timed_out = Some(Errno::TIMEDOUT);
    assert!(!channel.in_service().unwrap());
    answers.lock().unwrap().timed_out = Some(Errno::NODEV);
    assert_eq!(channel.in_service().unwrap_err().errno(), Some(Errno::NODEV));
}

#[test]
fn a_kernel_that_places_things_elsewhere_is_caught() {
    let (answers, door) = open();
    let gpu = Gpu::open(&door).unwrap();
    let space = gpu.address_space().unwrap();
    let buffer = Arc::new(gpu.nvmap().buffer(4096).allocate().unwrap());
    let va = GpuVa(0x1000_0000);
    let range = space.reserve_fixed(va, 8192, false).unwrap();
    answers.lock().unwrap().displacement = 4096;
    let (wanted, got) = (GpuVa(0x2000_0000), GpuVa(0x2000_1000));
    let error = space.reserve_fixed(wanted, 8192, false).unwrap_err();
    assert!(matches!(error, Error::Misplaced { wanted: a, got: b } if (a, b) == (wanted, got)), "{error}");
    let error = range.map(0, &buffer, 0, 4096, MapOptions::default()).unwrap_err();
    assert_eq!(error.to_string(), "the kernel placed a mapping at 0x10001000 instead of 0x10000000");
}

#[test]
fn the_log_skips_lost_records_and_stops_at_errors() {
    let (answers, door) = open();
    let mut log = open_kernel_log(&door);
    answers.lock().unwrap().records = VecDeque::from([
        Ok("3,1,10,-;nvgpu: 17000000.gpu first\n SUBSYSTEM=platform\n"),
        Err(Errno::PIPE),
        Ok("6,7,11,-;usb 1-2: something else\n"),
        Ok("3,8,12,-;__ga10b__ second\n"),
        Err(Errno::AGAIN),
        Ok("3,9,13,-;nvgpu: third\n"),
        Err(Errno::IO),
        Ok("3,10,14,-;nvgpu: never read\n"),
    ]);
    assert_eq!(log.drain(), ["nvgpu: 17000000.gpu first", "__ga10b__ second"]);
    assert_eq!(log.drain(), ["nvgpu: third"]);
    assert!(log.unavailable().unwrap().contains("/dev/kmsg"));
    assert!(log.drain().is_empty());
}

/// The reader returns even if the log overflows faster than it reads.
#[test]
fn draining_the_log_is_bounded() {
    let (answers, door) = open();
    let mut log = open_kernel_log(&door);
    answers.lock().unwrap().records = (0..5000).map(|_| Ok("3,1,1,-;nvgpu: flood\n")).collect();
    assert_eq!(log.drain().len(), 4096);
    assert_eq!(log.drain().len(), 904);
}
