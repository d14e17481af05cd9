//! Clusters of blocks: what a program asks of a function, and its kernel for each size.

use core::sync::atomic::{AtomicI32, AtomicU32, Ordering};
use std::borrow::Cow;

use gpu_hal::Properties;
use gpu_hal::chip::{self, CLUSTER_BLOCKS_PER_SM, MAX_CLUSTER, PORTABLE_CLUSTER};
use parking_lot::Mutex;
use tegra_hcq::{Dim3, Kernel};

use crate::code::{Code, Failure, Result};

/// Blocks of a cluster along x, y, z; zeros for those that the function has without being asked.
pub type Cluster = [u32; 3];

/// Clusters of a function: what the program has set, and the kernel for each size that it has launched.
#[derive(Debug, Default)]
pub struct Clusters {
    compiled: Option<Cluster>,
    required: [AtomicU32; 3],
    non_portable: AtomicI32,
    policy: AtomicI32,
    kernels: Mutex<Vec<(Cluster, Kernel)>>,
}

/// Refuses a cluster.
fn refuse(cluster: Cluster, why: &str) -> Failure {
    let [x, y, z] = cluster;
    Failure::new(Code::InvalidClusterSize, format!("clusters of {x} x {y} x {z} blocks: {why}"))
}

impl Clusters {
    /// Those of a kernel.
    pub(crate) fn of(kernel: &Kernel) -> Self {
        Self { compiled: kernel.attributes().cluster.map(Dim3::to_array), ..Self::default() }
    }

    /// An attribute of the function (`CUfunction_attribute` 10 to 15).
    pub fn attribute(&self, attribute: u32) -> i32 {
        match attribute {
            10 => i32::from(self.compiled.is_some()),
            11..=13 => {
                let axis = attribute as usize - 11;
                let required = self.required[axis].load(Ordering::Relaxed);
                self.compiled.map_or(required, |compiled| compiled[axis]).cast_signed()
            }
            14 => self.non_portable.load(Ordering::Relaxed),
            _ => self.policy.load(Ordering::Relaxed),
        }
    }

    /// Sets an attribute of the function. The policy of scheduling is a hint.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidValue`] for a negative size, an unknown policy or an attribute that cannot be set;
    /// [`Code::NotPermitted`] for the size if the kernel was compiled for one.
    pub fn set_attribute(&self, attribute: u32, value: i32) -> Result<()> {
        let wrong = || Failure::invalid(format!("{value} for the attribute {attribute} of a function"));
        match attribute {
            11..=13 if self.compiled.is_some() => {
                return Err(Failure::new(Code::NotPermitted, "the kernel was compiled for clusters"));
            }
            11..=13 => {
                let blocks = u32::try_from(value).map_err(|_| wrong())?;
                self.required[attribute as usize - 11].store(blocks, Ordering::Relaxed);
            }
            14 => self.non_portable.store(value, Ordering::Relaxed),
            15 if (0..=2).contains(&value) => self.policy.store(value, Ordering::Relaxed),
            _ => return Err(wrong()),
        }
        Ok(())
    }

    /// Largest number of blocks of a cluster that the program permits.
    pub fn largest(&self) -> u32 {
        if self.non_portable.load(Ordering::Relaxed) == 0 { PORTABLE_CLUSTER } else { MAX_CLUSTER }
    }

    /// The clusters of a launch that asks for some; `None` without clusters.
    pub fn of_launch(&self, asked: Cluster) -> Option<Cluster> {
        let required = |axis: usize| self.required[axis].load(Ordering::Relaxed);
        let given = if asked == [0; 3] { [required(0), required(1), required(2)] } else { asked };
        if given == [0; 3] { self.compiled } else { Some(given) }
    }

