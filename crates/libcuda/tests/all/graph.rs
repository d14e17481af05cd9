//! Graphs: what nodes say of themselves, child graphs, memory, attributes, updates.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::support::*;
use crate::sweep::{call, make};

/// The address of a variable, as a word.
fn at<T>(value: &mut T) -> u64 {
    core::ptr::from_mut(value).expose_provenance() as u64
}

/// A graph with a node of a kernel that adds vectors of `count` elements.
fn adding(setup: &Setup, [mut a, mut b, mut c]: [u64; 3], mut count: u32) -> (u64, u64) {
    let graph = make("cuGraphCreate", [0]);
    let mut pointers = [at(&mut a), at(&mut b), at(&mut c), at(&mut count)];
    let sizes = [1 | 1 << 32, 1 | 256 << 32, 1 | 1 << 32, 0];
    let mut words = [setup.add as u64, sizes[0], sizes[1], sizes[2], sizes[3], at(&mut pointers), 0];
    (graph, make("cuGraphAddKernelNode", [graph, 0, 0, at(&mut words)]))
}

/// What a function writes after a node.
#[track_caller]
fn of<const N: usize>(symbol: &str, node: u64) -> [u64; N] {
    let mut words = [0; N];
    ok(call(symbol, [node, at(&mut words)]));
    words
}

#[test]
fn nodes_return_their_parameters() {
    let setup = Setup::new();
    let addresses = [upload(&[1.0; 256]), upload(&[2.0; 256]), upload(&[0.0; 256])];
    let (graph, kernel) = adding(&setup, addresses, 256);
    let words = of::<7>("cuGraphKernelNodeGetParams", kernel);
    assert_eq!((words[0], words[2]), (setup.add as u64, 1 | 256 << 32));
    let parameter = |index: usize| {
        let list: *const *const u64 = core::ptr::with_exposed_provenance(words[5] as usize);
        // SAFETY: the node keeps the list and the parameters.
        unsafe { list.add(index).read().read_unaligned() }
    };
    assert_eq!([parameter(0), parameter(1), parameter(2)], addresses);
    assert_eq!(of::<9>("cuGraphKernelNodeGetParams_v2", kernel)[5..7], words[5..]);

    let mut fill = [addresses[2], 0, 0x3f80_0000 | 4 << 32, 256, 1];
    let fill_node = make("cuGraphAddMemsetNode", [graph, at(&mut { kernel }), 1, at(&mut fill), 0]);
    assert_eq!(of::<5>("cuGraphMemsetNodeGetParams", fill_node), fill);
    gives(call("cuGraphMemsetNodeGetParams", [kernel, at(&mut fill)]), 1);

    extern "C" fn nothing(_: *mut core::ffi::c_void) {}
    let mut host = [nothing as *const () as u64, 77];
    let host_node = make("cuGraphAddHostNode", [graph, 0, 0, at(&mut host)]);
    assert_eq!(of::<2>("cuGraphHostNodeGetParams", host_node), host);
    let any = of::<32>("cuGraphNodeGetParams", host_node);
    assert_eq!((any[0], &any[2..4]), (3, &host[..]));

    // A copy of one row from the device to the host.
    let mut row = [0.0_f32; 256];
    let mut copy = [0; 25];
    (copy[4], copy[6], copy[15], copy[16]) = (2, addresses[0], 1, at(&mut row));
    copy[22..].copy_from_slice(&[1024, 1, 1]);
    let copy_node = make("cuGraphAddMemcpyNode", [graph, 0, 0, at(&mut copy), 0]);
    let words = of::<25>("cuGraphMemcpyNodeGetParams", copy_node);
    assert_eq!((words[6], words[16], &words[22..]), (addresses[0], at(&mut row), &[1024, 1, 1][..]));

    let path = std::env::temp_dir().join(format!("orin-graph-{}.dot", std::process::id()));
    let name = std::ffi::CString::new(path.to_str().expect("a path in UTF-8")).expect("no zero byte");
    ok(call("cuGraphDebugDotPrint", [graph, name.as_ptr().expose_provenance() as u64, 0]));
    gives(call("cuGraphDebugDotPrint", [graph, 0, 0]), 1);
    gives(call("cuGraphDebugDotPrint", [kernel, name.as_ptr().expose_provenance() as u64, 0]), 1);
    let text = std::fs::read_to_string(&path).expect("the file is written");
    std::fs::remove_file(&path).expect("the file is there");
    assert!(text.contains("vector_add") && text.contains("n0 -> n1"), "{text}");
    gives(
        call("cuGraphDebugDotPrint", [graph, c"/no/such/folder/x".as_ptr().expose_provenance() as u64, 0]),
        304,
    );
}

