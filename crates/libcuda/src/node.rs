//! Nodes of graphs, and their parameters.

use core::ffi::c_void;
use std::sync::Arc;

use orin_cuda_core::context::current;
use orin_cuda_core::{
    Attribute, Code, Event, Failure, Fill, Graph, GraphMemory, Launch, Node, Result, Work, driver, function,
    memory,
};

use crate::abi::{Address, Handle, In, Out};
use crate::call::api;
use crate::context::context_or_current;
use crate::copy::{Copy3d, checked_fill};
use crate::graph::executable_of;
use crate::launch::{Parameters, Size, launch_of};
use crate::stream::{check_edges, graph_of, host_function, places};
use crate::words::WordsNode;

pub(crate) fn node_of(handle: Handle) -> Result<(Arc<Graph>, usize)> {
    let node = driver()?.objects.get::<Node>(handle)?;
    Ok((graph_of(node.graph)?, node.index))
}

pub(crate) fn add(
    place: Out<Handle>,
    graph: Handle,
    after: In<Handle>,
    count: usize,
    work: impl FnOnce(&Graph) -> Result<Work>,
) -> Result<()> {
    let place = place.need("the place for the node")?;
    let graph = graph_of(graph)?;
    let after = places(&graph, after, count)?;
    let index = graph.add(work(&graph)?, &after)?;
    place.set(graph.node(index));
    Ok(())
}

/// `CUDA_KERNEL_NODE_PARAMS`, version 1.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct KernelNode1 {
    function: Handle,
    size: Size,
    parameters: Parameters,
}

/// `CUDA_KERNEL_NODE_PARAMS`, version 2: also a kernel of a library, and its context.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct KernelNode2 {
    node: KernelNode1,
    kernel: Handle,
    context: Handle,
}

impl KernelNode1 {
    fn work(self) -> Result<Work> {
        let context = current()?;
        Ok(Work::Launch(launch_of(
            function(&context, self.function)?,
            self.size.with([0; 3], Some(0)),
            self.parameters,
        )?))
    }
}

impl KernelNode2 {
    fn work(self) -> Result<Work> {
        let handle = if self.node.function == 0 { self.kernel } else { self.node.function };
        KernelNode1 { function: handle, ..self.node }.work()
    }
}

/// `CUDA_MEMSET_NODE_PARAMS`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct FillNode {
    address: Address,
    pitch: usize,
    value: u32,
    element: u32,
    width: usize,
    height: usize,
}

impl FillNode {
    fn work(self) -> Result<Work> {
        let Self { address, pitch, value, element, width, height } = self;
        if !matches!(element, 1 | 2 | 4) || width == 0 || height == 0 {
            return Err(Failure::invalid(format!("{height} rows of {width} elements of {element} bytes")));
        }
        let fill = Fill { address, pitch, value, element: element as usize, width, height };
        Ok(Work::Fill(checked_fill(&*current()?, fill)?.0))
    }
}

impl KernelNode1 {
    /// The parameters of a node.
    fn of(launch: &Launch) -> Self {
        let Launch { function, size, parameters } = launch;
        let pointers = In::at_address(parameters.pointers(function));
        Self {
            function: function.handle(),
            size: Size { grid: size.grid, block: size.block, shared_bytes: size.shared_bytes },
            parameters: Parameters { pointers, extra: In::none() },
        }
    }
}

/// The work of a node, if `of` finds that it is of the right type.
pub(crate) fn parameters_of<T>(node: Handle, of: impl FnOnce(&Work) -> Option<T>) -> Result<T> {
    let (graph, index) = node_of(node)?;
    of(&graph.work(index)?).ok_or_else(|| Failure::invalid("the node is of another type"))
}

fn kernel_of(node: Handle) -> Result<KernelNode1> {
    parameters_of(
        node,
        |work| if let Work::Launch(launch) = work { Some(KernelNode1::of(launch)) } else { None },
    )
}

/// `CUDA_MEM_ALLOC_NODE_PARAMS`: eleven words of properties of a pool, list and number of accesses, size, address.
type AllocationNode = [u64; 15];

