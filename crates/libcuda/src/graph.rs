//! Graphs.

use core::ffi::{c_char, c_void};
use std::sync::Arc;

use orin_cuda_core::context::current;
use orin_cuda_core::{
    Code, Executable, Failure, Fill, Graph, LaunchSize, Node, Result, Work, driver, function,
};

use crate::abi::{Address, Handle, In, Out};
use crate::call::api;
use crate::context::context_or_current;
use crate::copy::{Copy3d, checked_fill};
use crate::launch::{Parameters, launch_of};
use crate::stream::{graph_of, host_call, places, stream_of};

fn executable_of(handle: Handle) -> Result<Arc<Executable>> {
    driver()?.objects.get::<Executable>(handle)
}

fn node_of(handle: Handle) -> Result<(Arc<Graph>, usize)> {
    let node = driver()?.objects.get::<Node>(handle)?;
    Ok((graph_of(node.graph)?, node.index))
}

fn add(
    place: Out<Handle>,
    graph: Handle,
    after: In<Handle>,
    count: usize,
    work: impl FnOnce() -> Result<Work>,
) -> Result<()> {
    let place = place.need("the place for the node")?;
    let graph = graph_of(graph)?;
    let after = places(&graph, after, count)?;
    let index = graph.add(work()?, &after)?;
    place.set(graph.node(index));
    Ok(())
}

/// Writes a list, or its length if there is no room for it.
fn list(places: Out<Handle>, count: Out<usize>, handles: &[Handle]) -> Result<()> {
    let count = count.need("the place for the count")?;
    if places.is_null() {
        count.set(handles.len());
        return Ok(());
    }
    let room = count.read("the room")?;
    places.fill(&handles[..handles.len().min(room)]);
    // What is not used of the room is zeroed.
    (handles.len()..room).for_each(|at| places.at(at).set(0));
    count.set(handles.len().min(room));
    Ok(())
}

/// `CUDA_KERNEL_NODE_PARAMS`, version 1.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct KernelNode1 {
    function: Handle,
    size: LaunchSize,
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
        Ok(Work::Launch(launch_of(function(&context, self.function)?, self.size, self.parameters)?))
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

/// `CUDA_HOST_NODE_PARAMS`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct HostNode {
    function: Option<unsafe extern "C" fn(*mut c_void)>,
    argument: *mut c_void,
}

impl HostNode {
    fn work(self) -> Result<Work> {
        host_call(self.function, self.argument)
    }
}

fn copy_work(copy: In<Copy3d>) -> Result<Work> {
    Ok(Work::Copy(copy.read("the copy")?.resolve(&*current()?)?))
}

fn instantiate(place: Out<Handle>, graph: Handle, flags: u64) -> Result<()> {
    let place = place.need("the place for the executable graph")?;
    place.set(0);
    let graph = graph_of(graph)?;
    // Flags for freeing memory, upload, launches from the GPU, and priorities of nodes.
    if flags & !0xf != 0 {
        return Err(Failure::invalid(format!("flags {flags:#x} of a graph")));
    }
    // What the GPU launches cannot free memory of an earlier launch.
    if flags & 5 == 5 {
        return Err(Failure::invalid(
            "the flags AUTO_FREE_ON_LAUNCH and DEVICE_LAUNCH of a graph".to_owned(),
        ));
    }
    if flags & 4 != 0 {
        return Err(Failure::new(Code::NotSupported, "graphs that the GPU launches"));
    }
    place.set(Executable::of(&graph, flags)?.handle());
    Ok(())
}

/// Changes the work of a node in an executable graph.
fn change(executable: Handle, node: Handle, work: impl FnOnce() -> Result<Work>) -> Result<()> {
    let executable = executable_of(executable)?;
    let node = driver()?.objects.get::<Node>(node)?;
    executable.set_work(node.index, work()?)
}

fn change_node(node: Handle, work: impl FnOnce() -> Result<Work>) -> Result<()> {
    let (graph, index) = node_of(node)?;
    graph.set_work(index, work()?)
}