#[test]
fn child_graphs_belong_to_their_node() {
    let setup = Setup::new();
    let addresses = [upload(&[1.0; 256]), upload(&[2.0; 256]), upload(&[0.0; 256])];
    let (graph, kernel) = adding(&setup, addresses, 256);
    let parent = make("cuGraphCreate", [0]);
    let node = make("cuGraphAddChildGraphNode", [parent, 0, 0, graph]);
    let [child] = of::<1>("cuGraphChildGraphNodeGetGraph", node);
    assert_ne!(child, graph);
    let copied = make("cuGraphNodeFindInClone", [kernel, child]);
    // A change of the child counts for what is instantiated later; the original is not concerned.
    let executable = make("cuGraphInstantiateWithFlags", [parent, 0]);
    ok(call("cuGraphDestroyNode", [copied]));
    let without = make("cuGraphInstantiateWithFlags", [parent, 0]);
    ok(call("cuGraphLaunch", [without, 0]));
    assert_eq!(download::<f32>(addresses[2], 2), [0.0; 2]);
    ok(call("cuGraphLaunch", [executable, 0]));
    assert_eq!(download::<f32>(addresses[2], 2), [3.0; 2]);
    gives(call("cuGraphAddChildGraphNode", [at(&mut 0_u64), parent, 0, 0, parent]), 1);
    ok(call("cuGraphDestroy", [parent]));
    gives(call("cuGraphDestroy", [child]), 1);
    ok(call("cuGraphDestroy", [graph]));
}

/// The program's data of a graph is that of the copy in a node too, until the copy loses it or ends.
#[test]
fn child_graphs_have_user_objects_of_their_own() {
    let _setup = Setup::new();
    static DESTROYED: AtomicU32 = AtomicU32::new(0);
    extern "C" fn destroy(_: *mut core::ffi::c_void) {
        DESTROYED.fetch_add(1, Ordering::SeqCst);
    }
    let destroyed = || DESTROYED.load(Ordering::SeqCst);
    let object = || make("cuUserObjectCreate", [0, destroy as *const () as u64, 1, 1]);
    let [inner, outer] = [(); 2].map(|()| make("cuGraphCreate", [0]));
    let [first, second, third] = [(); 3].map(|()| object());
    for object in [first, second] {
        ok(call("cuGraphRetainUserObject", [inner, object, 1, 1]));
    }
    let node = make("cuGraphAddChildGraphNode", [outer, 0, 0, inner]);
    ok(call("cuGraphDestroy", [inner]));
    let [child] = of::<1>("cuGraphChildGraphNodeGetGraph", node);
    gives(call("cuGraphReleaseUserObject", [outer, first, 1]), 1);
    ok(call("cuGraphReleaseUserObject", [child, first, 1]));
    assert_eq!(destroyed(), 1);

    // An executable graph has all, also those of a graph that replaces the node's.
    let executable = make("cuGraphInstantiateWithFlags", [outer, 0]);
    let other = make("cuGraphCreate", [0]);
    ok(call("cuGraphRetainUserObject", [other, third, 1, 1]));
    ok(call("cuGraphExecChildGraphNodeSetParams", [executable, node, other]));
    ok(call("cuGraphDestroy", [other]));
    ok(call("cuGraphDestroyNode", [node]));
    assert_eq!(destroyed(), 1);
    ok(call("cuGraphExecDestroy", [executable]));
    assert_eq!(destroyed(), 3);
}

