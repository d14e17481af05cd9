//! Times in UTC, as ISO 8601 writes them.

use std::time::{SystemTime, UNIX_EPOCH};

/// Days of 400 years.
const ERA_DAYS: u64 = 146_097;

/// Year, month and day of a day since 1970-01-01.
fn date(day: u64) -> (u64, u64, u64) {
    // Years that begin on 1 March end with the leap day. Day 0 is then 719,468 days after 0000-03-01.
    let day = day + 719_468;
    let (era, day) = (day / ERA_DAYS, day % ERA_DAYS);
    let year = (day - day / 1_460 + day / 36_524 - day / (ERA_DAYS - 1)) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    // Five months have 153 days, in this order again and again from March.
    let month = (5 * day + 2) / 153;
    let day_of_month = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (era * 400 + year + u64::from(month <= 2), month, day_of_month)
}

/// Date, time of day, and microseconds; 1970 for a clock that was never set.
fn parts(time: SystemTime) -> ((u64, u64, u64), (u64, u64, u64), u32) {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let seconds = since.as_secs();
    (date(seconds / 86_400), (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60), since.subsec_micros())
}

/// For text: `2026-11-23T01:40:00.123456Z`.
pub(super) fn extended(time: SystemTime) -> String {
    let ((year, month, day), (hour, minute, second), micros) = parts(time);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
}

/// For names of files: `20261123T014000Z`.
pub(super) fn basic(time: SystemTime) -> String {
    let ((year, month, day), (hour, minute, second), _) = parts(time);
    format!("{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}Z")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, text) in [
            (0, "19700101T000000Z"),
            (951_782_399, "20000228T235959Z"),
            (951_782_400, "20000229T000000Z"),
            (951_868_800, "20000301T000000Z"),
            (1_770_000_000, "20260202T024000Z"),
            (4_107_542_399, "21000228T235959Z"),
            (4_107_542_400, "21000301T000000Z"),
            (1_735_689_599, "20241231T235959Z"),
        ] {
            assert_eq!(basic(UNIX_EPOCH + Duration::from_secs(seconds)), text);
        }
        let time = UNIX_EPOCH + Duration::from_micros(1_770_000_000_000_042);
        assert_eq!(extended(time), "2026-02-02T02:40:00.000042Z");
    }
}
