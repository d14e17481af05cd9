//! The state of the buffers: which is written, read or free, and which frame comes next for each consumer. No I/O.

use core::time::Duration;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use rustix::event::PollFlags;

use crate::error::Error;
use crate::socket;
use crate::wire::Violation;

/// A buffer that its owner may write. Dropped without being published, it is free again.
#[derive(Debug)]
pub struct Writable {
    index: usize,
    ticket: Arc<Vec<Guard>>,
}

impl Writable {
    /// Index of the buffer in the ring.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Fences that must signal before the buffer is written: those of consumers that still read it, and the producer's
    /// own of the frame before. Those that have signalled are left out.
    pub fn fences(&self) -> impl ExactSizeIterator<Item = &OwnedFd> {
        self.ticket.iter().map(|guard| &guard.fence)
    }

    /// Waits on the CPU for the [fences](Self::fences), at most for `timeout` in total.
    ///
    /// # Errors
    ///
    /// [`Error::TimedOut`], [`Error::Io`].
    pub fn wait(&self, timeout: Duration) -> Result<(), Error> {
        let deadline = socket::deadline(timeout);
        self.fences().try_for_each(|fence| socket::wait_fence(fence, deadline, timeout))
    }
}

/// A fence that protects a free buffer.
#[derive(Debug)]
struct Guard {
    of: Origin,
    fence: OwnedFd,
    since: Instant,
}

impl Guard {
    fn has_signalled(&self) -> bool {
        // A descriptor that cannot be waited for protects nothing.
        socket::wait(&self.fence, PollFlags::IN, Instant::now()).unwrap_or(true)
    }
}

/// The process that a fence came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// This one.
    Producer,
    /// The consumer with this number.
    Seat(usize),
    /// A consumer that has left.
    Left,
}

/// A frame as the producer publishes it.
#[derive(Debug)]
pub(crate) struct Published {
    pub(crate) sequence: u64,
    pub(crate) time_ns: u64,
    pub(crate) bytes: u64,
    pub(crate) flags: u32,
    pub(crate) fence: Option<OwnedFd>,
}

#[derive(Debug)]
struct Slot {
    /// Shared with the [`Writable`] while there is one.
    ticket: Arc<Vec<Guard>>,
    /// The frame, until all its readers have released it.
    frame: Option<Published>,
    /// Number of the last frame; 0 before the first.
    sequence: u64,
    /// Number of consumers that hold the frame or will get it.
    readers: usize,
}

/// What a consumer has.
#[derive(Debug)]
struct Seat {
    /// Largest number of held frames.
    hold: usize,
    /// Buffers that the consumer has not got yet, oldest first.
    unread: VecDeque<usize>,
    /// Buffers that the consumer has, and since when.
    held: Vec<(usize, Instant)>,
    /// Frames dropped since the last one sent.
    dropped: u32,
}

#[derive(Debug)]
pub(crate) struct Ring {
    slots: Vec<Slot>,
    seats: Vec<Option<Seat>>,
    sequence: u64,
}

impl Ring {
    pub(crate) fn new(buffers: usize) -> Self {
        let slot = || Slot { ticket: Arc::default(), frame: None, sequence: 0, readers: 0 };
        Self { slots: (0..buffers).map(|_| slot()).collect(), seats: Vec::new(), sequence: 0 }
    }

    /// Gives consumer `seat` its part. It never holds all buffers, unless there is only one.
    pub(crate) fn join(&mut self, seat: usize, hold: usize) {
        let hold = hold.min(self.slots.len() - 1).max(1);
        if self.seats.len() <= seat {
            self.seats.resize_with(seat + 1, || None);
        }
        self.seats[seat] = Some(Seat { hold, unread: VecDeque::new(), held: Vec::new(), dropped: 0 });
    }