#[test]
fn attributes_and_updates_of_kernels() {
    let setup = Setup::new();
    let addresses = [upload(&[1.0; 256]), upload(&[2.0; 256]), upload(&[0.0; 256])];
    let ((graph, kernel), (other, second)) = (adding(&setup, addresses, 1), adding(&setup, addresses, 256));
    let mut value = [5, 0, 0, 0, 0, 0, 0, 0_u64];
    ok(call("cuGraphKernelNodeSetAttribute", [kernel, 8, at(&mut value)]));
    ok(call("cuGraphKernelNodeCopyAttributes", [second, kernel]));
    value = [0; 8];
    ok(call("cuGraphKernelNodeGetAttribute", [second, 8, at(&mut value)]));
    assert_eq!(value[0], 5);
    gives(call("cuGraphKernelNodeSetAttribute", [kernel, 99, at(&mut value)]), 1);
    value = [2 | 1 << 32, 1, 0, 0, 0, 0, 0, 0];
    gives(call("cuGraphKernelNodeSetAttribute", [kernel, 4, at(&mut value)]), 912);
    ok(call("cuGraphKernelNodeGetAttribute", [kernel, 4, at(&mut value)]));
    assert_eq!(value, [1 | 1 << 32, 1, 0, 0, 0, 0, 0, 0]);
    ok(call("cuGraphKernelNodeSetAttribute", [kernel, 4, at(&mut value)]));

    let executable = make("cuGraphInstantiateWithFlags", [graph, 0]);
    let mut result = [9_u64; 3];
    ok(call("cuGraphExecUpdate_v2", [executable, other, at(&mut result)]));
    assert_eq!(result, [0; 3]);
    ok(call("cuGraphLaunch", [executable, 0]));
    assert_eq!(download::<f32>(addresses[2], 256), [3.0; 256]);
    let empty = make("cuGraphCreate", [0]);
    gives(call("cuGraphExecUpdate_v2", [executable, empty, at(&mut result)]), 910);
    assert_eq!(result[0], 2, "the topology");
    make("cuGraphAddEmptyNode", [empty, 0, 0]);
    gives(call("cuGraphExecUpdate_v2", [executable, empty, at(&mut result)]), 910);
    assert_eq!(result[0], 3, "the type of a node");

    let mut conditional = [0; 32];
    conditional[0] = 13;
    gives(call("cuGraphAddNode_v2", [at(&mut 0_u64), graph, 0, 0, 0, at(&mut conditional)]), 801);
}

