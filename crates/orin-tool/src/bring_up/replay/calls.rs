//! The system calls of a report, by request.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use nvgpu_sys::{ctrl, paths};
use orin_sim::RefusedRequest;
use serde_json::Value;

use crate::bring_up::archive::Report;

/// Largest number of calls that are read from a report.
const MOST: usize = 200_000;
/// A duration counts only if so many calls took at least that long.
const SAMPLES: usize = 8;
/// Requests that wait for the GPU, so that their duration is not their own.
const WAITING: [&str; 1] = ["NVGPU_IOCTL_CHANNEL_WAIT"];
/// The control node.
const CTRL: &str = paths::text(paths::CTRL);
/// Errnos that say nothing about the driver: EINTR and EAGAIN.
const TRANSIENT: [i32; 2] = [4, 11];

/// The calls of one request.
#[derive(Debug, Default)]
pub(super) struct Request {
    /// Number of calls that returned.
    count: usize,
    /// Shortest duration in microseconds.
    least_us: u64,
    /// Whether some call succeeded.
    succeeded: bool,
    /// Errnos with the words of the arguments.
    errnos: BTreeMap<i32, BTreeSet<Vec<u32>>>,
}

/// The calls of a report.
#[derive(Debug, Default)]
pub(super) struct Calls {
    requests: BTreeMap<String, Request>,
    /// Durations of the first open of the control node and of its first request, in microseconds: one of them powers
    /// the GPU up.
    first_us: [Option<u64>; 2],
}

impl Calls {
    /// Reads the calls of all stages.
    pub(super) fn of(report: &Report) -> Result<Self> {
        let mut calls = Self::default();
        let files =
            report.files().filter(|(name, _)| name.starts_with("stage-") && name.ends_with("-calls.jsonl"));
        let mut count = 0;
        for (name, bytes) in files {
            for (number, line) in
                bytes.split(|byte| *byte == b'\n').enumerate().filter(|(_, line)| !line.is_empty())
            {
                count += 1;
                ensure!(count <= MOST, "the report has more than {MOST} system calls");
                let call: Value =
                    serde_json::from_slice(line).with_context(|| format!("{name}, line {}", number + 1))?;
                calls.add(&call);
            }
        }
        Ok(calls)
    }

    fn add(&mut self, call: &Value) {
        let name = call["call"].as_str().unwrap_or_default();
        let wakes = [name.strip_prefix("open ") == Some(CTRL), name == ctrl::GET_CHARACTERISTICS.name()];
        for (first, _) in
            self.first_us.iter_mut().zip(wakes).filter(|(first, wakes)| *wakes && first.is_none())
        {
            *first = call["took_us"].as_u64();
        }
        // Only requests have a code; a call that did not return has no duration.
        let (Some(name), Some(_), Some(took)) =
            (call["call"].as_str(), call["request"].as_str(), call["took_us"].as_u64())
        else {
            return;
        };
        let request = self.requests.entry(name.to_owned()).or_default();
        request.least_us = if request.count == 0 { took } else { request.least_us.min(took) };
        request.count += 1;
        let Some(errno) = call["errno"].as_i64().and_then(|errno| i32::try_from(errno).ok()) else {
            request.succeeded = true;
            return;
        };
        let word = |word: &Value| u32::from_str_radix(word.as_str()?.strip_prefix("0x")?, 16).ok();
        let words =
            call["in"].as_array().map(|words| words.iter().filter_map(word).collect()).unwrap_or_default();
        request.errnos.entry(errno).or_default().insert(words);
    }

