//! Nodes of graphs whose parameters are not those of the driver.

use crate::call::{api, read, write};
use crate::copy::{Region, check_symbol_kind, part};
use crate::device::current;
use crate::driver::cu;
use crate::error::{Result, is_13};
use crate::register::{function, host_function};

/// `cudaKernelNodeParams`: the kernel, sizes, parameters. The driver's has its function in the first word.
pub type KernelNode = [usize; 7];

/// `cudaGraphNodeParams`: type, and from the third word on what belongs to it.
type NodeParameters = [usize; 32];

/// Where and how a node is added.
#[derive(Clone, Copy, Debug)]
struct Place {
    node: *mut usize,
    graph: usize,
    after: *const usize,
    count: usize,
}

fn kernel_node(parameters: *const KernelNode) -> Result<KernelNode> {
    let mut parameters = read(parameters)?;
    parameters[0] = function(parameters[0])?;
    Ok(parameters)
}

fn add_copy(place: Place, copy: Region) -> Result {
    let Place { node, graph, after, count } = place;
    let words = copy.words()?;
    cu!(cuGraphAddMemcpyNode, node, graph, after, count, words.as_ptr(), current()?)
}

fn set_copy(node: usize, copy: Region) -> Result {
    let words = copy.words()?;
    cu!(cuGraphMemcpyNodeSetParams, node, words.as_ptr())
}

fn change_copy(executable: usize, node: usize, copy: Region) -> Result {
    let words = copy.words()?;
    cu!(cuGraphExecMemcpyNodeSetParams, executable, node, words.as_ptr(), current()?)
}

fn to_symbol(symbol: usize, from: usize, bytes: usize, offset: usize, kind: u32) -> Result<Region> {
    check_symbol_kind(kind, 2)?;
    Ok(Region::line(part(symbol, offset, bytes)?, from, bytes, kind))
}

fn from_symbol(to: usize, symbol: usize, bytes: usize, offset: usize, kind: u32) -> Result<Region> {
    check_symbol_kind(kind, 1)?;
    Ok(Region::line(to, part(symbol, offset, bytes)?, bytes, kind))
}

/// Calls with the driver's form of a node's parameters. Those of memory nodes are also written, so the program's own
/// are passed where both forms are equal.
fn with_driver_form(
    parameters: *mut NodeParameters,
    call: impl FnOnce(*mut NodeParameters) -> Result,
) -> Result {
    let mut words = read(parameters)?;
    // CAST: the type is an `int`.
    match words[0] as u32 {
        // A kernel: the driver has a kernel of a library, then the context; CUDA 13 has the context, then the kind of
        // the kernel, where cudaKernelFunctionTypeKernel and _Function are the driver's own.
        0 => {
            // CAST: an `int`.
            let is_drivers = is_13() && matches!(words[10] as u32, 2 | 3);
            words[2] = if is_drivers { words[2] } else { function(words[2])? };
            let context = if is_13() { words[9] } else { 0 };
            (words[9], words[10]) = (0, context);
        }
        // A copy, after flags and context.
        1 => {
            // SAFETY: the words are a copy of a `cudaMemcpyNodeParams`, in which the region is the fifth word.
            let region = unsafe { words.as_ptr().add(4).cast::<Region>().read() };
            if !is_13() {
                words[3] = 0;
            }
            words[4..29].copy_from_slice(&region.words()?);
        }
        _ => return call(parameters),
    }
    call(&raw mut words)
}