/// Edges of programmatic launches are plain ones; the work of a child graph is between what is before and after it.
#[test]
fn child_graphs_and_programmatic_edges_keep_the_order() {
    let setup = Setup::new();
    let [x, y] = [upload(&[1.0; 256]), upload(&[0.0; 256])];
    let add = |graph: u64, [a, b, sum]: [u64; 3], mut before: u64, count: u64, edge: u64| {
        let mut values = [a, b, sum, 256];
        let mut list = [0, 1, 2, 3].map(|index: usize| at(&mut values) + 8 * index as u64);
        let mut node = [0_u64; 32];
        node[0] = 0;
        // Function, grid and block, shared memory, parameters.
        node[2..8].copy_from_slice(&[
            setup.add as u64,
            1 | 1 << 32,
            1 | 256 << 32,
            1 | 1 << 32,
            0,
            at(&mut list),
        ]);
        let (mut made, mut data) = (0_u64, edge);
        let words = [at(&mut made), graph, at(&mut before), at(&mut data), count, at(&mut node)];
        (call("cuGraphAddNode_v2", words), made)
    };
    // x = 2, then twice (y = x + y, x = x + y) in a child of a child, then y = x + x.
    let inner = make("cuGraphCreate", [0]);
    let (result, first) = add(inner, [x, y, y], 0, 0, 0);
    ok(result);
    let programmatic = 1 | 1 << 16;
    ok(add(inner, [x, y, x], first, 1, programmatic).0);
    for wrong in [1, 1 << 16, 3 | 1 << 16, 1 | 1 << 8 | 1 << 16, 1 | 2 << 16, 1 << 40] {
        gives(add(inner, [x, y, x], first, 1, wrong).0, 1);
    }
    let outer = make("cuGraphCreate", [0]);
    let mut before = make("cuGraphAddChildGraphNode", [outer, 0, 0, inner]);
    make("cuGraphAddChildGraphNode", [outer, at(&mut before), 1, inner]);
    let graph = make("cuGraphCreate", [0]);
    let (_, double) = add(graph, [x, x, x], 0, 0, 0);
    let child = make("cuGraphAddChildGraphNode", [graph, at(&mut { double }), 1, outer]);
    let nothing = make("cuGraphCreate", [0]);
    let empty = make("cuGraphAddChildGraphNode", [graph, at(&mut { child }), 1, nothing]);
    ok(add(graph, [x, x, y], empty, 1, 0).0);
    let executable = make("cuGraphInstantiateWithFlags", [graph, 0]);
    let (mut expected_x, mut expected_y) = (1.0_f32, 0.0_f32);
    for launch in 0..4 {
        ok(call("cuGraphLaunch", [executable, 0]));
        expected_x += expected_x;
        for _ in 0..2 {
            expected_y += expected_x;
            expected_x += expected_y;
        }
        expected_y = expected_x + expected_x;
        assert_eq!(download::<f32>(x, 1), [expected_x], "{launch}");
        assert_eq!(download::<f32>(y, 1), [expected_y], "{launch}");
    }
}

#[test]
fn a_context_ends_with_its_objects_and_leaves_those_of_others() {
    let _setup = Setup::new();
    let objects = || {
        let graph = make("cuGraphCreate", [0]);
        make("cuGraphAddEmptyNode", [graph, 0, 0]);
        [
            make("cuStreamCreate", [0]),
            make("cuEventCreate", [0]),
            graph,
            make("cuGraphInstantiateWithFlags", [graph, 0]),
        ]
    };
    let state = |[stream, event, graph, executable]: [u64; 4]| {
        let mut word = 0_u64;
        [
            call("cuStreamQuery", [stream]),
            call("cuEventQuery", [event]),
            call("cuGraphGetNodes", [graph, 0, at(&mut word)]),
            call("cuGraphExecGetFlags", [executable, at(&mut word)]),
        ]
    };
    let own = objects();
    let other = make("cuCtxCreate_v2", [0, 0]);
    let gone = objects();
    assert_eq!((state(own), state(gone)), ([0; 4], [0; 4]));
    ok(call("cuCtxDestroy_v2", [other]));
    assert_eq!((state(own), state(gone)), ([0; 4], [400, 400, 1, 1]));
}