fn change_edges(graph: Handle, from: In<Handle>, to: In<Handle>, count: usize, add: bool) -> Result<()> {
    let graph = graph_of(graph)?;
    let edges: Vec<_> = places(&graph, from, count)?.into_iter().zip(places(&graph, to, count)?).collect();
    graph.change_edges(&edges, add)
}

fn edges(graph: Handle, from: Out<Handle>, to: Out<Handle>, count: Out<usize>) -> Result<()> {
    let edges = graph_of(graph)?.edges();
    let (sources, targets): (Vec<_>, Vec<_>) = edges.into_iter().unzip();
    if from.is_null() != to.is_null() {
        return Err(Failure::invalid("one of two lists is NULL"));
    }
    let room = Out::read(count, "the place for the count")?;
    list(from, count, &sources)?;
    if !to.is_null() {
        count.set(room);
        list(to, count, &targets)?;
    }
    Ok(())
}

fn neighbours(node: Handle, places: Out<Handle>, count: Out<usize>, before: bool) -> Result<()> {
    let (graph, _) = node_of(node)?;
    let found = graph.edges().into_iter().filter_map(|(from, to)| match before {
        true => (to == node).then_some(from),
        false => (from == node).then_some(to),
    });
    list(places, count, &found.collect::<Vec<_>>())
}

