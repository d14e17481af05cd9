//! The thread of a camera, and what it shares with the consumer.

use core::time::Duration;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};

use crate::kernel::{Awaited, EngineFence, EngineFences};

use super::format::FrameLayout;
use super::{CameraError, CameraFault, CameraOptions};

/// A frame that was not taken yet.
#[derive(Debug)]
pub(super) struct Captured {
    pub(super) index: usize,
    pub(super) sequence: u32,
    pub(super) timestamp: Duration,
    pub(super) fence: Option<EngineFence>,
}

/// The queues between camera and consumer.
#[derive(Debug, Default)]
struct Queues {
    /// Buffers for the next frames, the next one first, with what ends their use before.
    free: VecDeque<(usize, Option<Awaited>)>,
    captured: VecDeque<Captured>,
    /// Whether the consumer has each buffer.
    given_out: Vec<bool>,
    dropped: u64,
    /// No frame follows.
    ended: bool,
    /// The camera is being dropped.
    closed: bool,
}

/// What the thread shares with the consumer.
#[derive(Debug)]
pub(super) struct Shared {
    queues: Mutex<Queues>,
    moved: Condvar,
}

impl Shared {
    /// All buffers are free.
    pub(super) fn new(buffers: usize) -> Self {
        let free = (0..buffers).map(|index| (index, None)).collect();
        let queues = Queues { free, given_out: vec![false; buffers], ..Queues::default() };
        Self { queues: Mutex::new(queues), moved: Condvar::new() }
    }

    pub(super) fn dropped(&self) -> u64 {
        self.queues.lock().dropped
    }

    /// Takes the oldest frame.
    pub(super) fn take(&self, timeout: Duration) -> Result<Captured, CameraError> {
        let mut queues = self.queues.lock();
        let wait = |queues: &mut Queues| queues.captured.is_empty() && !queues.ended;
        self.moved.wait_while_for(&mut queues, wait, timeout);
        let Some(captured) = queues.captured.pop_front() else {
            return Err(if queues.ended { CameraError::Stopped } else { CameraError::TimedOut(timeout) });
        };
        queues.given_out[captured.index] = true;
        Ok(captured)
    }

    /// Undoes [`Shared::take`].
    pub(super) fn take_back(&self, captured: Captured) {
        let mut queues = self.queues.lock();
        queues.given_out[captured.index] = false;
        queues.captured.push_front(captured);
    }

    pub(super) fn give_back(&self, index: usize, after: Option<Awaited>) -> Result<(), CameraError> {
        let mut queues = self.queues.lock();
        match queues.given_out.get_mut(index) {
            Some(given_out) if *given_out => *given_out = false,
            _ => return Err(CameraError::NotGivenOut { index }),
        }
        queues.free.push_back((index, after));
        Ok(())
    }

    /// Takes the first buffer that nothing uses any more, or counts a lost frame.
    fn next_buffer(&self) -> Option<usize> {
        let mut queues = self.queues.lock();
        let unused = |(_, after): &(usize, Option<Awaited>)| after.as_ref().is_none_or(Awaited::has_ended);
        let found = queues.free.iter().position(unused).and_then(|at| queues.free.remove(at));
        if found.is_none() {
            queues.dropped += 1;
        }
        found.map(|(index, _)| index)
    }

    fn give_out(&self, captured: Captured) {
        self.queues.lock().captured.push_back(captured);
        self.moved.notify_all();
    }

    fn end(&self) {
        self.queues.lock().ended = true;
        self.moved.notify_all();
    }

    /// Ends the thread.
    pub(super) fn close(&self) {
        self.queues.lock().closed = true;
        self.moved.notify_all();
    }

    /// Waits until a time, or until the camera is dropped. Returns whether it is.
    fn is_closed_at(&self, time: Option<Instant>) -> bool {
        let mut queues = self.queues.lock();
        while !queues.closed && time.is_none_or(|time| Instant::now() < time) {
            match time {
                Some(time) => drop(self.moved.wait_until(&mut queues, time)),
                None => self.moved.wait(&mut queues),
            }
        }
        queues.closed
    }
}