    /// Takes the part of consumer `seat` back. Its fences keep protecting what it has released, if `trusted`.
    pub(crate) fn leave(&mut self, seat: usize, trusted: bool, now: Instant) {
        let Some(left) = self.seats.get_mut(seat).and_then(Option::take) else { return };
        for index in left.unread.into_iter().chain(left.held.into_iter().map(|(index, _)| index)) {
            self.drop_reader(index, now);
        }
        for guards in self.slots.iter_mut().filter_map(|slot| Arc::get_mut(&mut slot.ticket)) {
            guards.retain(|guard| trusted || guard.of != Origin::Seat(seat));
            // The seat's number may be given to another consumer.
            let own = guards.iter_mut().filter(|guard| guard.of == Origin::Seat(seat));
            own.for_each(|guard| guard.of = Origin::Left);
        }
    }

    /// A free buffer, preferably one without fences, else the one unused for longest. If there is none and
    /// `drop_unread` is set, the oldest frame that no consumer holds is dropped.
    pub(crate) fn acquire(&mut self, drop_unread: bool, now: Instant) -> Option<Writable> {
        let mut free = Vec::new();
        for (index, slot) in self.slots.iter_mut().enumerate().filter(|(_, slot)| slot.readers == 0) {
            // Shared while the buffer is written.
            if let Some(guards) = Arc::get_mut(&mut slot.ticket) {
                guards.retain(|guard| !guard.has_signalled());
                free.push((!guards.is_empty(), slot.sequence, index));
            }
        }
        let index = match free.into_iter().min() {
            Some((.., index)) => index,
            None if drop_unread => self.drop_oldest(now)?,
            None => return None,
        };
        Some(Writable { index, ticket: Arc::clone(&self.slots[index].ticket) })
    }

    /// Drops the oldest frame that no consumer holds, and returns its buffer.
    fn drop_oldest(&mut self, now: Instant) -> Option<usize> {
        let held = |index: usize| {
            self.seats.iter().flatten().any(|seat| seat.held.iter().any(|(held, _)| *held == index))
        };
        let unread = self.slots.iter().enumerate().filter(|(index, slot)| slot.readers > 0 && !held(*index));
        let (index, _) = unread.min_by_key(|(_, slot)| slot.sequence)?;
        for seat in self.seats.iter_mut().flatten() {
            if let Some(at) = seat.unread.iter().position(|unread| *unread == index) {
                seat.unread.remove(at);
                seat.dropped = seat.dropped.saturating_add(1);
            }
        }
        self.slots[index].readers = 1;
        self.drop_reader(index, now);
        Some(index)
    }

    /// Whether the buffer was acquired from this ring.
    pub(crate) fn has_given(&self, buffer: &Writable) -> bool {
        self.slots.get(buffer.index).is_some_and(|slot| Arc::ptr_eq(&slot.ticket, &buffer.ticket))
    }

    /// Queues a frame for all consumers, and returns its number.
    pub(crate) fn publish(
        &mut self,
        buffer: Writable,
        mut frame: Published,
        now: Instant,
    ) -> Result<u64, Error> {
        if !self.has_given(&buffer) {
            return Err(Error::OtherProducer);
        }
        let index = buffer.index;
        self.sequence += 1;
        frame.sequence = self.sequence;
        let slot = &mut self.slots[index];
        *slot = Slot { ticket: Arc::default(), frame: Some(frame), sequence: self.sequence, readers: 1 };
        for seat in self.seats.iter_mut().flatten() {
            seat.unread.push_back(index);
            slot.readers += 1;
        }
        self.drop_reader(index, now);
        Ok(self.sequence)
    }

    /// One reader of a frame less. After the last one the buffer is free.
    fn drop_reader(&mut self, index: usize, now: Instant) {
        let slot = &mut self.slots[index];
        slot.readers -= 1;
        if slot.readers > 0 {
            return;
        }
        // The producer's own work may not have ended: no consumer had to wait for it.
        let fence = slot.frame.take().and_then(|frame| frame.fence);
        if let (Some(fence), Some(guards)) = (fence, Arc::get_mut(&mut slot.ticket)) {
            guards.push(Guard { of: Origin::Producer, fence, since: now });
        }
    }

