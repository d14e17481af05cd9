//! Signals between CPU and queues.

use std::time::{Duration, Instant};

use tegra_hcq::{Queue, QueueOptions, Signal, WaitPolicy};

use crate::TIMEOUT;
use crate::bench::{Bench, spin_until, timed};
use crate::case::Case;
use crate::error::Result;

/// Turns of two queues, per sample.
const TURNS: u64 = 100;
/// Time for the GPU to fetch a submitted wait and block in it.
const ARRIVAL: Duration = Duration::from_micros(20);

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new("signal/raise", "a queue raises a signal: from the call until the CPU sees it", raise),
        Case::new(
            "signal/round_trip",
            "the CPU raises a signal right after submitting the wait, then spins until the queue responds",
            |bench| round_trip(bench, Duration::ZERO, false),
        ),
        Case::new(
            "signal/wake",
            "the CPU raises a signal 20 µs after submitting the wait, then spins until the queue responds",
            |bench| round_trip(bench, ARRIVAL, false),
        ),
        Case::new(
            "signal/wake_held",
            "the same, with a queue that holds its engine while it waits",
            |bench| round_trip(bench, ARRIVAL, true),
        ),
        Case::new(
            "signal/two_queues",
            "two queues wait for each other's signal in turns: per turn",
            two_queues,
        ),
    ]
}

/// Busy-waits for a time.
fn pass(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        core::hint::spin_loop();
    }
}

fn raise(bench: &mut Bench<'_>) -> Result<()> {
    let done = bench.device().signal(0)?;
    let mut queue = bench.queue(WaitPolicy::Spin)?;
    let mut round = 0;
    let mut ours = || {
        round += 1;
        let start = Instant::now();
        queue.signal(&done, round)?;
        let fence = queue.submit()?;
        done.wait(round, TIMEOUT)?;
        let elapsed = start.elapsed();
        fence.wait(TIMEOUT)?;
        Ok(elapsed)
    };
    bench.measure(1, &mut ours, &mut |cuda| {
        let (stream, done) = (cuda.stream()?, cuda.shared_word()?);
        let mut round = 0;
        Ok(Box::new(move || {
            round += 1;
            let start = Instant::now();
            stream.write_value(&done, round)?;
            spin_until("the stream's word", || done.value() >= round)?;
            let elapsed = start.elapsed();
            stream.wait()?;
            Ok(elapsed)
        }))
    })
}

fn round_trip(bench: &mut Bench<'_>, arrival: Duration, hold: bool) -> Result<()> {
    let (go, done) = (bench.device().signal(0)?, bench.device().signal(0)?);
    let options = QueueOptions::default().wait(WaitPolicy::Spin).hold(hold);
    let mut queue = bench.device().queue_with(&options)?;
    let mut round = 0;
    let mut ours = || {
        round += 1;
        queue.wait_signal(&go, round)?;
        queue.signal(&done, round)?;
        let fence = queue.submit()?;
        pass(arrival);
        let start = Instant::now();
        go.set(round);
        done.wait(round, TIMEOUT)?;
        let elapsed = start.elapsed();
        fence.wait(TIMEOUT)?;
        Ok(elapsed)
    };
    bench.measure(1, &mut ours, &mut |cuda| {
        let (stream, go, done) = (cuda.stream()?, cuda.shared_word()?, cuda.shared_word()?);
        let mut round = 0;
        Ok(Box::new(move || {
            round += 1;
            stream.wait_value(&go, round)?;
            let sent = stream.write_value(&done, round);
            pass(arrival);
            let start = Instant::now();
            // Raise the signal even if the second call failed, so that no queue waits forever.
            go.set(round);
            sent?;
            spin_until("the stream's answer", || done.value() >= round)?;
            let elapsed = start.elapsed();
            stream.wait()?;
            Ok(elapsed)
        }))
    })
}

/// Two queues take turns by signals on the GPU, without the CPU, until both have ended; `next` is the signals' value.
pub(super) fn take_turns(
    left: &mut Queue,
    right: &mut Queue,
    ping: &Signal,
    pong: &Signal,
    turns: u64,
    next: &mut u64,
) -> Result<()> {
    for _ in 0..turns {
        *next += 1;
        left.signal(ping, *next)?;
        left.submit()?;
        right.wait_signal(ping, *next)?;
        right.signal(pong, *next)?;
        right.submit()?;
        left.wait_signal(pong, *next)?;
    }
    right.wait(TIMEOUT)?;
    Ok(left.wait(TIMEOUT)?)
}

fn two_queues(bench: &mut Bench<'_>) -> Result<()> {
    let (ping, pong) = (bench.device().signal(0)?, bench.device().signal(0)?);
    let (mut left, mut right) = (bench.queue(WaitPolicy::Spin)?, bench.queue(WaitPolicy::Spin)?);
    let turns = bench.rounds(TURNS);
    let mut next = 0;
    let mut ours = || timed(|| take_turns(&mut left, &mut right, &ping, &pong, turns, &mut next));
    bench.measure(2 * turns, &mut ours, &mut |cuda| {
        let (left, right) = (cuda.stream()?, cuda.stream()?);
        let (ping, pong) = (cuda.shared_word()?, cuda.shared_word()?);
        let mut next = 0;
        Ok(Box::new(move || {
            timed(|| {
                for _ in 0..turns {
                    next += 1;
                    left.write_value(&ping, next)?;
                    right.wait_value(&ping, next)?;
                    right.write_value(&pong, next)?;
                    left.wait_value(&pong, next)?;
                }
                right.wait()?;
                left.wait()
            })
        }))
    })
}
