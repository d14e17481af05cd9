//! Encodings that a device can choose, and the knobs of its memory: defaults, options and environment variables.
//!
//! The chip table ([`gpu_hal::chip`]) says what is used by default and where each encoding was seen working.
//! [`DeviceOptions`] override it for one device, environment variables for a program that does not. Both exist for the
//! first minutes on a new board, where an encoding may turn out not to work.

use ampere_cmd::command::PcasAction;
use ampere_cmd::qmd::{v3_0, v4_0};
use gpu_hal::chip::{Chain, Chip, QmdVersion, Seen};

use crate::error::{Error, Result};

/// The unit that releases the queue's timeline at the end of a submission of launches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReleaseBy {
    /// As the device's options say ([`DeviceOptions::release`]). Without them: the descriptor of the last launch if
    /// the chip table says so (Hopper), otherwise the host engine.
    #[default]
    Auto,
    /// The host engine, once the compute engine is idle.
    Host,
    /// The descriptor of the last launch if the queue spins and the submission ends with a launch, otherwise the host
    /// engine. This is faster, because no wait for idle is needed unless more work follows before the CPU has seen the
    /// value. Tested on an H200 and on the software Orin; untested on an Orin.
    Descriptor,
}

/// How a launch starts the next one of the same batch or graph (fields DEPENDENT_QMD0_* of the descriptor).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Chaining {
    /// SCHEDULE (1) with a prefetch: the scheduler reads the next descriptor while the grid before it runs.
    Schedule,
    /// INVALIDATE_COPY_SCHEDULE (3): the scheduler reads the next descriptor when the grid before it has ended.
    InvalidateCopySchedule,
    /// Descriptors do not start each other. The host engine starts each launch after a wait for idle.
    Off,
}

/// Flags with which buffers are mapped for the GPU (MAP_BUFFER_EX of nvgpu).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mapping {
    /// No flags: the GPU's L2 does not cache system memory.
    Plain,
    /// CACHEABLE (bit 2): the GPU's L2 caches data, but not commands, timelines and signals. The CPU sees the GPU's
    /// writes after [`DeviceOptions::l2_flush`], the GPU the CPU's after [`DeviceOptions::l2_invalidate`].
    L2Cached,
    /// SYSTEM_COHERENT (bit 9): through the coherent aperture.
    SystemCoherent,
}

/// Options of a device, given before it is opened; see [`DeviceOptions::open`].
///
/// An option that is `None` is taken from its environment variable, and from the chip table if that is unset or empty.
///
/// | option | variable | values |
/// |---|---|---|
/// | `pcas_action` | `NVGPU_PCAS_ACTION` | 9, 10, 3 |
/// | `chaining` | `NVGPU_CHAIN` | 1, 3, off |
/// | `release` | `NVGPU_RELEASE` | host, descriptor |
/// | `shader_invalidate` | `NVGPU_SHADER_INVALIDATE` | 0, 1 |
/// | `early_prefetch` | `NVGPU_EARLY_PREFETCH` | 0, 1 |
/// | `mapping` | `NVGPU_MAPPING` | plain, cached, coherent |
/// | `l2_invalidate` | `NVGPU_L2_INVALIDATE` | 0, 1 |
/// | `l2_flush` | `NVGPU_L2_FLUSH` | 0, 1 |
///
/// ```
/// # #[cfg(feature = "sim")] fn main() -> tegra_hcq::Result<()> {
/// use tegra_hcq::{Chaining, DeviceKind, DeviceOptions};
///
/// let device = DeviceOptions::new().chaining(Chaining::Off).open(DeviceKind::Sim)?;
/// assert_eq!(device.encodings().chain, None);
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "sim"))] fn main() {}
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceOptions {
    /// Action with which the scheduler takes the first descriptor of a chain (SEND_SIGNALING_PCAS2_B):
    /// PREFETCH_SCHEDULE (9), INVALIDATE_PREFETCH_COPY_SCHEDULE (10) or INVALIDATE_COPY_SCHEDULE (3).
    pub pcas_action: Option<PcasAction>,
    /// How launches are chained.
    pub chaining: Option<Chaining>,
    /// What ends submissions of queues with [`ReleaseBy::Auto`]. Does not apply to queues that sleep.
    pub release: Option<ReleaseBy>,
    /// Whether the shader caches are invalidated by a method before each chain of launches. `false` leaves it to the
    /// bits of the descriptors, except after a program was loaded.
    pub shader_invalidate: Option<bool>,
    /// Whether the scheduler reads the descriptor of a launch while it waits for earlier work:
    /// [`Chip::early_prefetch`].
    pub early_prefetch: Option<bool>,
    /// Flags of GPU mappings. Only nvgpu has them.
    pub mapping: Option<Mapping>,
    /// Whether each batch and graph begins with an invalidation of system memory in the L2 cache (MEM_OP
    /// L2_SYSMEM_INVALIDATE). Default: no.
    pub l2_invalidate: Option<bool>,
    /// Whether each batch and graph ends with a write-back of the L2 cache (MEM_OP L2_FLUSH_DIRTY). The host engine
    /// then releases, whatever `release` says. Default: no.
    pub l2_flush: Option<bool>,
}

