//! `--since`: the earliest time of a message.

use std::str::FromStr;

use anyhow::Result;
use gpu_log::{Record, Stamp};
use jiff::civil::{Date, DateTime};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Span, SpanRelativeTo, Timestamp, Zoned};
use orin_cli::UsageError;

/// A point in time on the command line.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Since {
    /// Microseconds since the kernel started.
    Uptime(u64),
    /// A duration before now.
    Ago(SignedDuration),
    /// A point in time.
    At(Timestamp),
}

impl FromStr for Since {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
            let seconds: f64 = text.parse().map_err(|_| format!("{text} is no number of seconds"))?;
            let micros = seconds * 1e6;
            // CAST: a number between 0 and 2^63 fits.
            return if micros < 9.2e18 {
                Ok(Self::Uptime(micros as u64))
            } else {
                Err("too large".to_owned())
            };
        }
        if let Ok(timestamp) = text.parse::<Timestamp>() {
            return Ok(Self::At(timestamp));
        }
        if let Ok(date) = text.parse::<DateTime>() {
            return local(date).map(Self::At).ok_or_else(|| format!("{text} is out of range"));
        }
        let day = SpanRelativeTo::days_are_24_hours();
        let span = text.parse::<Span>().and_then(|span| span.to_duration(day));
        span.map(|duration| Self::Ago(duration.abs())).map_err(|_| {
            "give seconds of uptime (1234.5), a duration (`10min ago`, `2h ago`, `1d ago`) or a date-time \
             (2026-02-12T10:11:12Z)"
                .to_owned()
        })
    }
}

/// The earliest stamps to include; `None` if the point in time cannot be compared with that kind of stamp.
#[derive(Clone, Copy, Debug, Default)]
struct Limits {
    uptime: Option<u64>,
    date: Option<Timestamp>,
}

impl Since {
    /// Returns the records since that time. A record without a stamp follows the one before it.
    ///
    /// # Errors
    ///
    /// Returns a [`UsageError`] if the log's stamps cannot be compared with this time.
    pub(super) fn filter(&self, records: Vec<Record>, live: bool) -> Result<Vec<Record>> {
        let limits = if live { self.live_limits() } else { self.saved_limits() };
        let now = Zoned::now();
        let mut kept = None;
        let mut later = Vec::new();
        let count = records.len();
        for record in records {
            kept = match &record.stamp {
                Stamp::Uptime(micros) => Some(*micros >= limits.uptime.ok_or_else(needs_uptime)?),
                Stamp::Wall(text) => match timestamp(text, &now) {
                    Some(at) => Some(at >= limits.date.ok_or_else(needs_date)?),
                    None => kept,
                },
                Stamp::None => kept,
            };
            if kept == Some(true) {
                later.push(record);
            }
        }
        if kept.is_none() && count > 0 {
            return Err(UsageError("--since: the log has no time stamps".to_owned()).into());
        }
        Ok(later)
    }

    /// Limits for the running kernel's log, for both kinds of stamps.
    fn live_limits(&self) -> Limits {
        let clock = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let uptime = SignedDuration::new(clock.tv_sec, i32::try_from(clock.tv_nsec).unwrap_or(0));
        let now = Timestamp::now();
        let ago = match self {
            // CAST: below 2^63 by the parser.
            Self::Uptime(micros) => uptime - SignedDuration::from_micros(*micros as i64),
            Self::Ago(duration) => *duration,
            Self::At(at) => now.duration_since(*at),
        };
        let start = uptime.checked_sub(ago).unwrap_or(SignedDuration::ZERO);
        let uptime = u64::try_from(start.as_micros()).unwrap_or(0);
        Limits { uptime: Some(uptime), date: now.checked_sub(ago).ok() }
    }

    /// Limits for a saved log, whose kernel's start time is unknown.
    fn saved_limits(&self) -> Limits {
        match self {
            Self::Uptime(micros) => Limits { uptime: Some(*micros), date: None },
            Self::Ago(duration) => {
                Limits { uptime: None, date: Timestamp::now().checked_sub(*duration).ok() }
            }
            Self::At(at) => Limits { uptime: None, date: Some(*at) },
        }
    }
}

fn needs_uptime() -> UsageError {
    let text = "--since: this saved log has seconds of uptime, and when its kernel started is not known: give \
                seconds of uptime";
    UsageError(text.to_owned())
}

fn needs_date() -> UsageError {
    UsageError("--since: this log has dates: give a date-time or a duration".to_owned())
}

fn local(date: DateTime) -> Option<Timestamp> {
    Some(date.to_zoned(TimeZone::system()).ok()?.timestamp())
}

