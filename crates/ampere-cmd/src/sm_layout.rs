//! The numbers that determine the size of local memory.

/// Numbers of SMs and warps, which determine the size of local memory.
///
/// ```
/// # fn main() -> Result<(), ampere_cmd::Error> {
/// use ampere_cmd::command::local_memory_size;
/// use ampere_cmd::command::SmLayout;
///
/// let layout = SmLayout { warps_per_sm: 48, sm_per_tpc: 2, tpc_count: 8 };
/// let size = local_memory_size(1024, layout)?;
/// assert!(size.area_bytes >= 8 * size.bytes_per_tpc);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmLayout {
    /// Largest number of resident warps per SM.
    pub warps_per_sm: u32,
    /// SMs per TPC.
    pub sm_per_tpc: u32,
    /// Number of TPCs.
    pub tpc_count: u32,
}
