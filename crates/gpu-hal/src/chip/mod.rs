//! The chip table: everything that depends on the generation of the GPU, one row per SM version.
//!
//! [`of`] returns the [`Chip`] of an SM version. Class numbers, the version of the launch descriptor, the actions of
//! launches and chains, shared memory, registers, local memory, limits and tuning values are fields of that row and
//! defined only there.
//!
//! An encoding that the hardware interprets is a [`Fact`]: it also records where it was [`Seen`] working. A value that
//! follows from a public header alone is [`Seen::Nowhere`], however plausible.
//!
//! To add a generation, add a row to `rows.rs` and list it in [`ALL`].

use core::fmt;

use ampere_cmd::command::PcasAction;
use ampere_cmd::dump;

mod encoding;
mod resources;
mod rows;

pub use encoding::{
    Bank0, Chain, ChainBarrier, ClassId, Classes, ClusterWords, DescriptorRelease, Fact, OwnAddress,
    QmdVersion, Seen, Usermode,
};
pub use resources::{
    CLUSTER_BLOCKS_PER_SM, LocalMemory, MAX_BLOCK, MAX_BLOCK_BARRIERS, MAX_BLOCK_THREADS, MAX_CLUSTER,
    MAX_GRID, PORTABLE_CLUSTER, PeerCopies, SharedMemory, Sm, Tuning, WARP,
};
pub use rows::{ALL, SM_8_0, SM_8_6, SM_8_7, SM_8_9, SM_9_0};

/// One generation of GPUs: a row of the table.
///
/// ```
/// use gpu_hal::chip;
///
/// let orin = chip::of((8, 7)).expect("a row of the table");
/// assert!(orin.was_tried());
/// assert!(chip::of((7, 0)).is_none());
/// ```
#[derive(Clone, Copy)]
pub struct Chip {
    /// SM version, major and minor.
    pub sm_version: (u32, u32),
    /// Chips and products.
    pub name: &'static str,
    /// Classes of engines and channels.
    pub classes: Fact<Classes>,
    /// Tables that decode its commands.
    pub commands: &'static dump::Classes,
    /// Version of the launch descriptor.
    pub descriptor: Fact<QmdVersion>,
    /// Actions with which the scheduler takes a descriptor (SEND_SIGNALING_PCAS2_B). The first one is used; the others
    /// are known alternatives.
    pub launch_actions: &'static [Fact<PcasAction>],
    /// How launches are chained. The first one is used; the others are known alternatives.
    pub chains: &'static [Fact<Chain>],
    /// The release of a timeline by a descriptor.
    pub descriptor_release: Fact<DescriptorRelease>,
    /// Whether the shader caches are invalidated by a method before each chain of launches
    /// (INVALIDATE_SHADER_CACHES_NO_WFI). If not, the invalidation bits of the descriptors have to suffice.
    pub shader_invalidate: Fact<bool>,
    /// Layout of constant bank 0.
    pub bank0: Fact<Bank0>,
    /// Whether constant bank 0 is prefetched before the grid begins.
    pub bank0_prefetch: Fact<bool>,
    /// Whether the scheduler is told of a launch before the wait for idle that precedes it (PREFETCH, wait, SCHEDULE).
    /// It then reads the descriptor while the grid before it runs. The caches of the scheduler are invalidated
    /// (INVALIDATE_SKED_CACHES) before the address of a descriptor is used again.
    pub early_prefetch: Fact<bool>,
    /// Whether a descriptor says how many blocks an empty SM has room for (FREE_CTA_SLOTS_EMPTY_SM). The scheduler then
    /// starts a grid earlier. It trusts the number: one too large ends a grid that fills an SM in an exception, one too
    /// small makes blocks share an SM while others are idle. So only grids of at most one block per SM say it.
    pub empty_sm_slots: Fact<bool>,
    /// Whether a grid can let the next one of a chain begin early (ENABLE_PROGRAM_PRE_EXIT), which then waits for the
    /// memory of the first (ARRIVE_AT_LATCH, WAIT_ON_LATCH; `griddepcontrol` of PTX).
    pub early_start: Fact<bool>,
    /// Resources of an SM.
    pub sm: Sm,
    /// Shared memory of an SM.
    pub shared: SharedMemory,
    /// Local memory of threads.
    pub local: LocalMemory,
    /// Tuning values.
    pub tuning: Tuning,
}

impl fmt::Debug for Chip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.sm_version;
        write!(f, "Chip({major}.{minor})")
    }
}

/// Rows are static and differ in their SM version.
impl PartialEq for Chip {
    fn eq(&self, other: &Self) -> bool {
        self.sm_version == other.sm_version
    }
}

impl Eq for Chip {}

impl Chip {
    /// The action with which launches are started.
    #[must_use]
    #[inline]
    pub const fn launch_action(&self) -> PcasAction {
        self.launch_actions[0].value
    }

    /// How launches are chained.
    #[must_use]
    #[inline]
    pub const fn chain(&self) -> Chain {
        self.chains[0].value
    }

