//! Graphs, and executable graphs.

use core::ffi::c_char;
use std::sync::Arc;

use orin_cuda_core::context::current;
use orin_cuda_core::{Code, Executable, Failure, Graph, Result, driver};

use crate::abi::{Handle, In, Out, Text};
use crate::call::api;
use crate::node::node_of;
use crate::stream::{check_edges, graph_of, places, stream_of};

pub(crate) fn executable_of(handle: Handle) -> Result<Arc<Executable>> {
    driver()?.objects.get::<Executable>(handle)
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

/// Writes a list of nodes, and the data of their edges: those of plain ones ([`check_edges`]), zero.
fn list_with_data(data: Out<u64>, count: Out<usize>, list: impl FnOnce() -> Result<()>) -> Result<()> {
    let room = count.read("the place for the count")?;
    list()?;
    if !data.is_null() {
        (0..count.read("the count")?.min(room)).for_each(|at| data.at(at).set(0));
    }
    Ok(())
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

    destroy_node(node: Handle) [cuGraphDestroyNode Legacy] {
        let (graph, index) = node_of(node)?;
        graph.remove(index)
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
        list_with_data(data, count, || edges(graph, from, to, count))
    }

    dependencies(node: Handle, places: Out<Handle>, count: Out<usize>) [cuGraphNodeGetDependencies Legacy] {
        neighbours(node, places, count, true)
    }

    dependents(node: Handle, places: Out<Handle>, count: Out<usize>) [cuGraphNodeGetDependentNodes Legacy] {
        neighbours(node, places, count, false)
    }

    dependencies_2(node: Handle, places: Out<Handle>, data: Out<u64>, count: Out<usize>)
    [cuGraphNodeGetDependencies_v2 Legacy] {
        list_with_data(data, count, || neighbours(node, places, count, true))
    }

    dependents_2(node: Handle, places: Out<Handle>, data: Out<u64>, count: Out<usize>)
    [cuGraphNodeGetDependentNodes_v2 Legacy] {
        list_with_data(data, count, || neighbours(node, places, count, false))
    }

    add_edges(graph: Handle, from: In<Handle>, to: In<Handle>, count: usize) [cuGraphAddDependencies Legacy] {
        change_edges(graph, from, to, count, true)
    }

    add_edges_2(graph: Handle, from: In<Handle>, to: In<Handle>, data: In<u64>, count: usize)
    [cuGraphAddDependencies_v2 Legacy] {
        check_edges(data, count)?;
        change_edges(graph, from, to, count, true)
    }

    remove_edges(graph: Handle, from: In<Handle>, to: In<Handle>, count: usize) [cuGraphRemoveDependencies Legacy] {
        change_edges(graph, from, to, count, false)
    }

    remove_edges_2(graph: Handle, from: In<Handle>, to: In<Handle>, data: In<u64>, count: usize)
    [cuGraphRemoveDependencies_v2 Legacy] {
        check_edges(data, count)?;
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
        executable_of(executable)?.upload();
        stream_of(order, stream).map(drop)
    }

    launch(order @ executable: Handle, stream: Handle) [cuGraphLaunch Legacy] [cuGraphLaunch_ptsz PerThread] {
        let (context, stream) = stream_of(order, stream)?;
        let Ok(executable) = executable_of(executable) else {
            stream.refuse_capture()?;
            return Err(Code::InvalidValue.into());
        };
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

    id(graph: Handle, place: Out<u32>) [cuGraphGetId Legacy] {
        let place = place.need("the place for the id")?;
        // CAST: CUDA's ids of graphs have 32 bits.
        place.set(graph_of(graph)?.id as u32);
        Ok(())
    }

    id_of_executable(executable: Handle, place: Out<u32>) [cuGraphExecGetId Legacy] {
        let place = place.need("the place for the id")?;
        // CAST: as above.
        place.set(executable_of(executable)?.id as u32);
        Ok(())
    }

    id_of_node(node: Handle, place: Out<u32>) [cuGraphNodeGetLocalId Legacy] {
        let place = place.need("the place for the id")?;
        // CAST: a graph has fewer nodes.
        place.set(node_of(node)?.1 as u32);
        Ok(())
    }

    graph_of_node(node: Handle, place: Out<Handle>) [cuGraphNodeGetContainingGraph Legacy] {
        let place = place.need("the place for the graph")?;
        place.set(node_of(node)?.0.handle());
        Ok(())
    }

    update_1(executable: Handle, graph: Handle, node: Out<Handle>, result: Out<u32>) [cuGraphExecUpdate Legacy] {
        node.set(0);
        update(executable, graph, result)
    }

    update_2(executable: Handle, graph: Handle, result: Out<[u64; 3]>) [cuGraphExecUpdate_v2 Legacy] {
        let result = result.need("the place for the result")?;
        result.set([0; 3]);
        update(executable, graph, result.cast())
    }

    dot(graph: Handle, path: Text, flags: u32) [cuGraphDebugDotPrint Legacy] {
        // Flags select what is printed in addition.
        let _ = flags;
        let (graph, path) = (graph_of(graph)?, path.get("the path")?);
        std::fs::write(path, graph.dot())
            .map_err(|error| Failure::new(Code::OperatingSystem, format!("{path}: {error}")))
    }

    tools_id(node: Handle, place: Out<u64>) [cuGraphNodeGetToolsId Legacy] {
        let place = place.need("the place for the id")?;
        node_of(node)?;
        place.set(node);
        Ok(())
    }
}

/// Takes a graph over into an executable one. Writes why not, as `CUgraphExecUpdateResult` says.
fn update(executable: Handle, graph: Handle, result: Out<u32>) -> Result<()> {
    let mismatch = executable_of(executable)?.update(&*graph_of(graph)?)?;
    // CAST: the numbers are those of the result.
    result.set(mismatch.map_or(0, |mismatch| mismatch as u32));
    mismatch.map_or(Ok(()), |_| Err(Code::GraphExecUpdateFailure.into()))
}
