//! A loaded image: its code in GPU memory, and the launch data of each kernel.

use core::fmt;
use std::sync::Arc;

use gpu_hal::Properties;
use gpu_hal::chip::{self, Chip, MAX_BLOCK_THREADS, MAX_CLUSTER, Sm, WARP};
use parking_lot::Mutex;

use crate::descriptor::{self, Code, Descriptor};
use crate::encodings::Encodings;
use crate::error::{LaunchError, Result};
use crate::fault::CodeLocation;
use crate::heap::Handle;
use crate::limits::Dim3;
use crate::occupancy;
use crate::program::gate;
use crate::program::needs::Needs;
use crate::runtime;

/// One kernel, ready for launches.
#[derive(Clone, Debug)]
pub(crate) struct KernelCode {
    pub(crate) name: String,
    pub(crate) code_va: u64,
    code_bytes: u64,
    /// Address of the gate: where launches begin that the GPU places before the grid before them has ended.
    pub(crate) gate_va: Option<u64>,
    pub(crate) qmd: Descriptor,
    /// Template of constant bank 0: driver words and zeroed parameters.
    pub(crate) bank0: Vec<u8>,
    pub(crate) params: Vec<ParamSlot>,
    /// Texture and surface references.
    pub(crate) references: Vec<cubin::Reference>,
    /// Offset of the parameters in constant bank 0, in bytes.
    pub(crate) param_base: usize,
    pub(crate) local_bytes: u32,
    pub(crate) static_shared: u32,
    pub(crate) registers: u32,
    pub(crate) barriers: u32,
    /// Known size of the stack frames, in bytes.
    pub(crate) frame_bytes: u32,
    /// Constant bank 3: `__constant__` variables, in bytes.
    pub(crate) constant_bytes: u32,
    /// SM version that the code was compiled for, major and minor.
    pub(crate) sm_version: (u32, u32),
    /// Chip table row of the SM version that the code was compiled for; `None` if the table does not contain it.
    pub(crate) target: Option<&'static Chip>,
    /// Limits of an SM of that chip for the kernel.
    pub(crate) limits: Option<occupancy::Limits>,
    /// SMs of the GPU.
    pub(crate) sm_count: u32,
    pub(crate) max_threads: u32,
    /// Largest number of threads of a block that the source permits (`__launch_bounds__`).
    pub(crate) declared_threads: u32,
    pub(crate) required_block: Option<[u32; 3]>,
    /// Size in blocks of the clusters that launches form: what the kernel requires, or the program asks for.
    pub(crate) cluster: Option<[u32; 3]>,
    pub(crate) needs: Needs,
}

/// Where the code of a kernel is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// Address of the image.
    pub(super) image_va: u64,
    /// Address of the kernel's gate, on chips that have them.
    pub(super) gate_va: Option<u64>,
}

/// Location of a parameter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ParamSlot {
    /// Offset in constant bank 0, in bytes.
    pub(crate) offset: usize,
    /// Size in bytes.
    pub(crate) size: usize,
}

/// A loaded image. Lives as long as a program, a kernel or a recorded graph refers to it; its memory lives until
/// pending launches have ended.
pub(crate) struct ProgramCode {
    pub(crate) memory: Handle,
    pub(crate) kernels: Arc<[KernelCode]>,
    /// Version of the PTX architecture that the code was compiled from, major and minor; `None` if unknown.
    pub(crate) ptx_version: Option<(u32, u32)>,
    /// The variables, sorted by name.
    pub(crate) globals: Vec<cubin::Global>,
    /// Held while the CPU reads or writes a variable.
    pub(crate) variables: Mutex<()>,
}

/// Number of kernels that [`ProgramCode`] prints by name.
const NAMES: usize = 4;

impl fmt::Debug for ProgramCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.kernels.iter().take(NAMES).map(|kernel| kernel.name.as_str()).collect();
        let more = if self.kernels.len() > NAMES { ", .." } else { "" };
        f.debug_struct("Program")
            .field("kernels", &self.kernels.len())
            .field("names", &format_args!("[{}{more}]", names.join(", ")))
            .field("gpu_va", &format_args!("{:#x}", self.memory.gpu_va()))
            .finish_non_exhaustive()
    }
}

/// The kernel that contains a code address. An address in its gate is taken for its first instruction.
pub(crate) fn locate(kernels: &[KernelCode], pc: u64) -> Option<CodeLocation> {
    let offset = |kernel: &KernelCode| {
        let own = kernel.code_va..kernel.code_va + kernel.code_bytes;
        let at_gate = kernel.gate_va.is_some_and(|va| gate::range(va).contains(&pc));
        if own.contains(&pc) { Some(pc - kernel.code_va) } else { at_gate.then_some(0) }
    };
    kernels
        .iter()
        .find_map(|kernel| Some(CodeLocation { kernel: kernel.name.clone(), offset: offset(kernel)? }))
}