/// The work of a node that allocates. Its address is written to the parameters.
fn allocation(node: In<AllocationNode>) -> Result<Work> {
    let mut words = node.read("the node")?;
    // Type and handle types, location.
    let [kind, handles] = [words[0] as u32, (words[0] >> 32) as u32];
    let [location, device] = [words[1] as u32, (words[1] >> 32) as u32];
    // CU_MEM_ALLOCATION_TYPE_MANAGED, which has no handles.
    let managed = kind == 2 && handles == 0;
    if !managed && orin_cuda_core::pool::check_place(kind, handles)? {
        return Err(Failure::new(Code::NotSupported, "memory of graphs for other processes"));
    }
    let context = current()?;
    // CU_MEM_LOCATION_TYPE_DEVICE.
    if location != 1 || device as usize != context.gpu.ordinal {
        return Err(Failure::invalid(format!("memory of a graph at location {location}, {device}")));
    }
    let bytes = usize::try_from(words[13]).map_err(|_| Failure::invalid("the size"))?;
    let made = GraphMemory::create(context.gpu, context.handle, bytes, managed)?;
    words[14] = made.address();
    node.writable().set(words);
    Ok(Work::Allocate(made))
}

fn allocation_of(work: &Work) -> Option<AllocationNode> {
    let Work::Allocate(memory) = work else { return None };
    let mut words = [0; 15];
    // CU_MEM_ALLOCATION_TYPE_PINNED, _MANAGED, CU_MEM_LOCATION_TYPE_DEVICE with its device.
    words[..2].copy_from_slice(&[1 + u64::from(memory.is_managed()), 1 | (memory.device() as u64) << 32]);
    words[13..].copy_from_slice(&[memory.bytes() as u64, memory.address()]);
    Some(words)
}

/// The work of a node that frees memory of a graph.
pub(crate) fn release(address: Address) -> Result<Work> {
    let found = current()?.gpu.memory.find(address);
    let known = found.is_some_and(|found| found.kind == memory::Kind::Graph && found.base == address);
    if known {
        Ok(Work::Free(address))
    } else {
        Err(Failure::invalid(format!("no graph allocates {address:#x}")))
    }
}

fn fill_of(work: &Work) -> Option<FillNode> {
    let Work::Fill(Fill { address, pitch, value, element, width, height }) = *work else { return None };
    // CAST: 1, 2 or 4.
    Some(FillNode { address, pitch, value, element: element as u32, width, height })
}

/// Writes `CUgraphNodeParams` of a node.
fn write_any(node: Handle, place: Out<NodeParameters>) -> Result<()> {
    let (graph, index) = node_of(node)?;
    place.set([0; 32]);
    let body = place.cast::<u64>().at(2);
    let kind = match graph.work(index)? {
        Work::Launch(launch) => {
            body.cast().set(KernelNode1::of(&launch));
            0
        }
        Work::Copy(copy) => {
            body.at(2).cast().set(Copy3d::of(&copy));
            1
        }
        work @ Work::Fill(_) => {
            fill_of(&work).iter().for_each(|fill| body.cast().set(*fill));
            2
        }
        Work::Host(call) => {
            body.cast().set(call.program);
            3
        }
        Work::Child(graph) => {
            body.set(graph.handle());
            4
        }
        Work::Sequence(_) => 4,
        Work::Empty => 5,
        Work::Until(_) => 6,
        Work::Wait(event) => {
            body.set(event.handle());
            6
        }
        Work::Record(event) => {
            body.set(event.handle());
            7
        }
        work @ Work::Allocate(_) => {
            allocation_of(&work).iter().for_each(|words| body.cast().set(*words));
            10
        }
        Work::Free(address) => {
            body.set(address);
            11
        }
        Work::Words(words) => {
            body.cast().set(WordsNode::of(graph.context(), &words));
            12
        }
    };
    place.cast::<u32>().set(kind);
    Ok(())
}

/// Refuses attributes that kernels of graphs do not have.
fn check_attribute(attribute: u32) -> Result<()> {
    // Access policy, cooperative, clusters and their scheduling, priority, memory domains, shared memory.
    if matches!(attribute, 1 | 2 | 4 | 5 | 8 | 9 | 10 | 14) {
        return Ok(());
    }
    Err(Failure::invalid(format!("nodes of kernels have no attribute {attribute}")))
}

/// `CUDA_HOST_NODE_PARAMS`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct HostNode {
    function: Option<unsafe extern "C" fn(*mut c_void)>,
    argument: *mut c_void,
}

impl HostNode {
    fn work(self) -> Result<Work> {
        Ok(Work::Host(host_function(self.function, self.argument)?))
    }
}

fn copy_work(copy: In<Copy3d>) -> Result<Work> {
    Ok(Work::Copy(copy.read("the copy")?.resolve(&*current()?)?.into()))
}

/// Changes the work of a node in an executable graph.
pub(crate) fn change(
    executable: Handle,
    node: Handle,
    work: impl FnOnce(&Graph) -> Result<Work>,
) -> Result<()> {
    let executable = executable_of(executable)?;
    let (graph, index) = node_of(node)?;
    executable.set_work(index, work(&graph)?)
}

