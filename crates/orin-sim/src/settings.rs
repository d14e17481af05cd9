//! Settings of the model as a JSON file, so that the answers of one board can be loaded on any machine.
//!
//! `orin bring-up --replay` writes such a file from a report. Programs that open the software Orin load it if the
//! environment variable [`SETTINGS_VARIABLE`] names it.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use cubin::FileKind;
use kernel_door::RequestInfo;
use nvgpu_sys::ctrl::Characteristics;
use nvgpu_sys::{Release, UnknownRelease};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::board::UnknownBoard;
use crate::config::{Config, MmuOrder, Refusal};
use crate::quirks::{BrokenChain, Quirks};

/// Environment variable with the path of a settings file.
pub const SETTINGS_VARIABLE: &str = "ORIN_SIM_SETTINGS";
/// Largest settings file in bytes.
const MOST_BYTES: u64 = 1 << 20;
/// Largest number of refusals and durations in a file.
const MOST_ITEMS: usize = 1000;
/// Longest duration of a request in milliseconds.
const LONGEST_MS: u64 = 60_000;
/// Largest errno of Linux (`MAX_ERRNO`).
const MAX_ERRNO: i32 = 4095;

/// A settings file that cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SettingsError {
    /// The file cannot be read.
    #[error("cannot read the settings {path}: {source}")]
    File {
        /// The file.
        path: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The file is larger than 1 MiB.
    #[error("the settings have more than {MOST_BYTES} bytes")]
    TooLarge,
    /// A file has an error.
    #[error("{path}: {error}")]
    In {
        /// The file.
        path: String,
        /// The error.
        error: Box<SettingsError>,
    },
    /// The file is not JSON.
    #[error("the settings are JSON, not {0}")]
    Kind(FileKind),
    /// The text is not valid JSON, or has unknown or missing fields.
    #[error("the settings are not valid: {0}")]
    Syntax(#[from] serde_json::Error),
    /// `ORIN_SIM_BOARD` names no board.
    #[error("ORIN_SIM_BOARD: {0}")]
    Board(#[from] UnknownBoard),
    /// `ORIN_SIM_KERNEL`, or the file, names no release.
    #[error("ORIN_SIM_KERNEL, or the settings' kernel: {0}")]
    Release(#[from] UnknownRelease),
    /// An environment variable has a value that cannot be used.
    #[error("{variable} is '{value}': {error}")]
    Variable {
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: String,
        /// What is wrong.
        error: String,
    },
    /// There is no `/proc`, and this process may not mount one for itself.
    #[error(
        "the software Orin needs /proc, which is missing here: mount it (mount -t proc proc /proc), or run as root"
    )]
    NoProc,
    /// The software Orin cannot be started.
    #[error("{0}")]
    Start(#[from] Errno),
    /// A value is outside its range.
    #[error("the settings' {field} {value} is not valid: {rule}")]
    Value {
        /// The field.
        field: &'static str,
        /// Its value.
        value: String,
        /// What it must be.
        rule: &'static str,
    },
}

impl SettingsError {
    pub(crate) fn variable(variable: &'static str, value: &str, error: impl ToString) -> Self {
        Self::Variable { variable, value: value.to_owned(), error: error.to_string() }
    }
}

/// What can be set; an absent field keeps the value of the configuration.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use orin_sim::{Config, Settings};
///
/// let mut config = Config::default();
/// Settings::parse(br#"{ "memory_bytes": 1073741824 }"#)?.apply(&mut config)?;
/// assert_eq!(config.memory_bytes, 1 << 30);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
#[non_exhaustive]
pub struct Settings {
    /// Name of the release: [`Config::with_release`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kernel: Option<String>,
    /// System memory in bytes: [`Config::memory_bytes`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// Longest free range of system memory in bytes: [`Config::largest_free_range`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub largest_free_range: Option<u64>,
    /// The bytes of GET_CHARACTERISTICS, as hexadecimal digits, in the layout of either release:
    /// [`Config::characteristics`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub characteristics: Option<String>,
    /// TPCs per GPC position: [`Config::tpc_masks`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tpc_masks: Option<[u32; 2]>,
    /// Time that the GPU needs to power up, in milliseconds: [`FaultPlan::power_up`](crate::FaultPlan::power_up).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power_up_ms: Option<u64>,
    /// Durations of requests in milliseconds, by name: [`Config::request_times`].
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub request_ms: BTreeMap<String, u64>,
    /// Delay of the kernel's lines about an SM's MMU fault after notifier 13, in milliseconds:
    /// [`FaultPlan::late_lines`](crate::FaultPlan::late_lines), with [`MmuOrder::SmFirst`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late_mmu_lines_ms: Option<u64>,
    /// Requests that fail: [`Config::refusals`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub refusals: Vec<RefusedRequest>,
    /// Time from the GPU's interrupt to the event, in microseconds: [`Config::event_latency`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub event_us: Option<u64>,
    /// Time that host needs for each 128 bytes of a pushbuffer, in microseconds:
    /// [`FaultPlan::slow_fetch`](crate::FaultPlan::slow_fetch).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fetch_us: Option<u64>,
    /// PCAS actions without effect, by number: [`Quirks::inert_pcas_actions`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub inert_pcas_actions: Vec<u8>,
    /// PCAS actions whose launch never ends, by number: [`Quirks::hanging_pcas_actions`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hanging_pcas_actions: Vec<u8>,
    /// Encodings of dependent launches that do not work: [`Quirks::broken_chains`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub broken_chains: Vec<BrokenChain>,
}

/// A request that always fails.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RefusedRequest {
    /// Name of the request in the kernel's header.
    pub request: String,
    /// The words of the argument that it fails for; any argument if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub argument: Option<Vec<u32>>,
    /// The errno.
    pub errno: i32,
}

impl RefusedRequest {
    /// A request that fails with `errno` for the argument; for any argument if that is `None`.
    pub fn new(request: &str, argument: Option<Vec<u32>>, errno: i32) -> Self {
        Self { request: request.to_owned(), argument, errno }
    }
}

/// The request with a name.
fn named(name: &str) -> Result<RequestInfo, SettingsError> {
    let found = nvgpu_sys::requests().find(|info| info.name == name);
    found.copied().ok_or_else(|| invalid("request", name, "no header of the driver has it"))
}

fn invalid(field: &'static str, value: impl ToString, rule: &'static str) -> SettingsError {
    SettingsError::Value { field, value: value.to_string(), rule }
}

/// A duration of at most a minute.
fn milliseconds(field: &'static str, ms: u64) -> Result<Duration, SettingsError> {
    if ms > LONGEST_MS {
        return Err(invalid(field, ms, "it must be at most 60000"));
    }
    Ok(Duration::from_millis(ms))
}

/// As [`milliseconds`], in microseconds.
fn microseconds(field: &'static str, us: u64) -> Result<Duration, SettingsError> {
    if us > LONGEST_MS * 1000 {
        return Err(invalid(field, us, "it must be at most 60000000"));
    }
    Ok(Duration::from_micros(us))
}

impl Settings {
    /// Reads a file of at most 1 MiB.
    ///
    /// # Errors
    ///
    /// [`SettingsError::File`]; [`SettingsError::In`] with [`SettingsError::TooLarge`], [`SettingsError::Kind`] or
    /// [`SettingsError::Syntax`].
    pub fn read(path: &Path) -> Result<Self, SettingsError> {
        let failed = |source| SettingsError::File { path: path.display().to_string(), source };
        let mut text = Vec::new();
        let file = std::fs::File::open(path).map_err(failed)?;
        file.take(MOST_BYTES + 1).read_to_end(&mut text).map_err(failed)?;
        let inside = |error| SettingsError::In { path: path.display().to_string(), error: Box::new(error) };
        Self::parse(&text).map_err(inside)
    }

    /// Parses the text of a file.
    ///
    /// # Errors
    ///
    /// [`SettingsError::TooLarge`], [`SettingsError::Kind`] and [`SettingsError::Syntax`].
    pub fn parse(text: &[u8]) -> Result<Self, SettingsError> {
        // CAST: a usize has at most 64 bits.
        if text.len() as u64 > MOST_BYTES {
            return Err(SettingsError::TooLarge);
        }
        let kind = FileKind::of(text);
        if !matches!(text.trim_ascii_start().first(), Some(b'{' | b'[')) {
            return Err(SettingsError::Kind(kind));
        }
        Ok(serde_json::from_slice(text)?)
    }

    /// The text of a file.
    pub fn to_json(&self) -> String {
        // PANIC: strings and numbers have a JSON form; the maps' keys are strings.
        let mut text = serde_json::to_string_pretty(self).expect("settings have a JSON form");
        text.push('\n');
        text
    }

    /// Hexadecimal digits for [`Settings::characteristics`], in the layout of `release`.
    pub fn characteristics_digits(characteristics: &Characteristics, release: Release) -> String {
        characteristics.write(release).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Changes `config`.
    ///
    /// # Errors
    ///
    /// [`SettingsError::Value`]; the configuration is unchanged then.
    pub fn apply(&self, config: &mut Config) -> Result<(), SettingsError> {
        let mut changed = config.clone();
        if let Some(name) = &self.kernel {
            changed = changed.with_release(name.parse()?);
        }
        if let Some(bytes) = self.memory_bytes {
            let possible = bytes.is_multiple_of(4096) && (1 << 28..=1 << 40).contains(&bytes);
            let rule = "it must be a multiple of 4096 from 256 MiB to 1 TiB";
            changed.memory_bytes =
                Some(bytes).filter(|_| possible).ok_or_else(|| invalid("memory_bytes", bytes, rule))?;
        }
        changed.largest_free_range = self.largest_free_range.unwrap_or(changed.largest_free_range);
        if let Some(digits) = &self.characteristics {
            changed.characteristics = characteristics(digits)?;
        }
        if let Some(masks) = self.tpc_masks {
            let rule = "a GPC of ga10b has at most 8 TPCs, and one TPC must be present";
            if masks == [0, 0] || masks.iter().any(|mask| mask >> 8 != 0) {
                return Err(invalid("tpc_masks", format!("{masks:?}"), rule));
            }
            changed.tpc_masks = masks;
        }
        if let Some(ms) = self.power_up_ms {
            changed.faults.power_up = milliseconds("power_up_ms", ms)?;
        }
        if let Some(ms) = self.late_mmu_lines_ms {
            changed.faults.mmu_order = MmuOrder::SmFirst;
            changed.faults.late_lines = milliseconds("late_mmu_lines_ms", ms)?;
        }
        let items = self.request_ms.len() + self.refusals.len();
        if items > MOST_ITEMS {
            return Err(invalid("number of requests", items, "it must be at most 1000"));
        }
        for (name, ms) in &self.request_ms {
            changed.request_times.insert(named(name)?.code, milliseconds("request_ms", *ms)?);
        }
        for refusal in &self.refusals {
            changed.refusals.push(refusal.parse()?);
        }
        if let Some(us) = self.event_us {
            changed.event_latency = microseconds("event_us", us)?;
        }
        if let Some(us) = self.fetch_us {
            changed.faults.slow_fetch = microseconds("fetch_us", us)?;
        }
        self.quirks(&mut changed.quirks)?;
        *config = changed;
        Ok(())
    }
}

impl Settings {
    /// Adds the encodings that do not work.
    fn quirks(&self, quirks: &mut Quirks) -> Result<(), SettingsError> {
        let actions = [
            ("inert_pcas_actions", &self.inert_pcas_actions, &mut quirks.inert_pcas_actions),
            ("hanging_pcas_actions", &self.hanging_pcas_actions, &mut quirks.hanging_pcas_actions),
        ];
        for (field, numbers, target) in actions {
            if let Some(action) = numbers.iter().find(|action| **action > 15) {
                return Err(invalid(field, action, "the field has 4 bits"));
            }
            target.extend(numbers);
        }
        if let Some(chain) = self.broken_chains.iter().find(|chain| chain.action > 7) {
            return Err(invalid("broken_chains", chain.action, "the action has 3 bits"));
        }
        quirks.broken_chains.extend(&self.broken_chains);
        Ok(())
    }
}

impl RefusedRequest {
    fn parse(&self) -> Result<Refusal, SettingsError> {
        if !(1..=MAX_ERRNO).contains(&self.errno) {
            return Err(invalid("errno", self.errno, "it must be from 1 to 4095"));
        }
        let info = named(&self.request)?;
        let size = (info.code >> 16 & 0x3fff) as usize;
        if self.argument.as_ref().is_some_and(|words| words.len() != size / 4) {
            return Err(invalid("argument", &self.request, "it must have the request's number of words"));
        }
        let errno = Errno::from_raw_os_error(self.errno);
        Ok(Refusal { request: info.code, argument: self.argument.clone(), errno })
    }
}

fn characteristics(digits: &str) -> Result<Characteristics, SettingsError> {
    let rule = "it must be the struct's bytes, as pairs of hexadecimal digits";
    let refuse = || invalid("characteristics", format!("({} digits)", digits.len()), rule);
    let pairs = digits.as_bytes().chunks(2).map(|pair| {
        let text = core::str::from_utf8(pair).ok()?;
        u8::from_str_radix(text, 16)
            .ok()
            .filter(|_| pair.len() == 2 && pair.iter().all(u8::is_ascii_hexdigit))
    });
    let bytes: Vec<u8> = pairs.collect::<Option<_>>().ok_or_else(refuse)?;
    let release = Characteristics::release_of(bytes.len() as u64).ok_or_else(refuse)?;
    Ok(Characteristics::read(&bytes, release))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::agx_orin;
    use crate::quirks::ChainEffect;
    use nvgpu_sys::channel;

    fn error(settings: &str) -> String {
        let mut config = Config::default();
        let settings = Settings::parse(settings.as_bytes());
        settings.and_then(|settings| settings.apply(&mut config)).unwrap_err().to_string()
    }

    #[test]
    fn settings_survive_a_file_and_change_the_configuration() {
        let settings = Settings {
            kernel: Some("r39.2".to_owned()),
            memory_bytes: Some(32 << 30),
            largest_free_range: Some(64 << 20),
            characteristics: Some(Settings::characteristics_digits(
                &Characteristics { max_freq: 918_000_000, ..agx_orin() },
                Release::R36_4_3,
            )),
            tpc_masks: Some([0b111, 0b1]),
            power_up_ms: Some(90),
            late_mmu_lines_ms: Some(150),
            request_ms: BTreeMap::from([("NVGPU_IOCTL_CHANNEL_ALLOC_OBJ_CTX".to_owned(), 12)]),
            refusals: vec![RefusedRequest::new(
                "NVGPU_IOCTL_CHANNEL_SET_PREEMPTION_MODE",
                Some(vec![0, 4]),
                22,
            )],
            event_us: Some(500),
            fetch_us: Some(3),
            inert_pcas_actions: vec![3],
            hanging_pcas_actions: vec![10],
            broken_chains: vec![BrokenChain { action: 3, prefetch: false, effect: ChainEffect::Hang }],
        };
        let read = Settings::parse(settings.to_json().as_bytes()).unwrap();
        assert_eq!(read, settings);
        let mut config = Config::default();
        read.apply(&mut config).unwrap();
        assert_eq!((config.release, config.characteristics.gpu_va_bit_count), (Release::R39_2, 40));
        assert_eq!((config.memory_bytes, config.tpc_masks), (32 << 30, [0b111, 0b1]));
        assert_eq!(config.largest_free_range, 64 << 20);
        assert_eq!(config.characteristics.max_freq, 918_000_000);
        assert_eq!(config.faults.slow_fetch, Duration::from_micros(3));
        assert_eq!(config.faults.power_up, Duration::from_millis(90));
        assert_eq!(config.faults.mmu_order, MmuOrder::SmFirst);
        assert_eq!(config.faults.late_lines, Duration::from_millis(150));
        assert_eq!(config.request_times[&channel::code::ALLOC_OBJ_CTX], Duration::from_millis(12));
        assert_eq!(
            (config.refusals[0].errno, config.event_latency),
            (Errno::INVAL, Duration::from_micros(500))
        );
        assert_eq!(
            config.quirks,
            Quirks {
                inert_pcas_actions: vec![3],
                hanging_pcas_actions: vec![10],
                broken_chains: settings.broken_chains
            }
        );
    }

    #[test]
    fn what_cannot_be_is_refused_by_name() {
        for (text, words) in [
            ("[", "not valid"),
            ("{\"memory\": 1}", "unknown field"),
            ("{\"kernel\": \"r40\"}", "known are r36.4.3, r36.4.7, r39.2"),
            ("{\"memory_bytes\": 5000}", "multiple of 4096"),
            ("{\"memory_bytes\": 4611686018427387904}", "multiple of 4096"),
            ("{\"tpc_masks\": [0, 0]}", "one TPC"),
            ("{\"tpc_masks\": [4096, 0]}", "at most 8"),
            ("{\"characteristics\": \"00\"}", "bytes"),
            ("{\"characteristics\": \"+0zz\"}", "hexadecimal"),
            ("{\"request_ms\": {\"NVGPU_X\": 1}}", "NVGPU_X"),
            ("{\"request_ms\": {\"NVMAP_IOC_FREE\": 60001}}", "60000"),
            ("{\"refusals\": [{\"request\": \"NVMAP_IOC_FREE\", \"errno\": 0}]}", "4095"),
            ("{\"refusals\": [{\"request\": \"NVMAP_IOC_FREE\", \"errno\": 5, \"argument\": [1]}]}", "words"),
            ("{\"power_up_ms\": 60001}", "60000"),
            ("{\"inert_pcas_actions\": [16]}", "4 bits"),
            ("{\"hanging_pcas_actions\": [3, 16]}", "4 bits"),
            ("{\"event_us\": 60000001}", "60000000"),
            ("{\"fetch_us\": 60000001}", "60000000"),
            ("{\"broken_chains\": [{\"action\": 8, \"prefetch\": true, \"effect\": \"hang\"}]}", "3 bits"),
            ("{\"broken_chains\": [{\"action\": 1, \"prefetch\": true, \"effect\": \"late\"}]}", "late"),
        ] {
            assert!(error(text).contains(words), "{text}: {}", error(text));
        }
        let many: Vec<_> = (0..=MOST_ITEMS).map(|_| "{\"request\":\"NVMAP_IOC_FREE\",\"errno\":5}").collect();
        assert!(error(&format!("{{\"refusals\":[{}]}}", many.join(","))).contains("at most 1000"));
        let large = vec![b' '; usize::try_from(MOST_BYTES).unwrap() + 1];
        assert!(matches!(Settings::parse(&large), Err(SettingsError::TooLarge)));
    }
}
