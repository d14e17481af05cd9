//! The boards of the Orin family: modules and their power modes.
//!
//! A power mode switches TPCs off and limits the clock. The kernel driver reports the TPCs that are on, and the highest
//! clock of the module whatever the mode. Cores, memory and clocks are those of NVIDIA's module data sheets; masks and
//! limits are those of L4T's `nvpmodel_*.conf` for each module, without the "super" modes of later releases.

use core::fmt;
use core::str::FromStr;

/// Environment variable that selects the board for programs that open their own software Orin.
pub const BOARD_VARIABLE: &str = "ORIN_SIM_BOARD";

/// SMs of a TPC (`hal_ga10b_litter.c`).
pub const SMS_PER_TPC: u32 = 2;
/// SMs of the chip, before fuses and power modes switch some off.
pub const SMS_OF_CHIP: u32 = 16;
/// Size of one partition of the L2 cache in bytes: two are the 4 MB of the AGX Orin's technical brief.
const L2_PARTITION_BYTES: u64 = 2 << 20;
/// TPCs per GPC position, all on.
const ALL_TPCS: [u32; 2] = [0b1111, 0b1111];

/// A power mode of `nvpmodel`.
///
/// ```
/// use orin_sim::Profile;
///
/// let profile: Profile = "nano-8:7w".parse().unwrap();
/// assert_eq!(profile.mode.name, "7w");
/// ```
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PowerMode {
    /// Name, in lower case: `maxn`, `30w`.
    pub name: &'static str,
    /// TPCs that are switched off: four bits per GPC (TPC_PG_MASK of `nvpmodel`).
    pub tpc_off_mask: u32,
    /// Limit of the GPU's clock in Hz; `None` if the mode has none.
    pub clock_limit_hz: Option<u64>,
}

/// A module.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Board {
    /// Short name, as [`BOARD_VARIABLE`] takes it: `agx-64`.
    pub name: &'static str,
    /// NVIDIA's name.
    pub title: &'static str,
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// Highest clock of the GPU in Hz.
    pub max_clock_hz: u64,
    /// Partitions of the L2 cache that are on, one bit each; 2 MiB per partition.
    pub l2_partitions: u32,
    /// Width of the memory bus in bits (LPDDR5).
    pub memory_bits: u64,
    /// Highest clock of the memory in Hz, which moves data at both edges. Power modes may limit it further.
    pub memory_clock_hz: u64,
    /// Power modes, that with the most SMs and the highest clock first.
    pub modes: &'static [PowerMode],
}

const fn mode(name: &'static str, tpc_off_mask: u32, limit_mhz: u64) -> PowerMode {
    let clock_limit_hz = if limit_mhz == 0 { None } else { Some(limit_mhz * 1_000_000) };
    PowerMode { name, tpc_off_mask, clock_limit_hz }
}

/// All boards, in the order of their power.
pub static BOARDS: [Board; 6] = [
    Board {
        name: "agx-64",
        title: "Jetson AGX Orin 64 GB",
        memory_bytes: 64 << 30,
        max_clock_hz: 1_300_000_000,
        l2_partitions: 0b11,
        memory_bits: 256,
        memory_clock_hz: 3_200_000_000,
        modes: &[mode("maxn", 0, 0), mode("50w", 0, 816), mode("30w", 0xf0, 612), mode("15w", 0xf8, 408)],
    },
    Board {
        name: "agx-32",
        title: "Jetson AGX Orin 32 GB",
        memory_bytes: 32 << 30,
        max_clock_hz: 930_000_000,
        l2_partitions: 0b11,
        memory_bits: 256,
        memory_clock_hz: 3_200_000_000,
        modes: &[
            mode("maxn", 0x80, 0),
            mode("40w", 0x80, 816),
            mode("30w", 0xf0, 612),
            mode("15w", 0xf8, 408),
        ],
    },
    Board {
        name: "nx-16",
        title: "Jetson Orin NX 16 GB",
        memory_bytes: 16 << 30,
        max_clock_hz: 918_000_000,
        l2_partitions: 0b01,
        memory_bits: 128,
        memory_clock_hz: 3_200_000_000,
        modes: &[
            mode("maxn", 0xf0, 0),
            mode("25w", 0xf0, 408),
            mode("15w", 0xfc, 612),
            mode("10w", 0xfc, 612),
        ],
    },
    Board {
        name: "nx-8",
        title: "Jetson Orin NX 8 GB",
        memory_bytes: 8 << 30,
        max_clock_hz: 765_000_000,
        l2_partitions: 0b01,
        memory_bits: 128,
        memory_clock_hz: 3_200_000_000,
        modes: &[
            mode("maxn", 0xf0, 0),
            mode("20w", 0xf0, 408),
            mode("15w", 0xfc, 612),
            mode("10w", 0xfc, 612),
        ],
    },
    Board {
        name: "nano-8",
        title: "Jetson Orin Nano 8 GB",
        memory_bytes: 8 << 30,
        max_clock_hz: 625_000_000,
        l2_partitions: 0b01,
        memory_bits: 128,
        memory_clock_hz: 2_133_000_000,
        modes: &[mode("15w", 0xf0, 0), mode("7w", 0xfc, 408)],
    },
    Board {
        name: "nano-4",
        title: "Jetson Orin Nano 4 GB",
        memory_bytes: 4 << 30,
        max_clock_hz: 625_000_000,
        l2_partitions: 0b01,
        memory_bits: 64,
        memory_clock_hz: 2_133_000_000,
        modes: &[mode("10w", 0xfc, 0), mode("7w", 0xfc, 408)],
    },
];

impl Board {
    /// Number of SMs in the board's strongest power mode.
    pub fn most_sms(&self) -> u32 {
        self.modes.iter().map(PowerMode::sm_count).max().unwrap_or(0)
    }