pub(crate) fn change_node(node: Handle, work: impl FnOnce(&Graph) -> Result<Work>) -> Result<()> {
    let (graph, index) = node_of(node)?;
    graph.set_work(index, work(&graph)?)
}

/// `CUgraphNodeParams`: the type of a node, and from its byte 16 on the parameters of that type.
type NodeParameters = [u64; 32];

/// The work of a node of any type.
fn any_work(parent: &Graph, node: In<NodeParameters>) -> Result<Work> {
    let kind = node.within::<u32>(0).read("the node")?;
    let handle = || node.within::<Handle>(16).read("the node");
    match kind {
        0 => node.within::<KernelNode2>(16).read("the node")?.work(),
        // Before the copy: flags and its context.
        1 => copy_work(node.within(32)),
        2 => node.within::<FillNode>(16).read("the node")?.work(),
        3 => node.within::<HostNode>(16).read("the node")?.work(),
        4 => graph_of(handle()?)?.child(parent),
        5 => Ok(Work::Empty),
        6 => wait_for(handle()?),
        7 => record(handle()?),
        10 => allocation(node.within(16)),
        11 => release(handle()?),
        8 | 9 => Err(Failure::new(Code::NotSupported, "external semaphores")),
        12 => node.within::<WordsNode>(16).read("the node")?.work(),
        13 => Err(Failure::new(Code::NotSupported, "conditional nodes")),
        _ => Err(Failure::invalid(format!("there are no graph nodes of type {kind}"))),
    }
}

/// The event of a node.
fn event_of(event: Handle) -> Result<Arc<Event>> {
    let event = driver()?.objects.get::<Event>(event)?;
    if event.is_shared() {
        return Err(Failure::new(Code::NotSupported, "nodes with events of other processes"));
    }
    Ok(event)
}

fn record(event: Handle) -> Result<Work> {
    Ok(Work::Record(event_of(event)?))
}

fn wait_for(event: Handle) -> Result<Work> {
    Ok(Work::Wait(event_of(event)?))
}

/// The event of a node that records one or waits for one.
fn event_in(node: Handle, place: Out<Handle>, records: bool) -> Result<()> {
    let place = place.need("the place for the event")?;
    let (graph, index) = node_of(node)?;
    match graph.work(index)? {
        Work::Record(event) if records => place.set(event.handle()),
        Work::Wait(event) if !records => place.set(event.handle()),
        _ => return Err(Failure::invalid("the node is of another type")),
    }
    Ok(())
}