/// The thread's half.
#[derive(Debug)]
pub(super) struct Producer {
    options: CameraOptions,
    layout: FrameLayout,
    buffers: Arc<[OwnedFd]>,
    fences: Option<EngineFences>,
    /// The fence of the frame that is being captured.
    pending: Option<EngineFence>,
    shared: Arc<Shared>,
}

/// The camera ends.
struct End;

impl From<Errno> for End {
    fn from(errno: Errno) -> Self {
        tracing::error!("the synthetic camera stops: {errno}");
        Self
    }
}

impl Producer {
    pub(super) fn new(
        options: CameraOptions,
        layout: FrameLayout,
        buffers: Arc<[OwnedFd]>,
        fences: Option<EngineFences>,
        shared: Arc<Shared>,
    ) -> Self {
        Self { options, layout, buffers, fences, pending: None, shared }
    }

    /// Captures until the camera is dropped or stops.
    pub(super) fn run(mut self) {
        let mut due = Instant::now();
        for sequence in 0.. {
            if self.shared.is_closed_at(Some(due)) || self.capture(sequence).is_err() {
                break;
            }
            // A late frame delays those after it.
            due = Instant::now().max(due + self.options.interval);
        }
        if let (Some(fences), Some(fence)) = (&self.fences, &self.pending) {
            fences.abort(fence);
        }
        self.shared.end();
        // The fences of host1x end with the camera.
        self.shared.is_closed_at(None);
    }

    fn has(&self, fault: CameraFault) -> bool {
        self.options.faults.contains(&fault)
    }

    /// Captures one frame, if a buffer is free.
    fn capture(&mut self, sequence: u32) -> Result<(), End> {
        let begin = Instant::now();
        let Some(index) = self.shared.next_buffer() else { return Ok(()) };
        let now = clock_gettime(ClockId::Monotonic);
        // CAST: neither is negative.
        let timestamp = Duration::new(now.tv_sec as u64, now.tv_nsec as u32);
        let fence = self.fences.as_mut().map(EngineFences::next).transpose()?;
        self.pending.clone_from(&fence);
        let captured = Captured { index, sequence, timestamp, fence };
        let later = if self.pending.is_some() {
            self.shared.give_out(captured);
            None
        } else {
            Some(captured)
        };
        let content = self.options.content(sequence).map_err(|_| End)?;
        let (first, second) = content.split_at(content.len() / 2);
        self.write(index, first, 0)?;
        if self.shared.is_closed_at(Some(begin + self.options.readout / 2)) {
            return Err(End);
        }
        if self.has(CameraFault::Stop(sequence)) {
            return Err(End);
        }
        if self.has(CameraFault::NeverComplete(sequence)) {
            self.shared.is_closed_at(None);
            return Err(End);
        }
        self.write(index, second, first.len())?;
        if self.shared.is_closed_at(Some(begin + self.options.readout)) {
            return Err(End);
        }
        if let (Some(fences), Some(fence)) = (&self.fences, self.pending.take()) {
            fences.complete(&fence);
        }
        if let Some(captured) = later {
            self.shared.give_out(captured);
        }
        Ok(())
    }

    /// Writes a part of a frame, as far as the buffer reaches.
    fn write(&self, index: usize, bytes: &[u8], offset: usize) -> Result<(), Errno> {
        let size = super::bytes_of(&self.options, &self.layout, index);
        let mut done = 0;
        // CAST: sizes of at most 2 GiB.
        let end = bytes.len().min((size as usize).saturating_sub(offset));
        while done < end {
            done += rustix::io::pwrite(&self.buffers[index], &bytes[done..end], (offset + done) as u64)?;
        }
        Ok(())
    }
}