    /// The next frame to send to a consumer: its buffer, and how many were dropped before it. `None` if there is none,
    /// or the consumer holds as many as it may.
    pub(crate) fn next(&self, seat: usize) -> Option<(usize, &Published, u32)> {
        let seat = self.seats.get(seat)?.as_ref().filter(|seat| seat.held.len() < seat.hold)?;
        let index = *seat.unread.front()?;
        Some((index, self.slots[index].frame.as_ref()?, seat.dropped))
    }

    /// Notes that the next frame was sent to a consumer.
    pub(crate) fn sent(&mut self, seat: usize, now: Instant) {
        if let Some(seat) = self.seats.get_mut(seat).and_then(Option::as_mut)
            && let Some(index) = seat.unread.pop_front()
        {
            seat.held.push((index, now));
            seat.dropped = 0;
        }
    }

    /// A consumer releases a frame.
    pub(crate) fn release(
        &mut self,
        seat: usize,
        (index, sequence): (u32, u64),
        fence: Option<OwnedFd>,
        now: Instant,
    ) -> Result<(), Violation> {
        let violation = Violation::NotHeld { index, sequence };
        let place = index as usize;
        let slot = self.slots.get_mut(place).filter(|slot| slot.sequence == sequence).ok_or(violation)?;
        let held = &mut self.seats.get_mut(seat).and_then(Option::as_mut).ok_or(violation)?.held;
        let at = held.iter().position(|(held, _)| *held == place).ok_or(violation)?;
        held.remove(at);
        if let (Some(fence), Some(guards)) = (fence, Arc::get_mut(&mut slot.ticket)) {
            guards.push(Guard { of: Origin::Seat(seat), fence, since: now });
        }
        self.drop_reader(place, now);
        Ok(())
    }

    /// A consumer that has kept a frame longer than `lease` although the producer had newer ones for it, or needs a
    /// buffer.
    pub(crate) fn overdue(&self, lease: Duration, needs_buffer: bool, now: Instant) -> Option<usize> {
        let late = |seat: &Seat| {
            let wanted = needs_buffer || !seat.unread.is_empty() || seat.dropped > 0;
            wanted && seat.held.iter().any(|(_, since)| now.saturating_duration_since(*since) > lease)
        };
        self.seats.iter().position(|seat| seat.as_ref().is_some_and(late))
    }

    /// A consumer whose fence has not signalled for longer than `lease`. Forgets such fences of consumers that have
    /// left.
    pub(crate) fn stuck(&mut self, lease: Duration, now: Instant) -> Option<usize> {
        for guards in self.slots.iter_mut().filter_map(|slot| Arc::get_mut(&mut slot.ticket)) {
            let late = |guard: &Guard| now.saturating_duration_since(guard.since) > lease;
            guards.retain(|guard| !late(guard) || (guard.of != Origin::Left && !guard.has_signalled()));
            let of_seat = |guard: &Guard| if let Origin::Seat(seat) = guard.of { Some(seat) } else { None };
            if let Some(seat) = guards.iter().filter(|guard| late(guard)).find_map(of_seat) {
                return Some(seat);
            }
        }
        None
    }

    /// Whether consumers hold frames, or will get some.
    pub(crate) fn has_readers(&self) -> bool {
        self.slots.iter().any(|slot| slot.readers > 0)
    }

    /// Consumers that hold frames.
    pub(crate) fn holders(&self) -> impl Iterator<Item = usize> {
        let holds = |seat: &Option<Seat>| seat.as_ref().is_some_and(|seat| !seat.held.is_empty());
        self.seats.iter().enumerate().filter(move |(_, seat)| holds(seat)).map(|(index, _)| index)
    }
}

#[cfg(test)]
mod tests;
