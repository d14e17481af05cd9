//! Characteristics of the GPU and its driver.

use gpu_hal::chip::{Classes, SM_8_7};
use nvgpu_sys::Release;
use nvgpu_sys::ctrl::{self, CharacteristicsAnswer, GpuFlags};
use nvgpu_sys::{address_space, channel, tsg};

use crate::error::Error;

/// Classes of ga10b (`hal_ga10b_litter.c`).
const CLASSES: Classes = SM_8_7.classes.value;
/// Compute class of ga10b.
pub const AMPERE_COMPUTE_B: u32 = CLASSES.compute.number;
/// Host class of ga10b.
pub const AMPERE_CHANNEL_GPFIFO_B: u32 = CLASSES.channel.number;
/// Copy class of ga10b.
pub const AMPERE_DMA_COPY_B: u32 = CLASSES.copy.number;

/// SMs in a TPC of ga10b (`ga10b_get_litter_value`).
pub const SMS_PER_TPC: u32 = 2;

/// Properties of a GPU that this crate supports.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::sync::Arc;
/// # let door: Arc<dyn kernel_door::Door> = Arc::new(orin_sim::SoftwareOrin::new(orin_sim::Config::default())?);
/// # let gpu = nvgpu_channel::Gpu::open(&door)?;
/// let characteristics = gpu.characteristics();
/// assert_eq!(characteristics.chip_name(), "ga10b");
/// assert_eq!(characteristics.sm_version(), (8, 7));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Characteristics {
    raw: ctrl::Characteristics,
    interface: Release,
    sm_count: u32,
}

/// Features that user-mode submission requires.
const NEEDED: GpuFlags = GpuFlags::SUPPORT_TSG
    .union(GpuFlags::SUPPORT_TSG_SUBCONTEXTS)
    .union(GpuFlags::SUPPORT_USERMODE_SUBMIT)
    .union(GpuFlags::SUPPORT_DETERMINISTIC_SUBMIT_NO_JOBTRACKING)
    .union(GpuFlags::SUPPORT_COMPUTE);

