//! 64-bit values as pairs of 32-bit words.
//!
//! Addresses and payloads occupy two words in methods, descriptors and semaphores. Engine classes take the upper word
//! first, semaphores in memory and descriptors the lower one. These helpers are the one place that splits and joins.

/// Splits a 64-bit value into its lower and upper word.
///
/// ```
/// assert_eq!(ampere_cmd::words::lower_upper(0x12_3456_789a), [0x3456_789a, 0x12]);
/// ```
#[must_use]
#[inline]
pub const fn lower_upper(value: u64) -> [u32; 2] {
    // CAST: the two halves.
    [value as u32, (value >> 32) as u32]
}

/// Splits a 64-bit value into its upper and lower word, the order in which engine classes take addresses.
///
/// ```
/// assert_eq!(ampere_cmd::words::upper_lower(0x12_3456_789a), [0x12, 0x3456_789a]);
/// ```
#[must_use]
#[inline]
pub const fn upper_lower(value: u64) -> [u32; 2] {
    let [lower, upper] = lower_upper(value);
    [upper, lower]
}

/// Joins an upper and a lower word.
///
/// ```
/// assert_eq!(ampere_cmd::words::join(0x12, 0x3456_789a), 0x12_3456_789a);
/// ```
#[must_use]
#[inline]
pub const fn join(upper: u32, lower: u32) -> u64 {
    (upper as u64) << 32 | lower as u64
}