/// The point in time of a log's stamp. A stamp without a zone is local time; one without a year is the latest
/// such day in the past.
fn timestamp(text: &str, now: &Zoned) -> Option<Timestamp> {
    if let Ok(at) = text.replacen(',', ".", 1).parse() {
        return Some(at);
    }
    let words: Vec<&str> = text.split_whitespace().collect();
    let (month_day, clock, year) = match words[..] {
        [_, month, day, clock, year] => (format!("{month} {day}"), clock, Some(year)),
        [month, day, clock] => (format!("{month} {day}"), clock, None),
        // `Feb12 10:11` of `dmesg -e`.
        [joined, clock] => (format!("{} {}", joined.get(..3)?, joined.get(3..)?), clock, None),
        _ => return None,
    };
    let clock = if clock.matches(':').count() == 1 { format!("{clock}:00") } else { clock.to_owned() };
    let parse = |year: i64| {
        let text = format!("{month_day} {year} {clock}");
        DateTime::strptime("%b %d %Y %H:%M:%S", text).ok().and_then(local)
    };
    match year {
        Some(year) => parse(year.parse().ok()?),
        None => {
            let today: Date = now.date();
            let this = parse(today.year().into())?;
            if this > now.timestamp() { parse(i64::from(today.year()) - 1) } else { Some(this) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(records: &[Record]) -> Vec<&str> {
        records.iter().map(|record| record.text.as_str()).collect()
    }

    #[test]
    fn three_forms_are_understood() {
        let ago = |text: &str| match text.parse().unwrap() {
            Since::Ago(duration) => duration.as_secs(),
            other => panic!("{text}: {other:?}"),
        };
        assert_eq!("1234.5".parse(), Ok(Since::Uptime(1_234_500_000)));
        assert_eq!(
            (ago("10min ago"), ago("10min"), ago("2h 30m ago"), ago("1d ago")),
            (600, 600, 9000, 86_400)
        );
        let at = "2026-02-12T10:11:12+01:00".parse::<Since>().unwrap();
        assert_eq!(at, Since::At("2026-02-12T09:11:12Z".parse().unwrap()));
        for bad in ["", "yesterday", "1.2.3", "10 ago", "1 month ago", "99999999999999999999999"] {
            assert!(bad.parse::<Since>().is_err(), "{bad}");
        }
    }

    #[test]
    fn uptime_is_compared_with_uptime() {
        let log = "no stamp\n[    1.0] a\n[    2.0] b\nof b\n[    3.0] c\n";
        let records = Record::parse_log(log);
        let kept = Since::Uptime(2_000_000).filter(records.clone(), false).unwrap();
        assert_eq!(texts(&kept), ["b", "of b", "c"]);
        let error = Since::Ago(SignedDuration::from_secs(1)).filter(records, false).unwrap_err();
        assert!(error.is::<UsageError>() && error.to_string().contains("uptime"), "{error}");
        let error = Since::Uptime(1).filter(Record::parse_log("a\nb\n"), false).unwrap_err();
        assert!(error.to_string().contains("no time stamps"), "{error}");
    }

    #[test]
    fn dates_are_compared_with_dates() {
        let log = "2026-02-12T10:00:00,000000+00:00 a\n2026-02-12T11:00:00,000000+00:00 b\n";
        let since = "2026-02-12T10:30:00Z".parse::<Since>().unwrap();
        assert_eq!(texts(&since.filter(Record::parse_log(log), false).unwrap()), ["b"]);
        let error = Since::Uptime(1).filter(Record::parse_log(log), false).unwrap_err();
        assert!(error.to_string().contains("date-time"), "{error}");
    }

    #[test]
    fn a_running_kernel_s_log_takes_every_form() {
        let clock = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let micros = u64::try_from(clock.tv_sec).unwrap() * 1_000_000;
        let stamped = |micros| Record { stamp: Stamp::Uptime(micros), ..Record::from_text("x") };
        let records = vec![stamped(0), stamped(micros + 60_000_000)];
        for since in ["5s ago".to_owned(), (clock.tv_sec - 1).to_string(), Timestamp::now().to_string()] {
            let kept = since.parse::<Since>().unwrap().filter(records.clone(), true).unwrap();
            assert_eq!(kept, records[1..], "{since}");
        }
        assert_eq!("99999h".parse::<Since>().unwrap().filter(records.clone(), true).unwrap(), records);
    }

    #[test]
    fn every_kind_of_date_is_read() {
        let now: Zoned = "2026-03-01T00:00:00+00:00[UTC]".parse().unwrap();
        let seconds = |text: &str| timestamp(text, &now).map(|at| at.as_second());
        let local = |text: &str| local(text.parse().unwrap()).unwrap().as_second();
        let wanted = Some(local("2026-02-02T10:11:12"));
        assert_eq!(seconds("Mon Feb  2 10:11:12 2026"), wanted);
        assert_eq!(seconds("Feb  2 10:11:12"), wanted);
        assert_eq!(seconds("Feb02 10:11"), Some(local("2026-02-02T10:11:00")));
        assert_eq!(seconds("Nov 02 10:11:12"), Some(local("2025-11-02T10:11:12")), "last year's");
        assert_eq!(seconds("2026-02-02T10:11:12,5+00:00"), Some(1_770_027_072));
        for bad in ["", "x", "x y", "Feb 40 10:11:12", "é1 10:11"] {
            assert_eq!(seconds(bad), None, "{bad}");
        }
    }
}