/// Names of the environment variables.
mod variable {
    pub(super) const PCAS_ACTION: &str = "NVGPU_PCAS_ACTION";
    pub(super) const CHAIN: &str = "NVGPU_CHAIN";
    pub(super) const RELEASE: &str = "NVGPU_RELEASE";
    pub(super) const SHADER_INVALIDATE: &str = "NVGPU_SHADER_INVALIDATE";
    pub(super) const EARLY_PREFETCH: &str = "NVGPU_EARLY_PREFETCH";
    pub(super) const MAPPING: &str = "NVGPU_MAPPING";
    pub(super) const L2_INVALIDATE: &str = "NVGPU_L2_INVALIDATE";
    pub(super) const L2_FLUSH: &str = "NVGPU_L2_FLUSH";
}

/// Values of a variable with two states.
const SWITCH: &[(&str, bool)] = &[("0", false), ("1", true)];
/// Values of [`DeviceOptions::pcas_action`].
const ACTIONS: &[(&str, PcasAction)] = &[
    ("9", PcasAction::PrefetchSchedule),
    ("10", PcasAction::InvalidatePrefetchCopySchedule),
    ("3", PcasAction::InvalidateCopySchedule),
];

/// The value of an option: as given, from the environment, or `None`.
///
/// # Errors
///
/// [`Error::Variable`] if the variable has another value than those in `values`.
fn option<T: Copy>(
    given: Option<T>,
    name: &'static str,
    values: &[(&'static str, T)],
    read: impl Fn(&str) -> Option<String>,
) -> Result<Option<T>> {
    if given.is_some() {
        return Ok(given);
    }
    let Some(value) = read(name).filter(|value| !value.is_empty()) else { return Ok(None) };
    let known = values.iter().find(|(text, _)| *text == value);
    let permitted = || values.iter().map(|(text, _)| *text).collect::<Vec<_>>().join(", ");
    known.map(|(_, option)| Some(*option)).ok_or_else(|| Error::Variable {
        name,
        value: value.clone(),
        permitted: permitted(),
    })
}

/// Functions that set one option each.
macro_rules! setters {
    ($($(#[$doc:meta])* $option:ident: $type:ty,)*) => {
        $(
            $(#[$doc])*
            #[must_use]
            pub fn $option(mut self, value: $type) -> Self {
                self.$option = Some(value);
                self
            }
        )*
    };
}

impl DeviceOptions {
    /// Options that change nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    setters! {
        /// Sets the action with which launches are started.
        pcas_action: PcasAction,
        /// Sets how launches are chained.
        chaining: Chaining,
        /// Sets what ends submissions of queues that do not say it themselves.
        release: ReleaseBy,
        /// Sets whether a method invalidates the shader caches before each chain of launches.
        shader_invalidate: bool,
        /// Sets whether the scheduler reads the descriptor of a launch while it waits for earlier work.
        early_prefetch: bool,
        /// Sets the flags of GPU mappings.
        mapping: Mapping,
        /// Sets whether batches and graphs begin with an invalidation of the L2 cache.
        l2_invalidate: bool,
        /// Sets whether batches and graphs end with a write-back of the L2 cache.
        l2_flush: bool,
    }

    /// These options, completed by the process's environment.
    ///
    /// # Errors
    ///
    /// [`Error::Variable`] for a variable with a value that is not permitted.
    pub fn with_environment(self) -> Result<Self> {
        self.completed_by(|name| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned()))
    }

    fn completed_by(self, read: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let releases = [("host", ReleaseBy::Host), ("descriptor", ReleaseBy::Descriptor)];
        let chains =
            [("1", Chaining::Schedule), ("3", Chaining::InvalidateCopySchedule), ("off", Chaining::Off)];
        let mappings =
            [("plain", Mapping::Plain), ("cached", Mapping::L2Cached), ("coherent", Mapping::SystemCoherent)];
        let invalidate = self.shader_invalidate;
        Ok(Self {
            pcas_action: option(self.pcas_action, variable::PCAS_ACTION, ACTIONS, &read)?,
            chaining: option(self.chaining, variable::CHAIN, &chains, &read)?,
            release: option(self.release, variable::RELEASE, &releases, &read)?,
            shader_invalidate: option(invalidate, variable::SHADER_INVALIDATE, SWITCH, &read)?,
            early_prefetch: option(self.early_prefetch, variable::EARLY_PREFETCH, SWITCH, &read)?,
            mapping: option(self.mapping, variable::MAPPING, &mappings, &read)?,
            l2_invalidate: option(self.l2_invalidate, variable::L2_INVALIDATE, SWITCH, &read)?,
            l2_flush: option(self.l2_flush, variable::L2_FLUSH, SWITCH, &read)?,
        })
    }
}

/// The encodings that a device uses: its chip's, with the overrides of its options.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Encodings {
    /// Action with which the scheduler takes the first descriptor of a chain.
    pub pcas_action: PcasAction,
    /// How launches are chained; `None` if the host engine starts each.
    pub chain: Option<Chain>,
    /// Whether the descriptor of the last launch releases the timeline of a queue with [`ReleaseBy::Auto`] that spins.
    pub release_by_descriptor: bool,
    /// Whether a method invalidates the shader caches before each chain of launches.
    pub shader_invalidate: bool,
    /// Whether the scheduler reads the descriptor of a launch while it waits for earlier work.
    pub early_prefetch: bool,
    /// Whether batches and graphs begin with MEM_OP L2_SYSMEM_INVALIDATE.
    pub l2_invalidate: bool,
    /// Whether batches and graphs end with MEM_OP L2_FLUSH_DIRTY.
    pub l2_flush: bool,
    chip: &'static Chip,
}

impl Encodings {
    /// The encodings of `chip` with the overrides of `options`.
    ///
    /// # Errors
    ///
    /// [`Error::PcasAction`] if the action does not launch.
    pub(crate) fn of(chip: &'static Chip, options: &DeviceOptions) -> Result<Self> {
        let pcas_action = options.pcas_action.unwrap_or_else(|| chip.launch_action());
        if !ACTIONS.iter().any(|(_, action)| *action == pcas_action) {
            return Err(Error::PcasAction(pcas_action));
        }
        let by_default = chip.descriptor_release.value.by_default;
        Ok(Self {
            pcas_action,
            chain: options.chaining.map_or_else(|| Some(chip.chain()), |chaining| chain(chip, chaining)),
            release_by_descriptor: match options.release {
                Some(ReleaseBy::Host) => false,
                Some(ReleaseBy::Descriptor) => true,
                Some(ReleaseBy::Auto) | None => by_default,
            },
            shader_invalidate: options.shader_invalidate.unwrap_or(chip.shader_invalidate.value),
            early_prefetch: options.early_prefetch.unwrap_or(chip.early_prefetch.value),
            l2_invalidate: options.l2_invalidate.unwrap_or(false),
            l2_flush: options.l2_flush.unwrap_or(false),
            chip,
        })
    }

    /// The chip that the encodings are for.
    #[must_use]
    #[inline]
    pub fn chip(&self) -> &'static Chip {
        self.chip
    }

    /// Whether a submission can end with a release by its last descriptor if its queue wants one: see
    /// [`DeviceOptions::l2_flush`].
    pub(crate) fn releases_by_descriptor(&self, by: ReleaseBy) -> bool {
        !self.l2_flush
            && match by {
                ReleaseBy::Auto => self.release_by_descriptor,
                ReleaseBy::Host => false,
                ReleaseBy::Descriptor => true,
            }
    }

    /// Each choice as name, value and where it was seen working on this chip.
    #[must_use]
    pub fn report(&self) -> Vec<(&'static str, String, Seen)> {
        let chip = self.chip;
        let (chain, chain_seen) = match self.chain {
            Some(chain) => {
                let prefetch = if chain.prefetch { " with prefetch" } else { "" };
                (format!("action {}{prefetch}", chain.action), chip.chain_seen(chain))
            }
            // Single launches are what every program does.
            None => ("off".to_owned(), chip.launch_action_seen(self.pcas_action)),
        };
        let release = if self.release_by_descriptor { "descriptor" } else { "host" };
        let caches = if self.shader_invalidate { "method" } else { "descriptor bits" };
        let usual = self.shader_invalidate == chip.shader_invalidate.value;
        let early = if self.early_prefetch { "before the wait" } else { "after the wait" };
        let early_seen = match (self.early_prefetch, chip.early_prefetch.value) {
            (true, true) => chip.early_prefetch.seen,
            (true, false) => Seen::Nowhere,
            (false, _) => chip.launch_action_seen(self.pcas_action),
        };
        vec![
            ("pcas_action", self.pcas_action.bits().to_string(), chip.launch_action_seen(self.pcas_action)),
            ("chain", chain, chain_seen),
            ("release", release.to_owned(), chip.descriptor_release.seen),
            (
                "shader_invalidate",
                caches.to_owned(),
                if usual { chip.shader_invalidate.seen } else { Seen::Nowhere },
            ),
            ("early_prefetch", early.to_owned(), early_seen),
        ]
    }
}

/// The encoding of a way to chain. The barrier between chained grids is the one that the chip table has.
fn chain(chip: &Chip, chaining: Chaining) -> Option<Chain> {
    let (schedule, copy) = match chip.descriptor.value {
        QmdVersion::V3_0 => (
            v3_0::DEPENDENT_QMD0_ACTION_QMD_SCHEDULE,
            v3_0::DEPENDENT_QMD0_ACTION_QMD_INVALIDATE_COPY_SCHEDULE,
        ),
        QmdVersion::V4_0 => {
            (v4_0::DEPENDENT_QMD_ACTION_QMD_SCHEDULE, v4_0::DEPENDENT_QMD_ACTION_QMD_INVALIDATE_COPY_SCHEDULE)
        }
    };
    let wanted = match chaining {
        Chaining::Schedule => Chain { action: schedule, prefetch: true, ..chip.chain() },
        Chaining::InvalidateCopySchedule => Chain { action: copy, prefetch: false, ..chip.chain() },
        Chaining::Off => return None,
    };
    // A row may have the action with another prefetch, as Hopper's.
    let known = chip.chains.iter().map(|fact| fact.value).find(|chain| chain.action == wanted.action);
    Some(known.unwrap_or(wanted))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_hal::chip::{SM_8_7, SM_9_0};

    fn completed(variables: &[(&str, &str)]) -> Result<DeviceOptions> {
        let read = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        DeviceOptions::new().completed_by(read)
    }

    #[test]
    fn variables_override_the_chip_and_options_the_variables() {
        let options = completed(&[
            ("NVGPU_PCAS_ACTION", "10"),
            ("NVGPU_CHAIN", "3"),
            ("NVGPU_RELEASE", "descriptor"),
            ("NVGPU_SHADER_INVALIDATE", "0"),
            ("NVGPU_EARLY_PREFETCH", "1"),
            ("NVGPU_MAPPING", "coherent"),
            ("NVGPU_L2_INVALIDATE", "1"),
            ("NVGPU_L2_FLUSH", "1"),
        ])
        .unwrap();
        assert_eq!(options.mapping, Some(Mapping::SystemCoherent));
        let encodings = Encodings::of(&SM_8_7, &options).unwrap();
        assert_eq!(encodings.pcas_action, PcasAction::InvalidatePrefetchCopySchedule);
        assert_eq!(encodings.chain.map(|chain| (chain.action, chain.prefetch)), Some((3, false)));
        assert!(encodings.release_by_descriptor && !encodings.shader_invalidate && encodings.early_prefetch);
        assert!(encodings.l2_invalidate && encodings.l2_flush);
        assert!(!encodings.releases_by_descriptor(ReleaseBy::Descriptor), "a flush precedes the release");

        let given = DeviceOptions::new().chaining(Chaining::Off).pcas_action(PcasAction::PrefetchSchedule);
        let read =
            |name: &str| (name != "NVGPU_L2_FLUSH").then(|| if name == "NVGPU_CHAIN" { "1" } else { "" });
        let options = given.completed_by(|name| read(name).map(str::to_owned)).unwrap();
        assert_eq!(options, given, "what is given or empty is not read");
        assert_eq!(Encodings::of(&SM_8_7, &options).unwrap().chain, None);
    }

    #[test]
    fn a_wrong_value_is_an_error_that_names_variable_and_values() {
        for (name, value, permitted) in [
            ("NVGPU_PCAS_ACTION", "7", "9, 10, 3"),
            ("NVGPU_CHAIN", "on", "1, 3, off"),
            ("NVGPU_RELEASE", "Host", "host, descriptor"),
            ("NVGPU_SHADER_INVALIDATE", "true", "0, 1"),
            ("NVGPU_MAPPING", "0x200", "plain, cached, coherent"),
            ("NVGPU_L2_INVALIDATE", "yes", "0, 1"),
            ("NVGPU_L2_FLUSH", " 1", "0, 1"),
        ] {
            let text = completed(&[(name, value)]).unwrap_err().to_string();
            assert_eq!(text, format!("{name} is '{value}'; permitted values are {permitted}"));
        }
    }

    #[test]
    fn an_action_that_does_not_launch_is_refused() {
        let options = DeviceOptions::new().pcas_action(PcasAction::Invalidate);
        let error = Encodings::of(&SM_8_7, &options).unwrap_err();
        assert!(matches!(error, Error::PcasAction(PcasAction::Invalidate)), "{error}");
    }

    #[test]
    fn reports_say_where_a_choice_was_seen() {
        let seen = |options| {
            let encodings = Encodings::of(&SM_8_7, &options).unwrap();
            encodings.report().into_iter().map(|(_, _, seen)| seen).collect::<Vec<_>>()
        };
        assert_eq!(seen(DeviceOptions::new()), [Seen::Board; 5]);
        assert_eq!(seen(DeviceOptions::new().early_prefetch(true))[4], Seen::Nowhere);
        let other = DeviceOptions::new()
            .pcas_action(PcasAction::InvalidateCopySchedule)
            .chaining(Chaining::InvalidateCopySchedule)
            .shader_invalidate(false);
        let silicon = Seen::Silicon("an H200");
        assert_eq!(seen(other), [silicon, Seen::Model, Seen::Board, Seen::Nowhere, silicon]);
    }

    #[test]
    fn overrides_keep_the_barrier_of_the_chip() {
        let of = |chaining| {
            Encodings::of(&SM_9_0, &DeviceOptions::new().chaining(chaining)).unwrap().chain.unwrap()
        };
        assert_eq!(of(Chaining::InvalidateCopySchedule), SM_9_0.chain());
        let schedule = of(Chaining::Schedule);
        assert_eq!((schedule.action, schedule.barrier), (1, SM_9_0.chain().barrier));
    }
}