impl KernelCode {
    pub(super) fn prepare(
        kernel: &cubin::Kernel,
        instructions: &[u8],
        Place { image_va, gate_va }: Place,
        (sm, stack_limit): (u32, u32),
        runtime: Option<runtime::Needs>,
        properties: &Properties,
        encodings: &Encodings,
    ) -> Result<Self> {
        let chip = encodings.chip();
        let code_va = image_va + kernel.code_offset;
        let registers = kernel.registers.max(runtime.map_or(0, |runtime| runtime.registers));
        let stack = kernel.stack_bytes(stack_limit);
        let stack = stack.saturating_add(runtime.map_or(0, |runtime| runtime.stack_bytes));
        // The descriptor refuses a size that does not fit its field.
        let local_bytes = stack.saturating_add(chip.local.stack_reserve);
        let local_bytes = local_bytes.checked_next_multiple_of(32).unwrap_or(u32::MAX);
        let params: Vec<ParamSlot> = kernel
            .params
            .iter()
            .map(|param| ParamSlot {
                offset: kernel.param_base as usize + usize::from(param.offset),
                size: usize::from(param.bytes),
            })
            .collect();
        let constants_va = kernel.constant(3).map_or(0, |bank| image_va + bank.offset);
        let mut bank0 = descriptor::bank0(chip, kernel.constant0_bytes as usize, constants_va, properties);
        if let Some(runtime) = runtime {
            descriptor::put(&mut bank0, chip.bank0.value.runtime(), &runtime.state_va.to_le_bytes());
        }
        let (major, minor) = properties.sm_version;
        let code = Code {
            kernel,
            code_va,
            image_va,
            registers,
            local_bytes,
            bank0_bytes: bank0.len(),
            sass_version: u64::from(major) << 4 | u64::from(minor),
        };
        let qmd = Descriptor::of(encodings, &code)?;

        let target = chip::of((sm / 10, sm % 10));
        let declared = kernel.max_threads.map_or(MAX_BLOCK_THREADS, |threads| Dim3::from(threads).count());
        let mut code = Self {
            name: kernel.name.clone(),
            code_va,
            code_bytes: kernel.code_bytes,
            gate_va,
            qmd,
            bank0,
            params,
            references: kernel.references.clone(),
            param_base: kernel.param_base as usize,
            local_bytes,
            static_shared: kernel.shared_bytes,
            registers,
            barriers: kernel.barriers,
            frame_bytes: kernel.local_bytes,
            constant_bytes: kernel.constant(3).map_or(0, |bank| bank.bytes),
            sm_version: (sm / 10, sm % 10),
            target,
            limits: target.map(|chip| occupancy::Limits::of(chip, registers, kernel.barriers)),
            sm_count: properties.sm_count,
            declared_threads: declared,
            max_threads: declared.min(threads_for_registers(&chip.sm, registers)),
            required_block: kernel.required_threads,
            cluster: None,
            needs: Needs::of(instructions, target),
        };
        if let Some(cluster) = kernel.cluster {
            code.form_clusters(cluster)?;
        }
        Ok(code)
    }

    /// Makes launches form clusters of some blocks.
    pub(super) fn form_clusters(&mut self, cluster: [u32; 3]) -> Result<()> {
        let refuse =
            |reason| LaunchError::Cluster { kernel: self.name.clone(), cluster: cluster.into(), reason };
        let blocks = cluster.iter().try_fold(1_u32, |product, &blocks| product.checked_mul(blocks));
        if !blocks.is_some_and(|blocks| (1..=MAX_CLUSTER).contains(&blocks)) {
            return Err(refuse("a cluster has 1 to 16 blocks").into());
        }
        if self.cluster.is_some_and(|own| own != cluster) {
            return Err(refuse("the kernel was compiled for clusters of another size").into());
        }
        let places = self.qmd.chip.bank0.value.cluster;
        let (Some(places), true) = (places, self.qmd.set_cluster(cluster)?) else {
            return Err(refuse("the GPU has none; they begin with SM 9.0").into());
        };
        descriptor::put(&mut self.bank0, places.explicit, &1_u32.to_le_bytes());
        descriptor::put_cluster(&mut self.bank0, &places, cluster);
        self.cluster = Some(cluster);
        Ok(())
    }
}

/// Largest number of threads per block whose registers fit an SM.
fn threads_for_registers(sm: &Sm, registers: u32) -> u32 {
    (sm.warps_for_registers(registers) * WARP).min(MAX_BLOCK_THREADS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_limit_threads_as_the_hardware_allocates_them() {
        for chip in chip::ALL {
            let threads = |registers| threads_for_registers(&chip.sm, registers);
            assert_eq!(threads(16), 1024);
            assert_eq!(threads(64), 1024);
            assert_eq!(threads(65), 896, "65 round up to 72: 28 warps of 32");
            assert_eq!(threads(255), 256);
            assert_eq!(threads(0), 1024);
        }
    }
}