    /// The kernel for launches that ask for a cluster. `kernel` is the function's.
    pub(crate) fn kernel<'a>(&self, kernel: &'a Kernel, asked: Cluster) -> Result<Cow<'a, Kernel>> {
        let Some(cluster) = self.of_launch(asked).filter(|_| self.compiled.is_none()) else {
            return Ok(Cow::Borrowed(kernel));
        };
        let mut kernels = self.kernels.lock();
        if let Some((_, known)) = kernels.iter().find(|(size, _)| *size == cluster) {
            return Ok(Cow::Owned(known.clone()));
        }
        let clustered = match kernel.with_cluster(cluster) {
            Ok(clustered) => clustered,
            // A GPU without clusters.
            Err(_) if cluster == [1; 3] => return Ok(Cow::Borrowed(kernel)),
            Err(error) => return Err(refuse(cluster, &error.to_string())),
        };
        kernels.push((cluster, clustered.clone()));
        Ok(Cow::Owned(clustered))
    }

    /// Checks the clusters of a launch of the function's kernel.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidClusterSize`] if the kernel was compiled for others, they have no block or more than the program
    /// permits, the grid is not whole clusters, or the GPU has no clusters.
    pub(crate) fn check(&self, kernel: &Kernel, asked: Cluster, grid: [u32; 3]) -> Result<()> {
        let Some(cluster) = self.of_launch(asked) else { return Ok(()) };
        if self.compiled.is_some_and(|compiled| compiled != cluster) {
            return Err(refuse(cluster, "the kernel was compiled for others"));
        }
        let blocks = cluster.iter().try_fold(1_u32, |product, &blocks| product.checked_mul(blocks));
        let most = self.largest();
        if !blocks.is_some_and(|blocks| (1..=most).contains(&blocks)) {
            return Err(refuse(cluster, &format!("1 to {most} are permitted")));
        }
        if !grid.iter().zip(cluster).all(|(grid, blocks)| grid.is_multiple_of(blocks)) {
            return Err(refuse(cluster, &format!("the grid of {} is not whole ones", Dim3::from(grid))));
        }
        self.kernel(kernel, asked).map(drop)
    }
}

/// Number of clusters of `blocks` blocks that a GPU runs at a time, if an SM has room for `per_sm` of the blocks: a
/// cluster runs on one GPC. On an H100 a kernel that counted its clusters found these numbers.
///
/// # Errors
///
/// [`Code::NotSupported`] if the driver does not report the SMs of each GPC.
pub fn active(properties: &Properties, blocks: u32, per_sm: u32) -> Result<u32> {
    let has_clusters = chip::of(properties.sm_version).is_some_and(|chip| chip.bank0.value.cluster.is_some());
    if !has_clusters {
        return Ok(if blocks == 1 { properties.sm_count * per_sm } else { 0 });
    }
    if properties.gpc_sms.is_empty() {
        return Err(Failure::new(Code::NotSupported, "the driver does not report the SMs of each GPC"));
    }
    let per_sm = per_sm.min(CLUSTER_BLOCKS_PER_SM);
    Ok(properties.gpc_sms.iter().map(|sms| sms * per_sm / blocks.max(1)).sum())
}

#[cfg(test)]
mod tests {
    use tegra_hcq::{Device, DeviceKind};

    use super::*;

    #[test]
    fn clusters_fill_the_gpcs_of_an_h100() {
        let device = Device::open(DeviceKind::Sim).unwrap();
        let mut properties = Properties::clone(device.info());
        assert_eq!(active(&properties, 1, 2).unwrap(), 2 * properties.sm_count);
        assert_eq!(active(&properties, 2, 2).unwrap(), 0);
        properties.sm_version = (9, 0);
        assert_eq!(active(&properties, 2, 2).unwrap_err().code, Code::NotSupported);
        // The SMs of one of an H100's GPCs are four of two SMs and one of eight.
        properties.gpc_sms = vec![16, 16, 16, 16, 16, 18, 18, 8, 2, 2, 2, 2];
        // As a kernel counted its clusters there, with one, two, three and 16 blocks per SM.
        for (per_sm, counts) in [
            (1, [(1, 132), (2, 66), (3, 39), (4, 30), (6, 17), (8, 15), (9, 9), (16, 7)]),
            (2, [(1, 264), (2, 132), (3, 83), (4, 66), (6, 39), (8, 30), (9, 24), (16, 15)]),
            (3, [(1, 396), (2, 198), (3, 132), (4, 96), (6, 66), (8, 45), (9, 39), (16, 22)]),
        ] {
            for (blocks, count) in counts {
                assert_eq!(active(&properties, blocks, per_sm).unwrap(), count, "{per_sm} per SM, {blocks}");
            }
        }
        assert_eq!(active(&properties, 1, 16).unwrap(), 8 * 132);
    }
}