api! {
    add_kernel(place: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, node: In<KernelNode1>)
    [cuGraphAddKernelNode Legacy] {
        add(place, graph, after, count, |_| node.read("the node")?.work())
    }

    add_kernel_2(place: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, node: In<KernelNode2>)
    [cuGraphAddKernelNode_v2 Legacy] {
        add(place, graph, after, count, |_| node.read("the node")?.work())
    }

    add_copy(place: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, copy: In<Copy3d>, context: Handle)
    [cuGraphAddMemcpyNode Legacy] {
        context_or_current(context)?;
        add(place, graph, after, count, |_| copy_work(copy))
    }

    add_fill(place: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, node: In<FillNode>, context: Handle)
    [cuGraphAddMemsetNode Legacy] {
        context_or_current(context)?;
        add(place, graph, after, count, |_| node.read("the node")?.work())
    }

    add_host(place: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, node: In<HostNode>)
    [cuGraphAddHostNode Legacy] {
        add(place, graph, after, count, |_| node.read("the node")?.work())
    }

    add_graph(place: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, child: Handle)
    [cuGraphAddChildGraphNode Legacy] {
        add(place, graph, after, count, |graph| graph_of(child)?.child(graph))
    }

    add_empty(place: Out<Handle>, graph: Handle, after: In<Handle>, count: usize) [cuGraphAddEmptyNode Legacy] {
        add(place, graph, after, count, |_| Ok(Work::Empty))
    }

    add_record(place: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, event: Handle)
    [cuGraphAddEventRecordNode Legacy] {
        add(place, graph, after, count, |_| record(event))
    }

    add_wait(place: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, event: Handle)
    [cuGraphAddEventWaitNode Legacy] {
        add(place, graph, after, count, |_| wait_for(event))
    }

    add_any(place: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, node: In<NodeParameters>)
    [cuGraphAddNode Legacy] {
        add(place, graph, after, count, |graph| any_work(graph, node))
    }

    add_any_2(
        place: Out<Handle>, graph: Handle, after: In<Handle>, data: In<u64>, count: usize, node: In<NodeParameters>,
    ) [cuGraphAddNode_v2 Legacy] [cuGraphAddNode_v3 Legacy] {
        check_edges(data, count)?;
        add(place, graph, after, count, |graph| any_work(graph, node))
    }

    set_any(node: Handle, parameters: In<NodeParameters>)
    [cuGraphNodeSetParams Legacy] [cuGraphNodeSetParams_v2 Legacy] {
        change_node(node, |graph| any_work(graph, parameters))
    }

    set_record(node: Handle, event: Handle) [cuGraphEventRecordNodeSetEvent Legacy] {
        change_node(node, |_| record(event))
    }

    set_wait(node: Handle, event: Handle) [cuGraphEventWaitNodeSetEvent Legacy] {
        change_node(node, |_| wait_for(event))
    }

    recorded_event(node: Handle, place: Out<Handle>) [cuGraphEventRecordNodeGetEvent Legacy] {
        event_in(node, place, true)
    }

    awaited_event(node: Handle, place: Out<Handle>) [cuGraphEventWaitNodeGetEvent Legacy] {
        event_in(node, place, false)
    }

    set_kernel(node: Handle, parameters: In<KernelNode1>) [cuGraphKernelNodeSetParams Legacy] {
        change_node(node, |_| parameters.read("the node")?.work())
    }

    set_kernel_2(node: Handle, parameters: In<KernelNode2>) [cuGraphKernelNodeSetParams_v2 Legacy] {
        change_node(node, |_| parameters.read("the node")?.work())
    }

    set_copy(node: Handle, copy: In<Copy3d>) [cuGraphMemcpyNodeSetParams Legacy] {
        change_node(node, |_| copy_work(copy))
    }

    set_fill(node: Handle, parameters: In<FillNode>) [cuGraphMemsetNodeSetParams Legacy] {
        change_node(node, |_| parameters.read("the node")?.work())
    }

    set_host(node: Handle, parameters: In<HostNode>) [cuGraphHostNodeSetParams Legacy] {
        change_node(node, |_| parameters.read("the node")?.work())
    }

    node_type(node: Handle, place: Out<u32>) [cuGraphNodeGetType Legacy] {
        let place = place.need("the place for the type")?;
        let (graph, index) = node_of(node)?;
        place.set(match graph.work(index)? {
            Work::Launch(_) => 0,
            Work::Copy(_) => 1,
            Work::Fill(_) => 2,
            Work::Host(_) => 3,
            Work::Child(_) | Work::Sequence(_) => 4,
            Work::Empty => 5,
            Work::Wait(_) | Work::Until(_) => 6,
            Work::Record(_) => 7,
            Work::Allocate(_) => 10,
            Work::Free(_) => 11,
            Work::Words(_) => 12,
        });
        Ok(())
    }

    change_kernel(executable: Handle, node: Handle, parameters: In<KernelNode1>)
    [cuGraphExecKernelNodeSetParams Legacy] {
        change(executable, node, |_| parameters.read("the node")?.work())
    }

    change_kernel_2(executable: Handle, node: Handle, parameters: In<KernelNode2>)
    [cuGraphExecKernelNodeSetParams_v2 Legacy] {
        change(executable, node, |_| parameters.read("the node")?.work())
    }

    change_copy(executable: Handle, node: Handle, copy: In<Copy3d>, context: Handle)
    [cuGraphExecMemcpyNodeSetParams Legacy] {
        context_or_current(context)?;
        change(executable, node, |_| copy_work(copy))
    }

    change_fill(executable: Handle, node: Handle, parameters: In<FillNode>, context: Handle)
    [cuGraphExecMemsetNodeSetParams Legacy] {
        context_or_current(context)?;
        change(executable, node, |_| parameters.read("the node")?.work())
    }

    change_host(executable: Handle, node: Handle, parameters: In<HostNode>) [cuGraphExecHostNodeSetParams Legacy] {
        change(executable, node, |_| parameters.read("the node")?.work())
    }

    change_any(executable: Handle, node: Handle, parameters: In<NodeParameters>) [cuGraphExecNodeSetParams Legacy] {
        change(executable, node, |graph| any_work(graph, parameters))
    }

    change_record(executable: Handle, node: Handle, event: Handle) [cuGraphExecEventRecordNodeSetEvent Legacy] {
        change(executable, node, |_| record(event))
    }

    change_wait(executable: Handle, node: Handle, event: Handle) [cuGraphExecEventWaitNodeSetEvent Legacy] {
        change(executable, node, |_| wait_for(event))
    }

    is_enabled(executable: Handle, node: Handle, place: Out<u32>) [cuGraphNodeGetEnabled Legacy] {
        let place = place.need("the place for the answer")?;
        place.set(executable_of(executable)?.is_enabled(node_of(node)?.1)?.into());
        Ok(())
    }

    enable(executable: Handle, node: Handle, enabled: u32) [cuGraphNodeSetEnabled Legacy] {
        executable_of(executable)?.enable(node_of(node)?.1, enabled != 0)
    }

    change_graph(executable: Handle, node: Handle, child: Handle) [cuGraphExecChildGraphNodeSetParams Legacy] {
        change(executable, node, |graph| graph_of(child)?.child(graph))
    }

    add_allocation(place: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, node: In<AllocationNode>)
    [cuGraphAddMemAllocNode Legacy] {
        add(place, graph, after, count, |_| allocation(node))
    }

    add_free(place: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, address: Address)
    [cuGraphAddMemFreeNode Legacy] {
        add(place, graph, after, count, |_| release(address))
    }

    get_allocation(node: Handle, place: Out<AllocationNode>) [cuGraphMemAllocNodeGetParams Legacy] {
        let place = place.need("the place for the parameters")?;
        place.set(parameters_of(node, allocation_of)?);
        Ok(())
    }

    get_free(node: Handle, place: Out<Address>) [cuGraphMemFreeNodeGetParams Legacy] {
        let place = place.need("the place for the address")?;
        place.set(parameters_of(node, |work| if let Work::Free(address) = work { Some(*address) } else { None })?);
        Ok(())
    }

    get_kernel(node: Handle, place: Out<KernelNode1>) [cuGraphKernelNodeGetParams Legacy] {
        let place = place.need("the place for the parameters")?;
        place.set(kernel_of(node)?);
        Ok(())
    }

    get_kernel_2(node: Handle, place: Out<KernelNode2>) [cuGraphKernelNodeGetParams_v2 Legacy] {
        let place = place.need("the place for the parameters")?;
        place.set(KernelNode2 { node: kernel_of(node)?, kernel: 0, context: 0 });
        Ok(())
    }

    get_copy(node: Handle, place: Out<Copy3d>) [cuGraphMemcpyNodeGetParams Legacy] {
        let place = place.need("the place for the parameters")?;
        place.set(parameters_of(node, |work| if let Work::Copy(copy) = work { Some(Copy3d::of(copy)) } else { None })?);
        Ok(())
    }

    get_fill(node: Handle, place: Out<FillNode>) [cuGraphMemsetNodeGetParams Legacy] {
        let place = place.need("the place for the parameters")?;
        place.set(parameters_of(node, fill_of)?);
        Ok(())
    }

    get_host(node: Handle, place: Out<[usize; 2]>) [cuGraphHostNodeGetParams Legacy] {
        let place = place.need("the place for the parameters")?;
        place.set(parameters_of(node, |work| if let Work::Host(call) = work { Some(call.program) } else { None })?);
        Ok(())
    }

    get_any(node: Handle, place: Out<NodeParameters>) [cuGraphNodeGetParams Legacy] {
        write_any(node, place.need("the place for the parameters")?)
    }

    get_child(node: Handle, place: Out<Handle>) [cuGraphChildGraphNodeGetGraph Legacy] {
        let place = place.need("the place for the graph")?;
        place.set(parameters_of(node, |work| if let Work::Child(graph) = work { Some(graph.handle()) } else { None })?);
        Ok(())
    }

    kernel_attribute(node: Handle, attribute: u32, place: Out<Attribute>) [cuGraphKernelNodeGetAttribute Legacy] {
        let place = place.need("the place for the attribute")?;
        let (graph, index) = node_of(node)?;
        check_attribute(attribute)?;
        place.set(graph.attribute(index, attribute)?);
        Ok(())
    }

    set_kernel_attribute(node: Handle, attribute: u32, value: In<Attribute>)
    [cuGraphKernelNodeSetAttribute Legacy] {
        let value = value.read("the attribute")?;
        check_attribute(attribute)?;
        let (graph, index) = node_of(node)?;
        graph.set_attribute(index, attribute, value)
    }

    copy_attributes(target: Handle, source: Handle) [cuGraphKernelNodeCopyAttributes Legacy] {
        let ((to, index), (from, from_index)) = (node_of(target)?, node_of(source)?);
        to.copy_attributes(index, &from, from_index)
    }
}