    /// Size of the L2 cache in bytes.
    pub fn l2_bytes(&self) -> u64 {
        u64::from(self.l2_partitions.count_ones()) * L2_PARTITION_BYTES
    }

    /// Bytes per second that the memory moves at most.
    pub fn memory_bytes_per_second(&self) -> u64 {
        self.memory_bits / 8 * 2 * self.memory_clock_hz
    }
}

impl PowerMode {
    /// TPCs per GPC position, one bit per TPC that is on.
    pub fn tpc_masks(&self) -> [u32; 2] {
        [ALL_TPCS[0] & !self.tpc_off_mask, ALL_TPCS[1] & !(self.tpc_off_mask >> 4)]
    }

    /// Number of SMs that are on.
    pub fn sm_count(&self) -> u32 {
        self.tpc_masks().iter().map(|mask| SMS_PER_TPC * mask.count_ones()).sum()
    }
}

/// A board in one of its power modes. The text form is `BOARD` or `BOARD:MODE`: `agx-64`, `nx-16:15w`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// The board.
    pub board: &'static Board,
    /// The power mode, one of the board's.
    pub mode: &'static PowerMode,
}

impl Default for Profile {
    /// The AGX Orin 64 GB without limits, with all 16 SMs.
    fn default() -> Self {
        Self { board: &BOARDS[0], mode: &BOARDS[0].modes[0] }
    }
}

impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.board.name, self.mode.name)
    }
}

/// A text that names no board or no power mode of the board.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a board or not BOARD:MODE; known are {}", known())]
pub struct UnknownBoard {
    /// The text.
    pub text: String,
}

/// All boards with their modes.
fn known() -> String {
    let boards = BOARDS.iter().map(|board| {
        let modes: Vec<&str> = board.modes.iter().map(|mode| mode.name).collect();
        format!("{} ({})", board.name, modes.join(", "))
    });
    boards.collect::<Vec<_>>().join(", ")
}

impl FromStr for Profile {
    type Err = UnknownBoard;

    /// Parses `BOARD` or `BOARD:MODE`, in either case; without a mode, the board's first.
    fn from_str(text: &str) -> Result<Self, UnknownBoard> {
        let refuse = || UnknownBoard { text: text.to_owned() };
        let lower = text.to_ascii_lowercase();
        let (name, mode) =
            lower.split_once(':').map_or((lower.as_str(), None), |(name, mode)| (name, Some(mode)));
        let board = BOARDS.iter().find(|board| board.name == name).ok_or_else(refuse)?;
        let mut modes = board.modes.iter();
        let mode = modes.find(|known| mode.is_none_or(|mode| mode == known.name)).ok_or_else(refuse)?;
        Ok(Self { board, mode })
    }
}

impl Profile {
    /// The profile that [`BOARD_VARIABLE`] names; the default if it is unset or empty.
    ///
    /// # Errors
    ///
    /// [`UnknownBoard`] if it names none.
    pub fn from_environment() -> Result<Self, UnknownBoard> {
        match std::env::var_os(BOARD_VARIABLE).filter(|value| !value.is_empty()) {
            Some(value) => value.to_string_lossy().parse(),
            None => Ok(Self::default()),
        }
    }

    /// Highest clock of the GPU in this mode, in Hz.
    pub fn clock_hz(&self) -> u64 {
        self.mode.clock_limit_hz.map_or(self.board.max_clock_hz, |limit| limit.min(self.board.max_clock_hz))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_boards_have_the_cores_of_their_data_sheets() {
        // CUDA cores: 128 per SM.
        let cores: Vec<(&str, u32)> =
            BOARDS.iter().map(|board| (board.name, 128 * board.most_sms())).collect();
        let expected = [
            ("agx-64", 2048),
            ("agx-32", 1792),
            ("nx-16", 1024),
            ("nx-8", 1024),
            ("nano-8", 1024),
            ("nano-4", 512),
        ];
        assert_eq!(cores, expected);
        // GB/s, as the data sheets round them.
        let rates: Vec<u64> =
            BOARDS.iter().map(|board| board.memory_bytes_per_second() / 100_000_000).collect();
        assert_eq!(rates, [2048, 2048, 1024, 1024, 682, 341]);
        for board in &BOARDS {
            assert_eq!(board.modes[0].sm_count(), board.most_sms(), "{}", board.name);
            assert!(board.modes.iter().all(|mode| mode.sm_count() > 0));
        }
    }

    #[test]
    fn profiles_have_a_text_form() {
        assert_eq!(Profile::default().to_string(), "agx-64:maxn");
        for board in &BOARDS {
            assert_eq!(board.name.parse(), Ok(Profile { board, mode: &board.modes[0] }));
            for mode in board.modes {
                let profile = Profile { board, mode };
                assert_eq!(profile.to_string().to_uppercase().parse(), Ok(profile));
            }
        }
        for text in ["", "agx", "agx-64:", "agx-64:40w", "agx-64:30w:", "nano-4:maxn"] {
            let error = text.parse::<Profile>().unwrap_err().to_string();
            assert!(error.contains(&format!("`{text}`")) && error.contains("nano-4 (10w, 7w)"), "{error}");
        }
        let low: Profile = "agx-64:30w".parse().unwrap();
        assert_eq!(
            (low.mode.tpc_masks(), low.mode.sm_count(), low.clock_hz()),
            ([0b1111, 0], 8, 612_000_000)
        );
        let maxn = Profile::from_str("agx-32").unwrap();
        assert_eq!((maxn.mode.tpc_masks(), maxn.clock_hz()), ([0b1111, 0b111], 930_000_000));
    }
}