/// The engines with their class numbers as reported and as known.
fn classes(raw: &ctrl::Characteristics) -> [(&'static str, u32, u32); 3] {
    [
        ("compute", raw.compute_class, AMPERE_COMPUTE_B),
        ("host", raw.gpfifo_class, AMPERE_CHANNEL_GPFIFO_B),
        ("copy", raw.dma_copy_class, AMPERE_DMA_COPY_B),
    ]
}

/// Whether flags and name of the chip are those of a driver. In another layout, the flags are classes or page sizes,
/// and the name begins with a zero.
fn is_plausible(raw: &ctrl::Characteristics) -> bool {
    GpuFlags::from_bits_retain(raw.flags).contains(GpuFlags::SUPPORT_TSG)
        && raw.chipname[0].is_ascii_alphabetic()
}

/// Returns the driver's answer, and the release whose layout it has. The size of the kernel's struct names the layout;
/// flags, name and classes confirm it. If they do not, another known layout that they confirm is taken. The answer of
/// another chip has unknown classes and is returned if flags and name confirm the size's layout.
pub(crate) fn decode(answer: &CharacteristicsAnswer) -> Result<(ctrl::Characteristics, Release), Error> {
    let read = |release| (ctrl::Characteristics::read(&answer.bytes, release), release);
    let by_size = ctrl::Characteristics::release_of(answer.size);
    // A struct of unknown size is most probably a later one.
    let first = by_size.unwrap_or(Release::R39_2);
    let other = if first == Release::R39_2 { Release::R36_4_3 } else { Release::R39_2 };
    let fits = |raw: &ctrl::Characteristics| {
        is_plausible(raw) && classes(raw).iter().all(|(_, found, known)| found == known)
    };
    if let Some(seen) = [first, other].map(read).into_iter().find(|(raw, _)| fits(raw)) {
        if by_size != Some(seen.1) {
            tracing::warn!(bytes = answer.size, layout = %seen.1, "characteristics have an unknown size");
        }
        return Ok(seen);
    }
    let seen = read(first);
    if by_size.is_some() && is_plausible(&seen.0) {
        return Ok(seen);
    }
    Err(Error::UnknownLayout { bytes: answer.size, release: by_size })
}

impl Characteristics {
    /// Checks the characteristics that the driver reports in the layout of `interface`.
    pub(crate) fn check(raw: ctrl::Characteristics, interface: Release) -> Result<Self, Error> {
        for (engine, found, known) in classes(&raw) {
            if found != known {
                return Err(Error::UnknownClass { engine, found, known });
            }
        }
        let missing = NEEDED - GpuFlags::from_bits_retain(raw.flags);
        if !missing.is_empty() {
            let names: Vec<_> = missing.iter_names().map(|(name, _)| name).collect();
            return Err(Error::MissingFeature { missing: names.join(", ") });
        }
        for (node, last, request, code) in [
            ("control", raw.gpu_ioctl_nr_last, ctrl::GET_GPU_TIME.name(), ctrl::code::GET_GPU_TIME),
            (
                "address-space",
                raw.as_ioctl_nr_last,
                address_space::MAP_BUFFER_EX.name(),
                address_space::code::MAP_BUFFER_EX,
            ),
            ("TSG", raw.tsg_ioctl_nr_last, tsg::DELETE_SUBCONTEXT.name(), tsg::code::DELETE_SUBCONTEXT),
            ("channel", raw.ioctl_channel_nr_last, channel::SETUP_BIND.name(), channel::code::SETUP_BIND),
        ] {
            // CAST: the request number is the code's low byte.
            let needed = (code & 0xff) as i16;
            if last < needed {
                return Err(Error::DriverTooOld { node, request, needed, last });
            }
        }
        if raw.gpu_va_bit_count < 40 {
            return Err(Error::NarrowAddresses { bits: raw.gpu_va_bit_count });
        }
        Ok(Self { raw, interface, sm_count: raw.num_gpc * raw.num_tpc_per_gpc * SMS_PER_TPC })
    }

    pub(crate) fn set_sm_count(&mut self, sm_count: u32) {
        self.sm_count = sm_count;
    }

    /// The characteristics that the driver reported.
    pub fn raw(&self) -> &ctrl::Characteristics {
        &self.raw
    }

    /// Oldest known release with the layout in which the driver reported them.
    pub fn interface(&self) -> Release {
        self.interface
    }

    /// Name of the chip, e.g. `ga10b`.
    pub fn chip_name(&self) -> String {
        let name = self.raw.chipname.split(|byte| *byte == 0).next().unwrap_or_default();
        String::from_utf8_lossy(name).into_owned()
    }

    /// Class number of the compute engine.
    pub fn compute_class(&self) -> u32 {
        self.raw.compute_class
    }

    /// Class number of the host engine, which processes the rings.
    pub fn gpfifo_class(&self) -> u32 {
        self.raw.gpfifo_class
    }

    /// Class number of the copy engine.
    pub fn copy_class(&self) -> u32 {
        self.raw.dma_copy_class
    }

    /// SM version, major and minor: (8, 7) on Orin.
    pub fn sm_version(&self) -> (u32, u32) {
        (self.raw.sm_arch_sm_version >> 8, self.raw.sm_arch_sm_version & 0xff)
    }

    /// GPCs present.
    pub fn gpc_count(&self) -> u32 {
        self.raw.num_gpc
    }

    /// TPCs in each GPC.
    pub fn tpcs_per_gpc(&self) -> u32 {
        self.raw.num_tpc_per_gpc
    }

    /// Number of streaming multiprocessors, from NUM_VSMS. If the driver lacks that request: twice the
    /// number of TPCs in the TPC masks (a ga10b TPC has two SMs), or twice GPCs times TPCs per GPC.
    pub fn sm_count(&self) -> u32 {
        self.sm_count
    }

    /// L2 cache in bytes.
    pub fn l2_bytes(&self) -> u64 {
        self.raw.l2_cache_size
    }

    /// Maximum clock of the GPCs in Hz.
    pub fn max_frequency_hz(&self) -> u64 {
        self.raw.max_freq
    }

    /// Maximum number of GPFIFO entries; 2^28 if the driver does not report it.
    pub fn max_gpfifo_entries(&self) -> u32 {
        if self.raw.max_gpfifo_entries == 0 { 1 << 28 } else { self.raw.max_gpfifo_entries }
    }

    /// Features of the GPU and its driver, including bits without a name.
    pub fn flags(&self) -> GpuFlags {
        GpuFlags::from_bits_retain(self.raw.flags)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fields that this crate reads, with the values of an Orin.
    fn orin() -> ctrl::Characteristics {
        ctrl::Characteristics {
            num_gpc: 1,
            num_tpc_per_gpc: 4,
            l2_cache_size: 4 << 20,
            flags: 0x01bf_5fff_7f5d_035d,
            compute_class: 0xc7c0,
            gpfifo_class: 0xc76f,
            dma_copy_class: 0xc7b5,
            sm_arch_sm_version: 0x807,
            gpu_ioctl_nr_last: 44,
            tsg_ioctl_nr_last: 21,
            ioctl_channel_nr_last: 128,
            as_ioctl_nr_last: 14,
            gpu_va_bit_count: 40,
            chipname: *b"ga10b\0\0\0",
            ..ctrl::Characteristics::default()
        }
    }

    fn check(raw: ctrl::Characteristics) -> Result<Characteristics, Error> {
        Characteristics::check(raw, Release::R36_4_3)
    }

    /// The answer of a kernel with the layout of `release`, whose struct has `size` bytes.
    fn answer(raw: &ctrl::Characteristics, release: Release, size: u64) -> CharacteristicsAnswer {
        let mut bytes = [0; size_of::<ctrl::Characteristics>()];
        let written = raw.write(release);
        let len = written.len().min(usize::try_from(size).unwrap());
        bytes[..len].copy_from_slice(&written[..len]);
        CharacteristicsAnswer { bytes, size }
    }

    /// Every known size, one never seen, and layouts that are not those of their size.
    #[test]
    fn the_layout_follows_from_the_size_and_is_confirmed() {
        use Release::{R36_4_3, R39_2};
        let raw = ctrl::Characteristics { huge_page_size: 0, device_instance_id: 7, ..orin() };
        for (layout, size) in [
            (R36_4_3, 328),
            (R39_2, 336),
            (R39_2, 344),
            (R39_2, 352),
            (R36_4_3, 332),
            (R36_4_3, 344),
            (R39_2, 328),
        ] {
            let seen = decode(&answer(&raw, layout, size)).unwrap();
            let tail = if layout == R39_2 && size == 328 { 0 } else { 7 };
            assert_eq!(seen, (ctrl::Characteristics { device_instance_id: tail, ..raw }, layout), "{size}");
        }
        let newer = ctrl::Characteristics { huge_page_size: 2 << 20, hw_num_channels: 512, ..raw };
        assert_eq!(decode(&answer(&newer, R39_2, 344)).unwrap().0.hw_num_channels, 512);
    }

    #[test]
    fn an_unknown_layout_is_reported_with_its_size_and_release() {
        let shifted = CharacteristicsAnswer { bytes: [0x5a; 344], size: 328 };
        let text = decode(&shifted).unwrap_err().to_string();
        for words in ["328 bytes", "as r36.4.3 does", "/etc/nv_tegra_release"] {
            assert!(text.contains(words), "{text}");
        }
        for size in [0, 400] {
            let error = decode(&CharacteristicsAnswer { bytes: [0; 344], size }).unwrap_err();
            assert!(
                matches!(error, Error::UnknownLayout { bytes, release: None } if bytes == size),
                "{error}"
            );
            assert!(error.to_string().contains("as no known release does"), "{error}");
        }
        // Another chip has other classes in a known layout.
        let xavier = ctrl::Characteristics { compute_class: 0xc3c0, ..orin() };
        for release in [Release::R36_4_3, Release::R39_2] {
            let size = xavier.write(release).len() as u64;
            assert_eq!(decode(&answer(&xavier, release, size)).unwrap(), (xavier, release));
        }
    }

    #[test]
    fn an_orin_is_accepted() {
        let gpu = check(orin()).unwrap();
        assert_eq!(gpu.chip_name(), "ga10b");
        assert_eq!(gpu.sm_version(), (8, 7));
        assert_eq!(gpu.sm_count(), 8);
        assert_eq!(gpu.max_gpfifo_entries(), 1 << 28);
    }

    #[test]
    fn another_chip_is_refused_by_its_class() {
        let error = check(ctrl::Characteristics { compute_class: 0xc3c0, ..orin() });
        let text = error.unwrap_err().to_string();
        assert!(text.contains("compute class is 0xc3c0"), "{text}");
    }

    #[test]
    fn a_driver_without_usermode_submit_is_refused_by_name() {
        let flags = orin().flags & !GpuFlags::SUPPORT_USERMODE_SUBMIT.bits();
        let text = check(ctrl::Characteristics { flags, ..orin() }).unwrap_err().to_string();
        assert!(text.contains("lacks SUPPORT_USERMODE_SUBMIT:"), "{text}");
    }

    #[test]
    fn an_old_driver_is_refused_by_the_missing_request() {
        let raw = ctrl::Characteristics { ioctl_channel_nr_last: 127, ..orin() };
        let text = check(raw).unwrap_err().to_string();
        assert!(
            text.contains("channel requests end at number 127, but NVGPU_IOCTL_CHANNEL_SETUP_BIND"),
            "{text}"
        );
        let raw = ctrl::Characteristics { gpu_va_bit_count: 38, ..orin() };
        assert!(matches!(check(raw), Err(Error::NarrowAddresses { bits: 38 })));
    }
}