    /// The requests that failed in this report, but not in `model`. If other calls of the request succeeded, the
    /// argument is what differs.
    pub(super) fn refusals(&self, model: &Self) -> Vec<RefusedRequest> {
        let mut refusals = Vec::new();
        for (name, request) in &self.requests {
            let known = model.requests.get(name);
            for (errno, arguments) in &request.errnos {
                let is_known = known.is_some_and(|known| known.errnos.contains_key(errno));
                if is_known || TRANSIENT.contains(errno) {
                    continue;
                }
                let whole = request.succeeded || request.errnos.len() > 1;
                if whole && arguments.iter().all(|words| !words.is_empty()) {
                    let words = arguments.iter().cloned();
                    refusals.extend(words.map(|words| RefusedRequest::new(name, Some(words), *errno)));
                } else {
                    refusals.push(RefusedRequest::new(name, None, *errno));
                }
            }
        }
        refusals
    }

    /// The requests that always took a millisecond or more, and at least twice as long as in `model`: their shortest
    /// duration in whole milliseconds.
    pub(super) fn slow_requests(&self, model: &Self) -> BTreeMap<String, u64> {
        let slow = self.requests.iter().filter(|(name, request)| {
            let known = model.requests.get(*name).map_or(0, |known| known.least_us);
            request.count >= SAMPLES
                && request.least_us >= 1000
                && request.least_us / 2 >= known
                && !WAITING.contains(&name.as_str())
        });
        slow.map(|(name, request)| (name.clone(), request.least_us / 1000)).collect()
    }

    /// The time that the GPU needed to power up, in milliseconds, rounded down to tens. `None` below 10 ms, or if the
    /// model needs half of it.
    pub(super) fn power_up_ms(&self, model: &Self) -> Option<u64> {
        let longest = |calls: &Self| calls.first_us.iter().flatten().copied().max();
        let known = longest(model).unwrap_or_default();
        let first = longest(self).filter(|us| *us >= 10_000 && us / 2 >= known)?;
        Some(first / 10_000 * 10)
    }

    /// Each request's name, errnos and shortest duration in microseconds.
    pub(super) fn requests(&self) -> impl Iterator<Item = (&str, Vec<i32>, u64)> {
        self.requests.iter().map(|(name, request)| {
            (name.as_str(), request.errnos.keys().copied().collect(), request.least_us)
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn calls(list: &[(&str, &[&str], u64, i32)]) -> Calls {
        let mut calls = Calls::default();
        for (name, words, took, errno) in list {
            let mut call = json!({ "call": name, "request": "0x1", "in": words, "took_us": took });
            if *errno != 0 {
                call["errno"] = (*errno).into();
            }
            calls.add(&call);
        }
        calls
    }

    #[test]
    fn a_refusal_names_the_argument_only_if_that_decides() {
        let model = calls(&[("A", &["0x1"], 5, 0), ("B", &["0x1"], 5, 25)]);
        let seen = calls(&[
            ("A", &["0x1"], 5, 0),
            ("A", &["0x2"], 5, 22),
            ("A", &["0x2"], 5, 22),
            ("B", &["0x1"], 5, 25),
            ("C", &["0x7"], 5, 95),
            ("C", &["0x8"], 5, 95),
            ("D", &["0x1"], 5, 4),
        ]);
        let wanted = [RefusedRequest::new("A", Some(vec![2]), 22), RefusedRequest::new("C", None, 95)];
        assert_eq!(seen.refusals(&model), wanted);
    }

    #[test]
    fn a_request_is_slow_if_every_call_was() {
        let mut list = vec![("A", [].as_slice(), 12_400, 0); SAMPLES];
        list.extend([("B", [].as_slice(), 2000, 0); 3]);
        list.extend([("C", [].as_slice(), 5000, 0); SAMPLES]);
        list.push(("C", &[], 30, 0));
        list.extend([("NVGPU_IOCTL_CHANNEL_WAIT", [].as_slice(), 5000, 0); SAMPLES]);
        let slow = calls(&list).slow_requests(&calls(&[("A", &[], 20, 0)]));
        assert_eq!(slow, BTreeMap::from([("A".to_owned(), 12)]));
        assert!(
            calls(&list).slow_requests(&calls(&[("A", &[], 9000, 0)])).is_empty(),
            "the model is as slow"
        );
    }
}
