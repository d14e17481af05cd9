//! The process' view of the machine: its GPUs and objects, from `cuInit` on.

use core::sync::atomic::{AtomicBool, Ordering};
use std::env;
use std::sync::{Once, OnceLock};

use parking_lot::Mutex;
use tegra_hcq::{Device, DeviceKind, DeviceName};

use crate::code::{Code, Failure, Result};
use crate::memory::Memory;
use crate::objects::Objects;
use crate::texture::Textures;
use crate::version::version;

/// Environment variable that names the devices: `sim`, `nvgpu`, `nvrm:1`, several with commas.
pub const DEVICES: &str = "ORIN_CUDA_DEVICE";
/// CUDA's own variable: which of the devices the program sees, as ordinals with commas.
const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";

/// One GPU.
#[derive(Debug)]
pub struct Gpu {
    /// Its number, `CUdevice`.
    pub ordinal: usize,
    /// Its name.
    pub name: DeviceName,
    device: Mutex<Option<Device>>,
    /// Allocations and what else pointers can name.
    pub memory: Memory,
    /// Texture and surface objects.
    pub textures: Textures,
}

impl Gpu {
    fn new(ordinal: usize, name: DeviceName) -> Self {
        Self {
            ordinal,
            name,
            device: Mutex::default(),
            memory: Memory::default(),
            textures: Textures::default(),
        }
    }

    /// The GPU, opened at the first call.
    ///
    /// # Errors
    ///
    /// If it cannot be opened.
    pub fn device(&self) -> Result<Device> {
        let mut device = self.device.lock();
        if let Some(device) = &*device {
            return Ok(device.clone());
        }
        let opened = Device::open(self.name).map_err(|error| {
            let reason = format!("opening {}: {error}", self.name);
            Failure::new(Code::DeviceUnavailable, reason)
        })?;
        Ok(device.insert(opened).clone())
    }

    /// The GPU, if it is open.
    #[cfg(feature = "sim")]
    pub(crate) fn opened(&self) -> Option<Device> {
        self.device.lock().clone()
    }
}

/// What `cuInit` has found.
#[derive(Debug)]
pub struct Driver {
    /// The GPUs, by ordinal.
    pub gpus: Vec<Gpu>,
    /// All objects.
    pub objects: Objects,
}

static DRIVER: OnceLock<Driver> = OnceLock::new();
/// Held while the GPUs are listed.
static FIRST: Mutex<()> = Mutex::new(());
/// Whether this process is a child that was forked after [`init`]. CUDA's state does not survive a fork.
static FORKED: AtomicBool = AtomicBool::new(false);

extern "C" fn forked() {
    FORKED.store(true, Ordering::Relaxed);
}

fn check_fork() -> Result<()> {
    if FORKED.load(Ordering::Relaxed) {
        return Err(Failure::new(
            Code::NotInitialized,
            "CUDA was initialised before this process was forked",
        ));
    }
    Ok(())
}

/// Lists the GPUs, once per process.
///
/// # Errors
///
/// [`Code::InvalidValue`] if `flags` is not 0 or there is no [`version()`], [`Code::NoDevice`] if there is no GPU or
/// one cannot be opened, [`Code::InvalidDevice`] if [`DEVICES`] names none.
pub fn init(flags: u32) -> Result<()> {
    if flags != 0 {
        return Err(Failure::invalid(format!("cuInit takes the flags 0, not {flags}")));
    }
    check_fork()?;
    static WATCH: Once = Once::new();
    // Before the lock, which a child might find locked.
    WATCH.call_once(|| {
        // SAFETY: the handler only stores to a static atomic, which is permitted in a child of a threaded process.
        unsafe { libc::pthread_atfork(None, None, Some(forked)) };
    });
    let _first = FIRST.lock();
    if DRIVER.get().is_none() {
        version()?;
        let names = visible(names()?, env::var(VISIBLE).ok().as_deref());
        if names.is_empty() {
            return Err(Failure::new(Code::NoDevice, "no GPU is visible"));
        }
        let gpus = names.into_iter().enumerate().map(|(ordinal, name)| Gpu::new(ordinal, name));
        let gpus: Vec<Gpu> = gpus.collect();
        gpus.iter().try_for_each(try_hardware)?;
        let _ = DRIVER.set(Driver { gpus, objects: Objects::default() });
    }
    Ok(())
}

/// Opens a GPU whose kind is given, as it may be absent: `auto` chooses one that is there.
fn try_hardware(gpu: &Gpu) -> Result<()> {
    if matches!(gpu.name.kind, DeviceKind::Auto | DeviceKind::Sim) {
        return Ok(());
    }
    gpu.device().map(drop).map_err(|failure| {
        let failure = Failure { code: Code::NoDevice, ..failure };
        // Few programs print more than the number.
        static SAID: Once = Once::new();
        SAID.call_once(|| eprintln!("libcuda (orin): {failure}"));
        failure
    })
}

fn names() -> Result<Vec<DeviceName>> {
    let chosen = env::var(DEVICES).unwrap_or_default();
    if !chosen.trim().is_empty() {
        return chosen.split(',').map(|name| Ok(name.trim().parse()?)).collect();
    }
    let all = Device::list(DeviceKind::Auto)?;
    // A board has one GPU, and so has the software Orin unless several are asked for.
    Ok(all
        .into_iter()
        .enumerate()
        .filter(|(at, name)| *at == 0 || name.kind != DeviceKind::Sim)
        .map(|(_, name)| name)
        .collect())
}

/// The devices that [`VISIBLE`] leaves: those before the first entry that names none.
fn visible(names: Vec<DeviceName>, chosen: Option<&str>) -> Vec<DeviceName> {
    let Some(chosen) = chosen else { return names };
    let entries =
        chosen.split(',').map_while(|entry| names.get(entry.trim().parse::<usize>().ok()?).copied());
    entries.collect()
}

/// The driver.
///
/// # Errors
///
/// [`Code::NotInitialized`] before [`init`], and in a process that was forked after it.
pub fn driver() -> Result<&'static Driver> {
    check_fork()?;
    DRIVER.get().ok_or_else(|| Code::NotInitialized.into())
}

impl Driver {
    /// The GPU with an ordinal.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidDevice`] if there is none.
    pub fn gpu(&self, ordinal: i32) -> Result<&Gpu> {
        let found = usize::try_from(ordinal).ok().and_then(|ordinal| self.gpus.get(ordinal));
        found.ok_or_else(|| {
            Failure::new(Code::InvalidDevice, format!("device {ordinal} of {}", self.gpus.len()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visible_devices_end_at_the_first_entry_that_names_none() {
        let names: Vec<_> = (0..3).map(|index| DeviceKind::Nvrm.nth(index)).collect();
        let of = |chosen: &str| {
            visible(names.clone(), Some(chosen)).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(visible(names.clone(), None), names);
        assert_eq!(of("2, 0"), ["nvrm:2", "nvrm"]);
        assert_eq!(of("1,7,0"), ["nvrm:1"]);
        assert!(of("").is_empty() && of("-1").is_empty());
    }
}
