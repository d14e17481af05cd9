//! The ring against a model: never two writers, never a writer and a reader, nothing lost, in any order of calls.

use std::os::fd::OwnedFd;

use proptest::collection::vec;
use proptest::prelude::*;
use rustix::event::{EventfdFlags, eventfd};

use super::*;

const SEATS: usize = 3;
const LEASE: Duration = Duration::from_secs(1);

/// A descriptor that is readable if `signalled`, as a sync-file.
fn fence(signalled: bool) -> OwnedFd {
    eventfd(u32::from(signalled), EventfdFlags::CLOEXEC).unwrap()
}

fn published(fence: Option<OwnedFd>) -> Published {
    Published { sequence: 0, time_ns: 0, bytes: 0, flags: 0, fence }
}

#[derive(Clone, Debug)]
enum Step {
    Acquire { drop_unread: bool },
    Publish { which: usize, fence: bool },
    Abandon { which: usize },
    Join { seat: usize, hold: usize },
    Leave { seat: usize, trusted: bool },
    Send { seat: usize },
    Release { seat: usize, which: usize, fence: bool },
    Rubbish { seat: usize, index: u32, sequence: u64 },
}

fn steps() -> impl Strategy<Value = Step> {
    let (seat, which) = (0..SEATS, 0..4_usize);
    prop_oneof![
        4 => any::<bool>().prop_map(|drop_unread| Step::Acquire { drop_unread }),
        4 => (which.clone(), any::<bool>()).prop_map(|(which, fence)| Step::Publish { which, fence }),
        1 => which.clone().prop_map(|which| Step::Abandon { which }),
        2 => (seat.clone(), 1..5_usize).prop_map(|(seat, hold)| Step::Join { seat, hold }),
        1 => (seat.clone(), any::<bool>()).prop_map(|(seat, trusted)| Step::Leave { seat, trusted }),
        4 => seat.clone().prop_map(|seat| Step::Send { seat }),
        4 => (seat.clone(), which, any::<bool>())
            .prop_map(|(seat, which, fence)| Step::Release { seat, which, fence }),
        1 => (seat, 0..6_u32, 0..20_u64)
            .prop_map(|(seat, index, sequence)| Step::Rubbish { seat, index, sequence }),
    ]
}

/// What a consumer should have: frames as (sequence, buffer).
#[derive(Default)]
struct Reader {
    hold: usize,
    unread: VecDeque<(u64, usize)>,
    held: Vec<(u64, usize)>,
    dropped: u32,
}

struct Model {
    ring: Ring,
    buffers: usize,
    readers: [Option<Reader>; SEATS],
    writing: Vec<Writable>,
    sequence: u64,
    now: Instant,
}

impl Model {
    fn read(&self, index: usize) -> bool {
        let has = |reader: &Reader| reader.held.iter().chain(&reader.unread).any(|(_, of)| *of == index);
        self.readers.iter().flatten().any(has)
    }

    fn acquire(&mut self, drop_unread: bool) {
        let used =
            |index: &usize| self.read(*index) || self.writing.iter().any(|other| other.index() == *index);
        let free: Vec<usize> = (0..self.buffers).filter(|index| !used(index)).collect();
        let held = |index: usize| {
            self.readers.iter().flatten().any(|reader| reader.held.iter().any(|(_, of)| *of == index))
        };
        let unread = self.readers.iter().flatten().flat_map(|reader| &reader.unread);
        let oldest = unread.filter(|(_, index)| !held(*index)).min().copied();
        match self.ring.acquire(drop_unread, self.now) {
            None => assert!(free.is_empty() && (!drop_unread || oldest.is_none()), "a buffer was free"),
            Some(buffer) if !free.is_empty() => {
                assert!(free.contains(&buffer.index()), "buffer {} is used", buffer.index());
                self.writing.push(buffer);
            }
            Some(buffer) => {
                let oldest = oldest.filter(|_| drop_unread).unwrap();
                assert_eq!(buffer.index(), oldest.1, "the oldest unread frame is dropped");
                for reader in self.readers.iter_mut().flatten() {
                    let before = reader.unread.len();
                    reader.unread.retain(|frame| *frame != oldest);
                    reader.dropped += u32::from(reader.unread.len() < before);
                }
                self.writing.push(buffer);
            }
        }
    }

