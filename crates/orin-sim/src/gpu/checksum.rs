//! Checksums of fetched data, which the control entries GP_CRC and PB_CRC compare.
//!
//! Host computes a CRC-32 (IEEE 802.3) of the ring's entries since the last comparison, and one of the words of each
//! pushbuffer segment. Both start at zero (GA100 `dev_pbdma`). The manual does not specify more. Processing the lowest
//! byte first, with reflected bits and without a final inversion, is an assumption.

/// The polynomial with reflected bits.
const POLYNOMIAL: u32 = 0xedb8_8320;

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        // CAST: below 256.
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 != 0 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

/// Adds one word to the checksum `crc`.
pub(super) fn add(crc: u32, word: u32) -> u32 {
    word.to_le_bytes().into_iter().fold(crc, |crc, byte| {
        // CAST: below 256.
        crc >> 8 ^ TABLE[((crc ^ u32::from(byte)) & 0xff) as usize]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_polynomial_is_that_of_ethernet() {
        // The standard check value is the CRC of "123456789", started from all ones and inverted at the end. Eight
        // bytes are processed as words, the ninth with the table.
        let crc = [0x3433_3231, 0x3837_3635].into_iter().fold(u32::MAX, add);
        let crc = crc >> 8 ^ TABLE[((crc ^ 0x39) & 0xff) as usize];
        assert_eq!(!crc, 0xcbf4_3926);
        assert_eq!(add(0, 0), 0);
    }
}