    /// The encodings in use, by name, with where each was seen working.
    #[must_use]
    pub fn encodings(&self) -> [(&'static str, Seen); 7] {
        [
            ("classes", self.classes.seen),
            ("launch descriptor", self.descriptor.seen),
            ("launch action", self.launch_actions[0].seen),
            ("chained launches", self.chains[0].seen),
            ("release by descriptor", self.descriptor_release.seen),
            ("invalidation of shader caches", self.shader_invalidate.seen),
            ("constant bank 0", self.bank0.seen),
        ]
    }

    /// One sentence on where the encodings of this chip were tried, for reports.
    ///
    /// ```
    /// let text = gpu_hal::chip::SM_8_6.tried();
    /// assert!(text.contains("never tried"), "{text}");
    /// ```
    #[must_use]
    pub fn tried(&self) -> String {
        let (major, minor) = self.sm_version;
        let of = |wanted: fn(&Seen) -> bool| {
            self.encodings()
                .into_iter()
                .filter(|(_, seen)| wanted(seen))
                .map(|(name, _)| name)
                .collect::<Vec<_>>()
        };
        let silicon = self.encodings().into_iter().find_map(|(_, seen)| match seen {
            Seen::Silicon(name) => Some(name),
            _ => None,
        });
        if let Some(name) = silicon {
            return format!("this project was tried on SM {major}.{minor}: on {name}");
        }
        let (model, board) = (of(|seen| *seen == Seen::Model), of(|seen| *seen == Seen::Board));
        if model.is_empty() && board.is_empty() {
            return format!(
                "SM {major}.{minor} ({}) was never tried: what this project sends to it is from public headers",
                self.name
            );
        }
        let mut text = format!(
            "this project was tried on the software Orin only, never on a board of SM {major}.{minor}; boards have \
             accepted from other programs what it sends to the GPU ({})",
            board.join(", ")
        );
        if !model.is_empty() {
            text.push_str("; the software Orin alone has accepted: ");
            text.push_str(&model.join(", "));
        }
        text
    }

    /// Where an action of launches was seen working; [`Seen::Nowhere`] if the row does not contain it.
    #[must_use]
    pub fn launch_action_seen(&self, action: PcasAction) -> Seen {
        encoding::seen(self.launch_actions, &action)
    }

    /// Where a way to chain launches was seen working; [`Seen::Nowhere`] if the row does not contain it.
    #[must_use]
    pub fn chain_seen(&self, chain: Chain) -> Seen {
        encoding::seen(self.chains, &chain)
    }

    /// Whether some encoding in use was seen working on real hardware or on the model.
    #[must_use]
    pub fn was_tried(&self) -> bool {
        self.encodings().iter().any(|(_, seen)| *seen != Seen::Nowhere)
    }
}

/// The row of an SM version; `None` for a generation that the table does not contain.
#[must_use]
pub fn of(sm_version: (u32, u32)) -> Option<&'static Chip> {
    ALL.iter().copied().find(|chip| chip.sm_version == sm_version)
}