    fn publish(&mut self, which: usize, with_fence: bool) {
        if self.writing.is_empty() {
            return;
        }
        let buffer = self.writing.swap_remove(which % self.writing.len());
        let index = buffer.index();
        self.sequence += 1;
        let frame = published(with_fence.then(|| fence(true)));
        assert_eq!(self.ring.publish(buffer, frame, self.now).unwrap(), self.sequence);
        self.readers.iter_mut().flatten().for_each(|reader| reader.unread.push_back((self.sequence, index)));
    }

    fn send(&mut self, seat: usize) {
        let next = self.ring.next(seat).map(|(index, frame, dropped)| ((frame.sequence, index), dropped));
        let reader = self.readers[seat].as_mut();
        let expected = reader.and_then(|reader| {
            let frame = reader.unread.front().copied().filter(|_| reader.held.len() < reader.hold)?;
            reader.held.push(frame);
            reader.unread.pop_front();
            Some((frame, std::mem::take(&mut reader.dropped)))
        });
        assert_eq!(next, expected);
        if next.is_some() {
            self.ring.sent(seat, self.now);
        }
    }

    fn release(&mut self, seat: usize, which: usize, with_fence: bool) {
        let Some(reader) = self.readers[seat].as_mut().filter(|reader| !reader.held.is_empty()) else {
            return;
        };
        let (sequence, index) = reader.held.swap_remove(which % reader.held.len());
        let frame = (index as u32, sequence);
        let fence = with_fence.then(|| fence(true));
        self.ring.release(seat, frame, fence, self.now).unwrap();
        let again = self.ring.release(seat, frame, None, self.now);
        assert_eq!(again, Err(Violation::NotHeld { index: frame.0, sequence }), "released twice");
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Acquire { drop_unread } => self.acquire(drop_unread),
            Step::Publish { which, fence } => self.publish(which, fence),
            Step::Abandon { which } => {
                if let Some(which) = which.checked_rem(self.writing.len()) {
                    self.writing.swap_remove(which);
                }
            }
            Step::Join { seat, hold } if self.readers[seat].is_none() => {
                self.ring.join(seat, hold);
                let hold = hold.clamp(1, (self.buffers - 1).max(1));
                self.readers[seat] = Some(Reader { hold, ..Reader::default() });
            }
            Step::Join { .. } => {}
            Step::Leave { seat, trusted } => {
                self.ring.leave(seat, trusted, self.now);
                self.readers[seat] = None;
            }
            Step::Send { seat } => self.send(seat),
            Step::Release { seat, which, fence } => self.release(seat, which, fence),
            Step::Rubbish { seat, index, sequence } => {
                let holds = |reader: &Reader| reader.held.contains(&(sequence, index as usize));
                if !self.readers[seat].as_ref().is_some_and(holds) {
                    self.ring.release(seat, (index, sequence), None, self.now).unwrap_err();
                }
            }
        }
    }

    /// Everything is given back: all buffers are free, and no fence is left once its lease is over.
    fn end(mut self) {
        self.writing.clear();
        (0..SEATS).for_each(|seat| self.ring.leave(seat, true, self.now));
        assert_eq!(self.ring.stuck(LEASE, self.now + 2 * LEASE), None);
        let all: Vec<_> = (0..self.buffers).map(|_| self.ring.acquire(false, self.now).unwrap()).collect();
        assert!(all.iter().all(|buffer| buffer.fences().len() == 0), "signalled fences are kept");
        assert!(self.ring.slots.iter().all(|slot| slot.readers == 0 && slot.frame.is_none()));
        assert!(self.ring.acquire(true, self.now).is_none(), "a buffer was given away twice");
    }
}