/// From the second launch on, kernels in a row are one submission, unless their recorded form is in use; a change of
/// the graph makes another.
#[test]
fn graphs_are_launched_many_times() {
    let setup = Setup::new();
    let [x, y, z] = [upload(&[0.0; 256]), upload(&[1.0; 256]), upload(&[0.0; 256])];
    // x += y, x += y, z = 4, x += z, x += y.
    let ([mut sum, mut one, mut four, mut count], sizes) =
        ([x, y, z, 256], [1 | 1 << 32, 1 | 256 << 32, 1 | 1 << 32]);
    let (mut own, mut other) = (
        [at(&mut sum), at(&mut one), at(&mut sum), at(&mut count)],
        [at(&mut sum), at(&mut four), at(&mut sum), at(&mut count)],
    );
    let parameters = |list: &mut [u64; 4]| [setup.add as u64, sizes[0], sizes[1], sizes[2], 0, at(list), 0];
    let graph = make("cuGraphCreate", [0]);
    let mut fill = [z, 0, 0x4080_0000 | 4 << 32, 256, 1];
    let mut nodes = Vec::new();
    for step in 0..5 {
        let mut before = nodes.last().copied().unwrap_or_default();
        let words = [graph, at(&mut before), u64::from(step > 0)];
        nodes.push(match step {
            2 => make("cuGraphAddMemsetNode", [words[0], words[1], words[2], at(&mut fill), 0]),
            3 => {
                make("cuGraphAddKernelNode", [words[0], words[1], words[2], at(&mut parameters(&mut other))])
            }
            _ => make("cuGraphAddKernelNode", [words[0], words[1], words[2], at(&mut parameters(&mut own))]),
        });
    }
    let executable = make("cuGraphInstantiateWithFlags", [graph, 0]);
    let launch = |times: usize| {
        for _ in 0..times {
            ok(call("cuGraphLaunch", [executable, 0]));
        }
        download::<f32>(x, 256)
    };
    assert_eq!(launch(1), [7.0; 256]);
    assert_eq!(launch(2), [21.0; 256]);
    assert_eq!(launch(20), [161.0; 256], "more than are recorded");
    ok(call("cuGraphNodeSetEnabled", [executable, nodes[0], 0]));
    assert_eq!(launch(3), [179.0; 256]);
    own[1] = at(&mut four);
    ok(call("cuGraphExecKernelNodeSetParams", [executable, nodes[4], at(&mut parameters(&mut own))]));
    assert_eq!(launch(2), [197.0; 256]);
    ok(call("cuGraphExecUpdate_v2", [executable, graph, at(&mut [0_u64; 3])]));
    assert_eq!(launch(2), [209.0; 256], "the first node is still disabled");
    ok(call("cuGraphExecDestroy", [executable]));
    let uploaded = make("cuGraphInstantiateWithFlags", [graph, 0]);
    ok(call("cuGraphUpload", [uploaded, 0]));
    ok(call("cuGraphLaunch", [uploaded, 0]));
    assert_eq!(download::<f32>(x, 256), [216.0; 256]);
    ok(call("cuGraphExecDestroy", [uploaded]));
}