/// The SM versions of the table, for messages: "8.0, 8.6, 8.7, 8.9, 9.0".
#[must_use]
pub fn versions() -> String {
    let version = |chip: &&Chip| format!("{}.{}", chip.sm_version.0, chip.sm_version.1);
    ALL.iter().map(version).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use ampere_cmd::qmd::{v3_0, v4_0};

    #[test]
    fn rows_are_found_by_version_and_differ() {
        for (at, chip) in ALL.iter().enumerate() {
            assert_eq!(of(chip.sm_version).unwrap().sm_version, chip.sm_version);
            assert!(ALL[..at].iter().all(|other| other.sm_version < chip.sm_version), "ascending");
        }
        assert!(of((7, 5)).is_none());
        assert!(of((10, 0)).is_none());
        assert_eq!(versions(), "8.0, 8.6, 8.7, 8.9, 9.0");
    }

    #[test]
    fn values_fit_their_fields() {
        for chip in ALL {
            let (action, membar, shared, registers) = match chip.descriptor.value {
                QmdVersion::V3_0 => (
                    v3_0::DEPENDENT_QMD0_ACTION.info(),
                    v3_0::CWD_MEMBAR_TYPE.info(),
                    v3_0::SHARED_MEMORY_SIZE.info(),
                    v3_0::REGISTER_COUNT_V.info(),
                ),
                QmdVersion::V4_0 => (
                    v4_0::DEPENDENT_QMD_ACTION.info(),
                    v4_0::CWD_MEMBAR_TYPE.info(),
                    v4_0::SHARED_MEMORY_SIZE.info(),
                    v4_0::REGISTER_COUNT.info(),
                ),
            };
            assert!(!chip.launch_actions.is_empty());
            for chain in chip.chains {
                assert!(action.value_name(u32::try_from(chain.value.action).unwrap()).is_some());
                if let Some(barrier) = chain.value.barrier {
                    assert!(membar.value_name(u32::try_from(barrier.membar).unwrap()).is_some());
                }
            }
            assert!(chip.shared.largest() <= shared.max());
            assert!(chip.sm.max_thread_registers <= registers.max());
            for kib in chip.shared.sizes_kib {
                let code = chip.shared.config_for(kib * 1024).unwrap();
                assert_eq!(chip.shared.config_bytes(code), Some(kib * 1024));
            }
            assert!(chip.shared.sizes_kib.is_sorted());
            assert!(chip.shared.descriptor_unit.is_power_of_two() && chip.sm.register_unit.is_power_of_two());
            assert!(chip.shared.sizes_kib.contains(&chip.shared.usual_kib));
            assert_eq!(chip.shared.config_for(chip.shared.largest() + 1), None);
        }
    }

    #[test]
    fn classes_that_have_a_table_have_its_name() {
        for chip in ALL {
            let Classes { compute, copy, channel, usermode } = chip.classes.value;
            for class in [Some(compute), Some(copy), Some(channel), usermode.map(|page| page.class)]
                .into_iter()
                .flatten()
            {
                if let Some(table) = ampere_cmd::method::class(class.number) {
                    assert_eq!(table.name, class.name);
                }
            }
            assert_eq!(u32::from(chip.commands.host.number), channel.number);
        }
    }

    #[test]
    fn configurations_of_shared_memory_are_those_of_the_chip() {
        assert_eq!(SM_8_7.shared.config_for(1024), Some(3));
        assert_eq!(SM_8_7.shared.config_for(164 << 10), Some(42));
        assert_eq!(SM_8_7.shared.config_for((164 << 10) + 1), None);
        assert_eq!(SM_8_6.shared.config_for((100 << 10) + 1), None);
        assert_eq!(SM_9_0.shared.config_for((164 << 10) + 1), Some(50));
        assert_eq!(SM_9_0.shared.config_for((228 << 10) + 1), None);
        assert_eq!(SM_8_6.shared.config_bytes(42), None, "164 KiB");
    }

    #[test]
    fn the_reserved_bytes_count_once() {
        assert_eq!(SM_8_7.shared.own(2048), 2048);
        assert_eq!(SM_9_0.shared.own(2048), 1024);
        assert_eq!(SM_9_0.shared.own(0), 0);
        assert_eq!(SM_8_7.shared.descriptor_bytes(2000), Some(3072));
        assert_eq!(SM_9_0.shared.descriptor_bytes(2000), Some(3072));
        assert_eq!(SM_8_7.shared.descriptor_bytes(u32::MAX), None);
    }

    #[test]
    fn the_stack_pointer_is_the_one_that_the_compiler_expects() {
        for chip in ALL {
            assert_eq!(chip.local.stack_pointer(), 0xff_fdc0);
        }
    }

    #[test]
    fn registers_are_allocated_per_warp_and_partition() {
        let sm = SM_8_7.sm;
        assert_eq!(sm.warp_registers(65), 2304);
        assert_eq!(sm.warps_for_registers(65), 28, "7 in each partition of 16,384");
        assert_eq!(sm.warps_for_registers(255), 8);
        assert_eq!(sm.warp_registers(0), 256);
        assert_eq!((sm.threads(), SM_9_0.sm.threads()), (1536, 2048));
    }

    #[test]
    fn reports_say_where_a_chip_was_tried() {
        for chip in [&SM_8_0, &SM_8_6, &SM_8_9] {
            assert!(!chip.was_tried());
            assert!(chip.tried().contains("never tried"), "{}", chip.tried());
        }
        assert_eq!(SM_9_0.tried(), "this project was tried on SM 9.0: on an H200");
        let orin = SM_8_7.tried();
        assert!(orin.contains("software Orin only, never on a board"), "{orin}");
        assert!(orin.contains("launch action, chained launches"), "{orin}");
        assert!(!orin.contains("the software Orin alone"), "{orin}");
    }

    #[test]
    fn the_orin_uses_what_ran_on_a_board() {
        assert!(SM_8_7.encodings().iter().all(|(_, seen)| *seen == Seen::Board), "{:?}", SM_8_7.encodings());
        assert_eq!(SM_8_7.launch_action(), PcasAction::PrefetchSchedule);
        assert_eq!((SM_8_7.chain().action, SM_8_7.chain().prefetch), (1, true));
        assert_eq!(
            SM_8_7.launch_action_seen(PcasAction::InvalidatePrefetchCopySchedule),
            Seen::Board,
            "two other programs"
        );
        let copied = PcasAction::InvalidateCopySchedule;
        assert_eq!(SM_8_7.launch_action_seen(copied), Seen::Silicon("an H200"), "not this chip");
        assert_eq!(SM_8_7.launch_action_seen(PcasAction::Schedule), Seen::Nowhere);
        assert_eq!(SM_8_7.chain_seen(Chain { prefetch: false, ..SM_8_7.chain() }), Seen::Nowhere);
        assert_eq!(SM_9_0.launch_action(), PcasAction::InvalidatePrefetchCopySchedule);
        assert!(!SM_9_0.shader_invalidate.value);
    }
}