proptest! {
    #[test]
    fn no_order_of_calls_gives_a_buffer_to_two(buffers in 1..5_usize, steps in vec(steps(), 0..200)) {
        let ring = Ring::new(buffers);
        let (readers, writing, sequence) = ([const { None }; SEATS], Vec::new(), 0);
        let mut model = Model { ring, buffers, readers, writing, sequence, now: Instant::now() };
        steps.into_iter().for_each(|step| model.step(step));
        model.end();
    }
}

#[test]
fn fences_protect_a_buffer_until_they_signal_or_their_owner_is_expelled() {
    let now = Instant::now();
    let late = now + 2 * LEASE;
    let mut ring = Ring::new(1);
    ring.join(0, 1);
    let buffer = ring.acquire(false, now).unwrap();
    ring.publish(buffer, published(Some(fence(true))), now).unwrap();
    ring.sent(0, now);
    ring.release(0, (0, 1), Some(fence(false)), now).unwrap();
    // The consumer's fence, but not the producer's own, which has signalled; abandoned, the buffer keeps it.
    for _ in 0..2 {
        let buffer = ring.acquire(false, now).unwrap();
        assert_eq!(buffer.fences().len(), 1);
        assert!(matches!(buffer.wait(Duration::from_millis(1)), Err(Error::TimedOut { .. })));
        // A buffer that is being written is left alone.
        assert_eq!(ring.stuck(LEASE, late), None);
    }
    assert_eq!(ring.stuck(LEASE, now), None);
    assert_eq!(ring.stuck(LEASE, late), Some(0));
    ring.leave(0, false, now);
    assert_eq!((ring.stuck(LEASE, late), ring.acquire(false, now).unwrap().fences().len()), (None, 0));

    // The fence of a consumer that has left by itself protects the buffer for the length of the lease.
    ring.join(0, 1);
    let buffer = ring.acquire(false, now).unwrap();
    ring.publish(buffer, published(None), now).unwrap();
    ring.sent(0, now);
    ring.release(0, (0, 2), Some(fence(false)), now).unwrap();
    ring.leave(0, true, now);
    ring.join(0, 1);
    assert_eq!((ring.stuck(LEASE, now), ring.acquire(false, now).unwrap().fences().len()), (None, 1));
    assert_eq!((ring.stuck(LEASE, late), ring.acquire(false, now).unwrap().fences().len()), (None, 0));
}

#[test]
fn a_lease_ends_only_if_the_frame_is_in_the_way() {
    let now = Instant::now();
    let late = now + 2 * LEASE;
    let mut ring = Ring::new(3);
    ring.join(0, 1);
    let publish = |ring: &mut Ring| {
        let buffer = ring.acquire(true, now).unwrap();
        ring.publish(buffer, published(None), now).unwrap()
    };
    publish(&mut ring);
    ring.sent(0, now);
    // The last frame of a source that pauses may be kept.
    assert_eq!(ring.overdue(LEASE, false, late), None);
    assert_eq!((ring.overdue(LEASE, true, late), ring.overdue(LEASE, true, now)), (Some(0), None));
    publish(&mut ring);
    assert_eq!((ring.overdue(LEASE, false, late), ring.overdue(LEASE, false, now)), (Some(0), None));
    // Also while the newer frame is overwritten by a still newer one.
    let (first, second) = (ring.acquire(true, now).unwrap(), ring.acquire(true, now).unwrap());
    assert_ne!(first.index(), second.index());
    assert_eq!(ring.overdue(LEASE, false, late), Some(0));
    assert!(ring.acquire(true, now).is_none(), "the held frame is not dropped");
    let other = Ring::new(3).acquire(false, now).unwrap();
    assert!(matches!(ring.publish(other, published(None), now), Err(Error::OtherProducer)));
}