api! {
    add_kernel(node: *mut usize, graph: usize, after: *const usize, count: usize, parameters: *const KernelNode)
    [cudaGraphAddKernelNode Legacy] {
        let parameters = kernel_node(parameters)?;
        cu!(cuGraphAddKernelNode, node, graph, after, count, parameters.as_ptr())
    }

    set_kernel(node: usize, parameters: *const KernelNode) [cudaGraphKernelNodeSetParams Legacy] {
        let parameters = kernel_node(parameters)?;
        cu!(cuGraphKernelNodeSetParams, node, parameters.as_ptr())
    }

    change_kernel(executable: usize, node: usize, parameters: *const KernelNode)
    [cudaGraphExecKernelNodeSetParams Legacy] {
        let parameters = kernel_node(parameters)?;
        cu!(cuGraphExecKernelNodeSetParams, executable, node, parameters.as_ptr())
    }

    get_kernel(node: usize, place: *mut KernelNode) [cudaGraphKernelNodeGetParams Legacy] {
        let mut parameters: KernelNode = [0; 7];
        cu!(cuGraphKernelNodeGetParams, node, parameters.as_mut_ptr())?;
        parameters[0] = host_function(parameters[0]);
        write(place, parameters)
    }

    add_copy_3d(node: *mut usize, graph: usize, after: *const usize, count: usize, copy: *const Region)
    [cudaGraphAddMemcpyNode Legacy] {
        add_copy(Place { node, graph, after, count }, read(copy)?)
    }

    set_copy_3d(node: usize, copy: *const Region) [cudaGraphMemcpyNodeSetParams Legacy] {
        set_copy(node, read(copy)?)
    }

    change_copy_3d(executable: usize, node: usize, copy: *const Region) [cudaGraphExecMemcpyNodeSetParams Legacy] {
        change_copy(executable, node, read(copy)?)
    }

    get_copy(node: usize, place: *mut Region) [cudaGraphMemcpyNodeGetParams Legacy] {
        let mut words = [0; 25];
        cu!(cuGraphMemcpyNodeGetParams, node, words.as_mut_ptr())?;
        write(place, Region::of_words(words))
    }

    add_line(
        node: *mut usize, graph: usize, after: *const usize, count: usize, to: usize, from: usize, bytes: usize,
        kind: u32,
    ) [cudaGraphAddMemcpyNode1D Legacy] {
        add_copy(Place { node, graph, after, count }, Region::line(to, from, bytes, kind))
    }

    set_line(node: usize, to: usize, from: usize, bytes: usize, kind: u32) [cudaGraphMemcpyNodeSetParams1D Legacy] {
        set_copy(node, Region::line(to, from, bytes, kind))
    }

    change_line(executable: usize, node: usize, to: usize, from: usize, bytes: usize, kind: u32)
    [cudaGraphExecMemcpyNodeSetParams1D Legacy] {
        change_copy(executable, node, Region::line(to, from, bytes, kind))
    }

    add_to_symbol(
        node: *mut usize, graph: usize, after: *const usize, count: usize, symbol: usize, from: usize, bytes: usize,
        offset: usize, kind: u32,
    ) [cudaGraphAddMemcpyNodeToSymbol Legacy] {
        add_copy(Place { node, graph, after, count }, to_symbol(symbol, from, bytes, offset, kind)?)
    }

    set_to_symbol(node: usize, symbol: usize, from: usize, bytes: usize, offset: usize, kind: u32)
    [cudaGraphMemcpyNodeSetParamsToSymbol Legacy] {
        set_copy(node, to_symbol(symbol, from, bytes, offset, kind)?)
    }

    change_to_symbol(
        executable: usize, node: usize, symbol: usize, from: usize, bytes: usize, offset: usize, kind: u32,
    ) [cudaGraphExecMemcpyNodeSetParamsToSymbol Legacy] {
        change_copy(executable, node, to_symbol(symbol, from, bytes, offset, kind)?)
    }

    add_from_symbol(
        node: *mut usize, graph: usize, after: *const usize, count: usize, to: usize, symbol: usize, bytes: usize,
        offset: usize, kind: u32,
    ) [cudaGraphAddMemcpyNodeFromSymbol Legacy] {
        add_copy(Place { node, graph, after, count }, from_symbol(to, symbol, bytes, offset, kind)?)
    }

    set_from_symbol(node: usize, to: usize, symbol: usize, bytes: usize, offset: usize, kind: u32)
    [cudaGraphMemcpyNodeSetParamsFromSymbol Legacy] {
        set_copy(node, from_symbol(to, symbol, bytes, offset, kind)?)
    }

    change_from_symbol(
        executable: usize, node: usize, to: usize, symbol: usize, bytes: usize, offset: usize, kind: u32,
    ) [cudaGraphExecMemcpyNodeSetParamsFromSymbol Legacy] {
        change_copy(executable, node, from_symbol(to, symbol, bytes, offset, kind)?)
    }

    add_any(
        node: *mut usize, graph: usize, after: *const usize, fourth: usize, fifth: usize, sixth: *mut NodeParameters,
    ) [cudaGraphAddNode Legacy] {
        if is_13() {
            // Data of the edges, and the number of nodes.
            return with_driver_form(sixth, |form| cu!(cuGraphAddNode_v2, node, graph, after, fourth, fifth, form));
        }
        let parameters = core::ptr::with_exposed_provenance_mut(fifth);
        with_driver_form(parameters, |form| cu!(cuGraphAddNode, node, graph, after, fourth, form))
    }

    add_any_2(
        node: *mut usize, graph: usize, after: *const usize, data: usize, count: usize,
        parameters: *mut NodeParameters,
    ) [cudaGraphAddNode_v2 Legacy] {
        with_driver_form(parameters, |form| cu!(cuGraphAddNode_v2, node, graph, after, data, count, form))
    }

    set_any(node: usize, parameters: *mut NodeParameters) [cudaGraphNodeSetParams Legacy] {
        with_driver_form(parameters, |form| cu!(cuGraphNodeSetParams, node, form))
    }

    get_any(node: usize, place: *mut NodeParameters) [cudaGraphNodeGetParams Legacy] {
        let mut words: NodeParameters = [0; 32];
        cu!(cuGraphNodeGetParams, node, words.as_mut_ptr())?;
        // CAST: the type is an `int`.
        match words[0] as u32 {
            0 => {
                words[2] = host_function(words[2]);
                (words[9], words[10]) = (words[10], 0);
            }
            1 => {
                let mut copy = [0; 25];
                copy.copy_from_slice(&words[4..29]);
                words[4..].fill(0);
                // SAFETY: a region takes less than the words from the fifth on.
                unsafe { words.as_mut_ptr().add(4).cast::<Region>().write(Region::of_words(copy)) };
            }
            _ => {}
        }
        write(place, words)
    }

    change_any(executable: usize, node: usize, parameters: *mut NodeParameters) [cudaGraphExecNodeSetParams Legacy] {
        with_driver_form(parameters, |form| cu!(cuGraphExecNodeSetParams, executable, node, form))
    }
}

/// `cudaCreateChannelDesc` of `cuda_runtime_api.h`.
#[unsafe(no_mangle)]
pub extern "C" fn cudaCreateChannelDesc(x: i32, y: i32, z: i32, w: i32, kind: u32) -> ChannelFormat {
    ChannelFormat { bits: [x, y, z, w], kind }
}

/// `cudaChannelFormatDesc`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ChannelFormat {
    bits: [i32; 4],
    kind: u32,
}