/// Memory of a graph: figures of the device, launches, and who may free it.
#[test]
fn graphs_allocate_memory() {
    let setup = Setup::new();
    let figure = |number| {
        let mut value = 0_u64;
        ok(call("cuDeviceGetGraphMemAttribute", [0, number, at(&mut value)]));
        value
    };
    let graph = make("cuGraphCreate", [0]);
    let mut allocation = [0; 15];
    (allocation[0], allocation[1], allocation[13]) = (1, 1, 1024);
    let node = make("cuGraphAddMemAllocNode", [graph, 0, 0, at(&mut allocation)]);
    let address = allocation[14];
    assert_eq!(of::<15>("cuGraphMemAllocNodeGetParams", node), allocation);
    allocation[13] = 0;
    gives(call("cuGraphAddMemAllocNode", [at(&mut 0_u64), graph, 0, 0, at(&mut allocation)]), 1);
    let mut fill = [address, 0, 0x4000_0000 | 4 << 32, 256, 1];
    let filling = make("cuGraphAddMemsetNode", [graph, at(&mut { node }), 1, at(&mut fill), 0]);
    gives(call("cuGraphClone", [at(&mut 0_u64), graph]), 801);
    gives(call("cuGraphDestroyNode", [filling]), 801);
    gives(call("cuGraphRemoveDependencies", [graph, at(&mut { node }), at(&mut { filling }), 1]), 801);
    gives(call("cuMemFree_v2", [address]), 1);

    let executable = make("cuGraphInstantiateWithFlags", [graph, 0]);
    gives(call("cuGraphInstantiateWithFlags", [at(&mut 0_u64), graph, 0]), 801);
    ok(call("cuGraphLaunch", [executable, 0]));
    assert_eq!((figure(0), figure(2)), (1024, 1024));
    assert_eq!(download::<f32>(address, 256), [2.0; 256]);
    gives(call("cuGraphLaunch", [executable, 0]), 1);
    ok(call("cuMemFreeAsync", [address, 0]));
    ok(call("cuGraphLaunch", [executable, 0]));
    ok(call("cuGraphExecDestroy", [executable]));
    let again = make("cuGraphInstantiateWithFlags", [graph, 1]);
    ok(call("cuGraphLaunch", [again, 0]));
    ok(call("cuGraphLaunch", [again, 0]));

    // Another graph frees it; it stays until then, also without its own graph.
    ok(call("cuGraphExecDestroy", [again]));
    ok(call("cuGraphDestroy", [graph]));
    let freeing = make("cuGraphCreate", [0]);
    let free = make("cuGraphAddMemFreeNode", [freeing, 0, 0, address]);
    assert_eq!(of::<1>("cuGraphMemFreeNodeGetParams", free), [address]);
    let executable = make("cuGraphInstantiateWithFlags", [freeing, 0]);
    ok(call("cuGraphLaunch", [executable, 0]));
    assert_eq!((figure(0), figure(2), figure(1)), (0, 0, 1024));
    gives(call("cuMemFree_v2", [address]), 1);
    gives(call("cuGraphAddMemFreeNode", [at(&mut 0_u64), freeing, 0, 0, address]), 1);

    // Managed memory, which the CPU sees.
    let graph = make("cuGraphCreate", [0]);
    (allocation[0], allocation[13]) = (2, 1024);
    let node = make("cuGraphAddMemAllocNode", [graph, 0, 0, at(&mut allocation)]);
    let address = allocation[14];
    assert_eq!(of::<15>("cuGraphMemAllocNodeGetParams", node), allocation);
    fill[0] = address;
    make("cuGraphAddMemsetNode", [graph, at(&mut { node }), 1, at(&mut fill), 0]);
    let executable = make("cuGraphInstantiateWithFlags", [graph, 0]);
    ok(call("cuGraphLaunch", [executable, 0]));
    ok(call("cuCtxSynchronize", []));
    let first: *const f32 = core::ptr::with_exposed_provenance(address as usize);
    // SAFETY: the memory of the launch, whose work has ended.
    assert_eq!(unsafe { first.read_volatile() }, 2.0);
    let mut managed = 0_u8;
    ok(call("cuPointerGetAttribute", [at(&mut managed), 8, address]));
    assert_eq!(managed, 1);
    ok(call("cuMemFreeAsync", [address, 0]));
    allocation[0] = 2 | 1 << 32;
    gives(call("cuGraphAddMemAllocNode", [at(&mut 0_u64), graph, 0, 0, at(&mut allocation)]), 1);

    // Captured, and freed by the same graph: launched as often as wanted.
    let stream = make("cuStreamCreate", [0]);
    ok(call("cuStreamBeginCapture_v2", [stream, 0]));
    let address = make("cuMemAllocAsync", [1024, stream]);
    assert_eq!(make("cuMemAllocAsync", [0, stream]), 0, "no memory");
    ok(call("cuMemFreeAsync", [0, stream]));
    ok(call("cuMemsetD32Async", [address, 7, 256, stream]));
    let row = upload(&[0.0; 256]);
    ok(call("cuMemcpyDtoDAsync_v2", [row, address, 1024, stream]));
    ok(call("cuMemFreeAsync", [address, stream]));
    gives(call("cuMemFreeAsync", [row, stream]), 1);
    let mut graph = 0_u64;
    ok(call("cuStreamEndCapture", [stream, at(&mut graph)]));
    let executable = make("cuGraphInstantiateWithFlags", [graph, 0]);
    let before = figure(0);
    ok(call("cuGraphLaunch", [executable, stream]));
    ok(call("cuGraphLaunch", [executable, stream]));
    assert_eq!(figure(0), before + 1024, "memory counts while its graph is there");
    ok(call("cuStreamSynchronize", [stream]));
    assert_eq!(download::<u32>(row, 256), [7; 256]);
    ok(call("cuGraphExecDestroy", [executable]));
    ok(call("cuGraphDestroy", [graph]));
    assert_eq!(figure(0), before);
    drop(setup);
}

