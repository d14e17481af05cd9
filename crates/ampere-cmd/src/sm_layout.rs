//! The numbers that determine the size of local memory.

/// Numbers of SMs and warps, which determine the size of local memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmLayout {
    /// Largest number of resident warps per SM.
    pub warps_per_sm: u32,
    /// SMs per TPC.
    pub sm_per_tpc: u32,
    /// Number of TPCs.
    pub tpc_count: u32,
}