api! {
    create(place: Out<Handle>, flags: u32) [cuGraphCreate Legacy] {
        let place = place.need("the place for the graph")?;
        if flags != 0 {
            return Err(Failure::invalid("cuGraphCreate takes the flags 0"));
        }
        place.set(Graph::create(current()?.handle)?.handle());
        Ok(())
    }

    destroy(graph: Handle) [cuGraphDestroy Legacy] {
        graph_of(graph)?.destroy()
    }

    copy(place: Out<Handle>, graph: Handle) [cuGraphClone Legacy] {
        let place = place.need("the place for the graph")?;
        place.set(graph_of(graph)?.copy()?.handle());
        Ok(())
    }

    find_in_copy(place: Out<Handle>, node: Handle, copy: Handle) [cuGraphNodeFindInClone Legacy] {
        let place = place.need("the place for the node")?;
        let (_, index) = node_of(node)?;
        let found = graph_of(copy)?.node(index);
        if found == 0 {
            return Err(Failure::invalid("the copy has no such node"));
        }
        place.set(found);
        Ok(())
    }

    add_kernel(place: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, node: In<KernelNode1>)
    [cuGraphAddKernelNode Legacy] {
        add(place, graph, after, count, || node.read("the node")?.work())
    }

    add_kernel_2(place: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, node: In<KernelNode2>)
    [cuGraphAddKernelNode_v2 Legacy] {
        add(place, graph, after, count, || node.read("the node")?.work())
    }

    add_copy(place: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, copy: In<Copy3d>, context: Handle)
    [cuGraphAddMemcpyNode Legacy] {
        context_or_current(context)?;
        add(place, graph, after, count, || copy_work(copy))
    }

    add_fill(place: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, node: In<FillNode>, context: Handle)
    [cuGraphAddMemsetNode Legacy] {
        context_or_current(context)?;
        add(place, graph, after, count, || node.read("the node")?.work())
    }

    add_host(place: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, node: In<HostNode>)
    [cuGraphAddHostNode Legacy] {
        add(place, graph, after, count, || node.read("the node")?.work())
    }

    add_graph(place: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, child: Handle)
    [cuGraphAddChildGraphNode Legacy] {
        add(place, graph, after, count, || graph_of(child)?.sequence())
    }

    add_empty(place: Out<Handle>, graph: Handle, after: In<Handle>, count: usize) [cuGraphAddEmptyNode Legacy] {
        add(place, graph, after, count, || Ok(Work::Empty))
    }

    destroy_node(node: Handle) [cuGraphDestroyNode Legacy] {
        let (graph, index) = node_of(node)?;
        graph.remove(index)
    }

    set_kernel(node: Handle, parameters: In<KernelNode1>) [cuGraphKernelNodeSetParams Legacy] {
        change_node(node, || parameters.read("the node")?.work())
    }

    set_kernel_2(node: Handle, parameters: In<KernelNode2>) [cuGraphKernelNodeSetParams_v2 Legacy] {
        change_node(node, || parameters.read("the node")?.work())
    }

    set_copy(node: Handle, copy: In<Copy3d>) [cuGraphMemcpyNodeSetParams Legacy] {
        change_node(node, || copy_work(copy))
    }

    set_fill(node: Handle, parameters: In<FillNode>) [cuGraphMemsetNodeSetParams Legacy] {
        change_node(node, || parameters.read("the node")?.work())
    }

    set_host(node: Handle, parameters: In<HostNode>) [cuGraphHostNodeSetParams Legacy] {
        change_node(node, || parameters.read("the node")?.work())
    }

    node_type(node: Handle, place: Out<u32>) [cuGraphNodeGetType Legacy] {
        let place = place.need("the place for the type")?;
        let (graph, index) = node_of(node)?;
        place.set(match graph.work(index)? {
            Work::Launch(_) => 0,
            Work::Copy(_) => 1,
            Work::Fill(_) => 2,
            Work::Host(_) => 3,
            Work::Sequence(_) => 4,
            Work::Empty => 5,
        });
        Ok(())
    }

    nodes(graph: Handle, places: Out<Handle>, count: Out<usize>) [cuGraphGetNodes Legacy] {
        list(places, count, &graph_of(graph)?.nodes())
    }

    roots(graph: Handle, places: Out<Handle>, count: Out<usize>) [cuGraphGetRootNodes Legacy] {
        list(places, count, &graph_of(graph)?.roots())
    }

    edges_1(graph: Handle, from: Out<Handle>, to: Out<Handle>, count: Out<usize>) [cuGraphGetEdges Legacy] {
        edges(graph, from, to, count)
    }

    edges_2(graph: Handle, from: Out<Handle>, to: Out<Handle>, data: Out<u64>, count: Out<usize>)
    [cuGraphGetEdges_v2 Legacy] {
        // All edges are plain ones, whose data is zero.
        let room = count.read("the place for the count")?;
        edges(graph, from, to, count)?;
        if !data.is_null() {
            (0..count.read("the count")?.min(room)).for_each(|at| data.at(at).set(0));
        }
        Ok(())
    }

    dependencies(node: Handle, places: Out<Handle>, count: Out<usize>) [cuGraphNodeGetDependencies Legacy] {
        neighbours(node, places, count, true)
    }

    dependents(node: Handle, places: Out<Handle>, count: Out<usize>) [cuGraphNodeGetDependentNodes Legacy] {
        neighbours(node, places, count, false)
    }

    add_edges(graph: Handle, from: In<Handle>, to: In<Handle>, count: usize) [cuGraphAddDependencies Legacy] {
        change_edges(graph, from, to, count, true)
    }

    add_edges_2(graph: Handle, from: In<Handle>, to: In<Handle>, data: In<u64>, count: usize)
    [cuGraphAddDependencies_v2 Legacy] {
        let _ = data;
        change_edges(graph, from, to, count, true)
    }

    remove_edges(graph: Handle, from: In<Handle>, to: In<Handle>, count: usize) [cuGraphRemoveDependencies Legacy] {
        change_edges(graph, from, to, count, false)
    }

    remove_edges_2(graph: Handle, from: In<Handle>, to: In<Handle>, data: In<u64>, count: usize)
    [cuGraphRemoveDependencies_v2 Legacy] {
        let _ = data;
        change_edges(graph, from, to, count, false)
    }

    instantiate_2(place: Out<Handle>, graph: Handle, node: Out<Handle>, log: *mut c_char, room: usize)
    [cuGraphInstantiate Legacy] [cuGraphInstantiate_v2 Legacy] {
        let _ = (log, room);
        node.set(0);
        instantiate(place, graph, 0)
    }

    instantiate_with_flags(place: Out<Handle>, graph: Handle, flags: u64) [cuGraphInstantiateWithFlags Legacy] {
        instantiate(place, graph, flags)
    }

    instantiate_with_parameters(place: Out<Handle>, graph: Handle, parameters: Out<[u64; 4]>)
    [cuGraphInstantiateWithParams Legacy] [cuGraphInstantiateWithParams_ptsz PerThread] {
        // CUDA_GRAPH_INSTANTIATE_PARAMS: flags, stream for the upload, node with an error, result.
        let [flags, stream, ..] = parameters.read("the parameters")?;
        let done = instantiate(place, graph, flags);
        parameters.set([flags, stream, 0, u64::from(done.is_err())]);
        done
    }

    upload(order @ executable: Handle, stream: Handle) [cuGraphUpload Legacy] [cuGraphUpload_ptsz PerThread] {
        executable_of(executable)?;
        stream_of(order, stream).map(drop)
    }

    launch(order @ executable: Handle, stream: Handle) [cuGraphLaunch Legacy] [cuGraphLaunch_ptsz PerThread] {
        let executable = executable_of(executable)?;
        let (context, stream) = stream_of(order, stream)?;
        executable.launch(&context, &stream)
    }

    destroy_executable(executable: Handle) [cuGraphExecDestroy Legacy] {
        executable_of(executable)?.destroy()
    }

    flags(executable: Handle, place: Out<u64>) [cuGraphExecGetFlags Legacy] {
        let place = place.need("the place for the flags")?;
        place.set(executable_of(executable)?.flags);
        Ok(())
    }

    change_kernel(executable: Handle, node: Handle, parameters: In<KernelNode1>)
    [cuGraphExecKernelNodeSetParams Legacy] {
        change(executable, node, || parameters.read("the node")?.work())
    }

    change_kernel_2(executable: Handle, node: Handle, parameters: In<KernelNode2>)
    [cuGraphExecKernelNodeSetParams_v2 Legacy] {
        change(executable, node, || parameters.read("the node")?.work())
    }

    change_copy(executable: Handle, node: Handle, copy: In<Copy3d>, context: Handle)
    [cuGraphExecMemcpyNodeSetParams Legacy] {
        context_or_current(context)?;
        change(executable, node, || copy_work(copy))
    }

    change_fill(executable: Handle, node: Handle, parameters: In<FillNode>, context: Handle)
    [cuGraphExecMemsetNodeSetParams Legacy] {
        context_or_current(context)?;
        change(executable, node, || parameters.read("the node")?.work())
    }

    change_host(executable: Handle, node: Handle, parameters: In<HostNode>) [cuGraphExecHostNodeSetParams Legacy] {
        change(executable, node, || parameters.read("the node")?.work())
    }

    change_graph(executable: Handle, node: Handle, child: Handle) [cuGraphExecChildGraphNodeSetParams Legacy] {
        change(executable, node, || graph_of(child)?.sequence())
    }

    update_1(executable: Handle, graph: Handle, node: Out<Handle>, result: Out<u32>) [cuGraphExecUpdate Legacy] {
        let done = executable_of(executable)?.update(&*graph_of(graph)?);
        node.set(0);
        // CU_GRAPH_EXEC_UPDATE_SUCCESS, _ERROR_TOPOLOGY_CHANGED.
        result.set(if done.is_ok() { 0 } else { 2 });
        done
    }

    update_2(executable: Handle, graph: Handle, result: Out<[u64; 3]>) [cuGraphExecUpdate_v2 Legacy] {
        let result = result.need("the place for the result")?;
        let done = executable_of(executable)?.update(&*graph_of(graph)?);
        result.set([if done.is_ok() { 0 } else { 2 }, 0, 0]);
        done
    }
}