/// Launches the addition of two vectors of 256 elements.
fn launch(setup: &Setup, [mut a, mut b, mut c]: [u64; 3], stream: u64) {
    let mut count = 256_u32;
    let mut pointers = [at(&mut a), at(&mut b), at(&mut c), at(&mut count)];
    let list = at(&mut pointers);
    ok(call("cuLaunchKernel", [setup.add as u64, 1, 1, 1, 256, 1, 1, 0, stream, list, 0]));
}

#[test]
fn captures_fork_and_join_through_events() {
    let setup = Setup::new();
    let [one, two, left, right, sum] = [1.0, 2.0, 0.0, 0.0, 0.0].map(|value: f32| upload(&[value; 256]));
    let [first, second] = [1, 1].map(|flags| make("cuStreamCreate", [flags]));
    let [fork, join] = [2, 2].map(|flags| make("cuEventCreate", [flags]));
    let mut graph = 0_u64;
    for joined in [false, true] {
        ok(call("cuStreamBeginCapture_v2", [first, 0]));
        ok(call("cuEventRecord", [fork, first]));
        ok(call("cuStreamWaitEvent", [second, fork, 0]));
        // Both streams capture now, side by side.
        launch(&setup, [one, one, left], first);
        let (mut status, mut list, mut data, mut count) = (0_u32, 0_usize, 0_usize, 0_u64);
        let places = [at(&mut list), at(&mut data), at(&mut count)];
        let words = [first, at(&mut status), 0, 0, places[0], places[1], places[2]];
        ok(call("cuStreamGetCaptureInfo_v3", words));
        let read = |address: usize| {
            let word: *const u64 = core::ptr::with_exposed_provenance(address);
            // SAFETY: the lists live until the next call that asks for them.
            unsafe { word.read() }
        };
        assert_eq!((status, count), (1, 1));
        assert_ne!(read(list), 0);
        assert_eq!(read(data), 0);
        launch(&setup, [two, two, right], second);
        ok(call("cuEventRecord", [join, second]));
        // The other stream did not begin the capture.
        gives(call("cuStreamEndCapture", [second, at(&mut graph)]), 903);
        if joined {
            ok(call("cuStreamWaitEvent", [first, join, 0]));
            launch(&setup, [left, right, sum], first);
        }
        let expected = if joined { 0 } else { 904 };
        gives(call("cuStreamEndCapture", [first, at(&mut graph)]), expected);
    }
    // Nodes of a capture get their handles when somebody asks for them, and keep them.
    let mut edges = 2_u64;
    let mut pairs = [[0_u64; 2]; 2];
    let [from, to] = pairs.each_mut().map(at);
    ok(call("cuGraphGetEdges", [graph, from, to, at(&mut edges)]));
    let mut nodes = [0_u64; 3];
    ok(call("cuGraphGetNodes", [graph, at(&mut nodes), at(&mut 3_u64)]));
    assert_eq!(pairs, [[nodes[0], nodes[1]], [nodes[2]; 2]]);
    assert!(nodes.iter().all(|node| of::<1>("cuGraphNodeGetType", *node)[0] as u32 == 0));
    let mut roots = 0_u64;
    ok(call("cuGraphGetRootNodes", [graph, 0, at(&mut roots)]));
    assert_eq!((roots, edges), (2, 2), "the sum alone waits, for both");
    assert_eq!(download::<f32>(sum, 1), [0.0]);
    let executable = make("cuGraphInstantiateWithFlags", [graph, 0]);
    ok(call("cuGraphLaunch", [executable, first]));
    ok(call("cuStreamSynchronize", [first]));
    assert_eq!(download::<f32>(sum, 256), [6.0; 256]);
    for (symbol, handle) in [("cuGraphExecDestroy", executable), ("cuGraphDestroy", graph)] {
        ok(call(symbol, [handle]));
    }
    for (stream, event) in [(first, fork), (second, join)] {
        ok(call("cuStreamDestroy_v2", [stream]));
        ok(call("cuEventDestroy_v2", [event]));
    }
}

#[test]
fn branches_of_a_graph_give_the_results_of_its_order() {
    let setup = Setup::new();
    let [a, b, c, d, e] = [1.0, 2.0, 0.0, 0.0, 0.0].map(|value: f32| upload(&[value; 256]));
    let graph = make("cuGraphCreate", [0]);
    let add = |[mut x, mut y, mut z]: [u64; 3], after: &mut [u64]| {
        let mut count = 256_u32;
        let mut pointers = [at(&mut x), at(&mut y), at(&mut z), at(&mut count)];
        let words = [1 | 1 << 32, 1 | 256 << 32, 1 | 1 << 32, 0, at(&mut pointers), 0];
        let mut words = [&[setup.add as u64][..], &words].concat();
        let (list, count) = (after.as_mut_ptr().expose_provenance() as u64, after.len() as u64);
        make("cuGraphAddKernelNode", [graph, list, count, words.as_mut_ptr().expose_provenance() as u64])
    };
    // c = a + b; beside each other d = c + a and e = c + b; then a = d + e.
    let first = add([a, b, c], &mut []);
    let mut branches = [add([c, a, d], &mut [first]), add([c, b, e], &mut [first])];
    add([d, e, a], &mut branches);
    let executable = make("cuGraphInstantiateWithFlags", [graph, 0]);
    let mut expected = 1.0_f32;
    for _ in 0..4 {
        ok(call("cuGraphLaunch", [executable, 0]));
        // CAST: exact in 32 bits for four rounds.
        expected = (expected + 2.0 + expected) + (expected + 2.0 + 2.0);
        assert_eq!(download::<f32>(a, 256), [expected; 256]);
    }
    // Without the first branch the others keep their order.
    ok(call("cuGraphNodeSetEnabled", [executable, branches[0], 0]));
    let before = download::<f32>(d, 1)[0];
    for _ in 0..3 {
        ok(call("cuGraphLaunch", [executable, 0]));
        expected = before + (expected + 2.0 + 2.0);
        assert_eq!(download::<f32>(a, 256), [expected; 256]);
    }
}

#[test]
fn a_record_and_a_launch_with_a_wait_for_it_do_not_stop_each_other() {
    let _setup = Setup::new();
    let [event, stream] = [make("cuEventCreate", [0]), make("cuStreamCreate", [1])];
    let graph = make("cuGraphCreate", [0]);
    make("cuGraphAddEventWaitNode", [graph, 0, 0, event]);
    let executable = make("cuGraphInstantiateWithFlags", [graph, 0]);
    let mut context = 0_u64;
    ok(call("cuCtxGetCurrent", [at(&mut context)]));
    std::thread::scope(|scope| {
        for (symbol, words) in [("cuEventRecord", [event, stream]), ("cuGraphLaunch", [executable, stream])] {
            scope.spawn(move || {
                ok(call("cuCtxSetCurrent", [context]));
                (0..2000).for_each(|_| ok(call(symbol, words)));
            });
        }
    });
    ok(call("cuStreamSynchronize", [stream]));
}
