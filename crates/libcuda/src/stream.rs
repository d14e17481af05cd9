//! Streams, events, host functions and capture.

use core::ffi::{c_int, c_void};
use std::sync::Arc;

use orin_cuda_core::context::current;
use orin_cuda_core::{
    Code, Context, Event, Failure, Graph, HostCall, Mode, Node, Recording, Result, Stream, StreamKind, Work,
    driver, query_recorded, record,
};

use crate::abi::{Handle, In, Ordinal, Out};
use crate::call::{Order, api};

/// CU_STREAM_LEGACY.
const LEGACY: Handle = 1;
/// CU_STREAM_PER_THREAD.
const PER_THREAD: Handle = 2;

/// The stream that a handle names, with its context.
pub(crate) fn stream_of(order: Order, handle: Handle) -> Result<(Arc<Context>, Arc<Stream>)> {
    let context = current()?;
    let stream = match handle {
        0 if order == Order::Legacy => Arc::clone(&context.legacy),
        LEGACY => Arc::clone(&context.legacy),
        0 | PER_THREAD => context.thread_stream(),
        _ => driver()?.objects.get::<Stream>(handle)?,
    };
    if stream.context() == context.handle {
        return Ok((context, stream));
    }
    let owner = driver()?.objects.get::<Context>(stream.context())?;
    owner.check()?;
    Ok((owner, stream))
}

fn event_of(handle: Handle) -> Result<(Arc<Context>, Arc<Event>)> {
    current()?;
    let event = driver()?.objects.get::<Event>(handle)?;
    let context = driver()?.objects.get::<Context>(event.context())?;
    Ok((context, event))
}

/// A function of the program and its argument, which is called on another thread.
struct Callback<F> {
    function: F,
    argument: *mut c_void,
}

// SAFETY: CUDA's interface calls the function with the argument on a thread of the driver; the program has agreed to
// that.
unsafe impl<F: Send> Send for Callback<F> {}
// SAFETY: as above.
unsafe impl<F: Sync> Sync for Callback<F> {}

pub(crate) type HostFunction = unsafe extern "C" fn(*mut c_void);
type StreamCallback = unsafe extern "C" fn(Handle, u32, *mut c_void);

/// A call of a function of the program.
pub(crate) fn host_function(function: Option<HostFunction>, argument: *mut c_void) -> Result<HostCall> {
    let function = function.ok_or_else(|| Failure::invalid("the function is NULL"))?;
    let program = [function as *const () as usize, argument.expose_provenance()];
    let callback = Callback { function, argument };
    let call = Arc::new(move || {
        let callback = &callback;
        // SAFETY: the program gave function and argument for this call.
        unsafe { (callback.function)(callback.argument) };
    });
    Ok(HostCall { call, program })
}

/// A capture, and the nodes that the next one depends on.
type Captured = (Arc<orin_cuda_core::Capture>, Vec<usize>);

fn capture_status(stream: &Stream) -> (u32, Option<Captured>) {
    // CU_STREAM_CAPTURE_STATUS_NONE, _ACTIVE, _INVALIDATED.
    match stream.captured() {
        Ok(None) => (0, None),
        Ok(Some(part)) => (1, Some(part)),
        Err(_) => (2, None),
    }
}

fn mode_of(mode: u32) -> Result<Mode> {
    match mode {
        0 => Ok(Mode::Global),
        1 => Ok(Mode::ThreadLocal),
        2 => Ok(Mode::Relaxed),
        _ => Err(Failure::invalid(format!("there is no capture mode {mode}"))),
    }
}

pub(crate) fn record_event(order: Order, event: Handle, handle: Handle) -> Result<()> {
    // CAST: one of two.
    record((handle, event, order as u8), || {
        let event = driver()?.objects.get::<Event>(event)?;
        let (context, stream) = stream_of(order, handle)?;
        Ok(Recording::new(context, stream, event))
    })
}

/// Where the nodes go that the next one of a capture depends on, the data of their edges, and their number.
type Dependencies = (Out<*const Handle>, Out<*const Handle>, Out<usize>);

/// Answers the questions about a capture. `dependencies` is written to storage that lives as long as the thread.
fn capture_info(
    order: Order,
    stream: Handle,
    status: Out<u32>,
    id: Out<u64>,
    graph: Out<Handle>,
    dependencies: Option<Dependencies>,
) -> Result<()> {
    let status = status.need("the place for the status")?;
    let (_, stream) = stream_of(order, stream)?;
    let (number, part) = capture_status(&stream);
    status.set(number);
    let Some((capture, frontier)) = part else { return Ok(()) };
    id.set(capture.id);
    graph.set(capture.graph.handle());
    if let Some((list, data, count)) = dependencies {
        std::thread_local! {
            static NODES: core::cell::RefCell<Vec<Handle>> = const { core::cell::RefCell::new(Vec::new()) };
        }
        let mut handles: Vec<_> = frontier.iter().map(|&node| capture.graph.node(node)).collect();
        let nodes = handles.len();
        count.set(nodes);
        // The data of plain edges is 8 bytes of zero, as many as a handle has.
        handles.resize(2 * nodes, 0);
        let stored = NODES.try_with(|stored| {
            *stored.borrow_mut() = handles;
            stored.borrow().as_ptr()
        });
        let stored = stored.map_err(|_| Code::Deinitialized)?;
        list.set(stored);
        data.set(stored.wrapping_add(nodes));
    }
    Ok(())
}

fn update_dependencies(
    order: Order,
    stream: Handle,
    nodes: In<Handle>,
    count: usize,
    flags: u32,
) -> Result<()> {
    if count > 0 && nodes.is_null() {
        return Err(Failure::invalid("the list of nodes is NULL"));
    }
    let (_, stream) = stream_of(order, stream)?;
    let part = stream.captured()?;
    let (capture, _) = part.ok_or_else(|| Failure::new(Code::IllegalState, "the stream is not capturing"))?;
    let places = places(&capture.graph, nodes, count)?;
    // CU_STREAM_ADD_CAPTURE_DEPENDENCIES, CU_STREAM_SET_CAPTURE_DEPENDENCIES.
    match flags {
        0 => stream.set_frontier(places, true),
        1 => stream.set_frontier(places, false),
        _ => Err(Failure::invalid(format!("flags {flags}"))),
    }
}

api! {
    create(place: Out<Handle>, flags: u32) [cuStreamCreate Legacy] {
        let place = place.need("the place for the stream")?;
        place.set(Stream::create(&*current()?, flags, 0)?.handle());
        Ok(())
    }

    create_with_priority(place: Out<Handle>, flags: u32, priority: c_int) [cuStreamCreateWithPriority Legacy] {
        let place = place.need("the place for the stream")?;
        place.set(Stream::create(&*current()?, flags, priority)?.handle());
        Ok(())
    }

    destroy(handle: Handle) [cuStreamDestroy Legacy] [cuStreamDestroy_v2 Legacy] {
        if handle <= PER_THREAD {
            return Err(Failure::new(Code::InvalidHandle, "a default stream is not destroyed"));
        }
        let stream = driver()?.objects.get::<Stream>(handle)?;
        let context = driver()?.objects.get::<Context>(stream.context())?;
        stream.destroy(&context)
    }

    synchronize(order @ handle: Handle) [cuStreamSynchronize Legacy] [cuStreamSynchronize_ptsz PerThread] {
        let (context, stream) = stream_of(order, handle)?;
        stream.synchronize(&context)
    }

    query(order @ handle: Handle) [cuStreamQuery Legacy] [cuStreamQuery_ptsz PerThread] {
        let (context, stream) = stream_of(order, handle)?;
        stream.query(&context)
    }

    wait_event(order @ handle: Handle, event: Handle, flags: u32)
    [cuStreamWaitEvent Legacy] [cuStreamWaitEvent_ptsz PerThread] {
        // CU_EVENT_WAIT_EXTERNAL concerns captures.
        if flags > 1 {
            return Err(Failure::invalid(format!("flags {flags} of a wait")));
        }
        let (context, stream) = stream_of(order, handle)?;
        let event = driver()?.objects.get::<Event>(event).map_err(|failure| stream.invalidate(failure))?;
        stream.wait_event(&context, &event)
    }

    priority(order @ handle: Handle, place: Out<c_int>)
    [cuStreamGetPriority Legacy] [cuStreamGetPriority_ptsz PerThread] {
        let place = place.need("the place for the priority")?;
        place.set(stream_of(order, handle)?.1.priority);
        Ok(())
    }

    flags(order @ handle: Handle, place: Out<u32>) [cuStreamGetFlags Legacy] [cuStreamGetFlags_ptsz PerThread] {
        let place = place.need("the place for the flags")?;
        place.set(stream_of(order, handle)?.1.flags());
        Ok(())
    }

    id(order @ handle: Handle, place: Out<u64>) [cuStreamGetId Legacy] [cuStreamGetId_ptsz PerThread] {
        let place = place.need("the place for the id")?;
        place.set(stream_of(order, handle)?.1.id);
        Ok(())
    }

    context(order @ handle: Handle, place: Out<Handle>) [cuStreamGetCtx Legacy] [cuStreamGetCtx_ptsz PerThread] {
        let place = place.need("the place for the context")?;
        place.set(stream_of(order, handle)?.0.handle);
        Ok(())
    }

    context_2(order @ handle: Handle, place: Out<Handle>, green: Out<Handle>)
    [cuStreamGetCtx_v2 Legacy] [cuStreamGetCtx_v2_ptsz PerThread] {
        let place = place.need("the place for the context")?;
        place.set(stream_of(order, handle)?.0.handle);
        green.set(0);
        Ok(())
    }

    device(order @ handle: Handle, place: Out<Ordinal>) [cuStreamGetDevice Legacy] [cuStreamGetDevice_ptsz PerThread] {
        let place = place.need("the place for the device")?;
        // CAST: a machine has few GPUs.
        place.set(stream_of(order, handle)?.0.gpu.ordinal as Ordinal);
        Ok(())
    }

    launch_host(order @ handle: Handle, function: Option<HostFunction>, argument: *mut c_void)
    [cuLaunchHostFunc Legacy] [cuLaunchHostFunc_ptsz PerThread] {
        let work = Work::Host(host_function(function, argument)?);
        let (context, stream) = stream_of(order, handle)?;
        stream.run(&context, work)
    }

    launch_host_2(order @ handle: Handle, function: Option<HostFunction>, argument: *mut c_void, mode: u32)
    [cuLaunchHostFunc_v2 Legacy] [cuLaunchHostFunc_v2_ptsz PerThread] {
        // CU_HOST_TASK_BLOCKING, _SPINWAIT: how the thread that calls it waits, which is a hint.
        if mode > 1 {
            return Err(Failure::invalid(format!("there is no mode {mode} of host functions")));
        }
        launch_host(order, handle, function, argument)
    }

    callback(order @ handle: Handle, function: Option<StreamCallback>, argument: *mut c_void, flags: u32)
    [cuStreamAddCallback Legacy] [cuStreamAddCallback_ptsz PerThread] {
        let function = function.ok_or_else(|| Failure::invalid("the function is NULL"))?;
        if flags != 0 {
            return Err(Failure::invalid("cuStreamAddCallback takes the flags 0"));
        }
        let (context, stream) = stream_of(order, handle)?;
        let callback = Callback { function, argument };
        let call = move || {
            let callback = &callback;
            // SAFETY: the program gave function and argument for this call. It is called for work that has ended well.
            unsafe { (callback.function)(handle, Code::Success.number(), callback.argument) };
        };
        stream.run(&context, Work::Host(HostCall { call: Arc::new(call), program: [0; 2] }))
    }

    attach(order @ handle: Handle, address: u64, bytes: usize, flags: u32)
    [cuStreamAttachMemAsync Legacy] [cuStreamAttachMemAsync_ptsz PerThread] {
        // CU_MEM_ATTACH_GLOBAL, _HOST, _SINGLE. Memory is coherent, so that nothing is to be done.
        if !matches!(flags, 1 | 2 | 4) {
            return Err(Failure::invalid(format!("flags {flags}")));
        }
        let _ = bytes;
        let (context, _) = stream_of(order, handle)?;
        let found = context.gpu.memory.find(address);
        let known = found.is_some_and(|found| found.is_managed());
        if known { Ok(()) } else { Err(Failure::invalid(format!("no managed memory at {address:#x}"))) }
    }

    copy_attributes(order @ target: Handle, source: Handle)
    [cuStreamCopyAttributes Legacy] [cuStreamCopyAttributes_ptsz PerThread] {
        stream_of(order, target)?;
        stream_of(order, source).map(drop)
    }

    attribute(order @ handle: Handle, attribute: u32, value: Out<[u64; 8]>)
    [cuStreamGetAttribute Legacy] [cuStreamGetAttribute_ptsz PerThread] {
        let value = value.need("the place for the attribute")?;
        let (_, stream) = stream_of(order, handle)?;
        let mut words = [0; 8];
        if attribute == PRIORITY {
            words[0] = u64::from(stream.priority.cast_unsigned());
        } else if !HINTS.contains(&attribute) {
            return Err(Failure::invalid(format!("there is no stream attribute {attribute}")));
        }
        value.set(words);
        Ok(())
    }

    set_attribute(order @ handle: Handle, attribute: u32, value: In<u64>)
    [cuStreamSetAttribute Legacy] [cuStreamSetAttribute_ptsz PerThread] {
        value.read("the attribute")?;
        stream_of(order, handle)?;
        if attribute == PRIORITY || HINTS.contains(&attribute) {
            Ok(())
        } else {
            Err(Failure::invalid(format!("there is no stream attribute {attribute}")))
        }
    }

    event_create(place: Out<Handle>, flags: u32) [cuEventCreate Legacy] {
        let place = place.need("the place for the event")?;
        place.set(Event::create(&*current()?, flags)?.handle());
        Ok(())
    }

    event_destroy(handle: Handle) [cuEventDestroy Legacy] [cuEventDestroy_v2 Legacy] {
        driver()?.objects.remove::<Event>(handle).map(drop)
    }

    event_record(order @ event: Handle, stream: Handle) [cuEventRecord Legacy] [cuEventRecord_ptsz PerThread] {
        record_event(order, event, stream)
    }

    event_record_with_flags(order @ event: Handle, stream: Handle, flags: u32)
    [cuEventRecordWithFlags Legacy] [cuEventRecordWithFlags_ptsz PerThread] {
        // CU_EVENT_RECORD_EXTERNAL concerns captures.
        if flags > 1 {
            return Err(Failure::invalid(format!("flags {flags} of a record")));
        }
        record_event(order, event, stream)
    }

    event_query(handle: Handle) [cuEventQuery Legacy] {
        query_recorded(handle).unwrap_or_else(|| {
            let (context, event) = event_of(handle)?;
            event.query(&context)
        })
    }

    event_synchronize(handle: Handle) [cuEventSynchronize Legacy] {
        let (context, event) = event_of(handle)?;
        event.synchronize(&context)
    }

    event_elapsed(place: Out<f32>, start: Handle, end: Handle)
    [cuEventElapsedTime Legacy] [cuEventElapsedTime_v2 Legacy] {
        let place = place.need("the place for the time")?;
        let ((context, start), (_, end)) = (event_of(start)?, event_of(end)?);
        place.set(start.elapsed_ms(&context, &end)?);
        Ok(())
    }

    begin_capture(order @ handle: Handle, mode: u32)
    [cuStreamBeginCapture_v2 Legacy] [cuStreamBeginCapture_v2_ptsz PerThread] {
        let mode = mode_of(mode)?;
        let (context, stream) = stream_of(order, handle)?;
        stream.begin_capture(&context, mode)
    }

    capture_to(
        order @ handle: Handle,
        graph: Handle,
        after: In<Handle>,
        data: In<u64>,
        count: usize,
        mode: u32,
    ) [cuStreamBeginCaptureToGraph Legacy] [cuStreamBeginCaptureToGraph_ptsz PerThread] {
        check_edges(data, count)?;
        let (mode, graph) = (mode_of(mode)?, graph_of(graph)?);
        let after = places(&graph, after, count)?;
        let (_, stream) = stream_of(order, handle)?;
        stream.capture_to(graph, after, mode)
    }

    begin_capture_1(order @ handle: Handle) [cuStreamBeginCapture Legacy] [cuStreamBeginCapture_ptsz PerThread] {
        let (context, stream) = stream_of(order, handle)?;
        stream.begin_capture(&context, Mode::Global)
    }

    end_capture(order @ handle: Handle, place: Out<Handle>)
    [cuStreamEndCapture Legacy] [cuStreamEndCapture_ptsz PerThread] {
        let place = place.need("the place for the graph")?;
        let (_, stream) = stream_of(order, handle)?;
        place.set(0);
        place.set(stream.end_capture()?.graph.handle());
        Ok(())
    }

    is_capturing(order @ handle: Handle, place: Out<u32>)
    [cuStreamIsCapturing Legacy] [cuStreamIsCapturing_ptsz PerThread] {
        let place = place.need("the place for the status")?;
        let (_, stream) = stream_of(order, handle)?;
        // The legacy stream never captures.
        place.set(if stream.kind() == StreamKind::Legacy { 0 } else { capture_status(&stream).0 });
        Ok(())
    }

    capture_info_1(order @ handle: Handle, status: Out<u32>, id: Out<u64>)
    [cuStreamGetCaptureInfo Legacy] [cuStreamGetCaptureInfo_ptsz PerThread] {
        capture_info(order, handle, status, id, Out::none(), None)
    }

    capture_info_2(
        order @ handle: Handle,
        status: Out<u32>,
        id: Out<u64>,
        graph: Out<Handle>,
        nodes: Out<*const Handle>,
        count: Out<usize>,
    ) [cuStreamGetCaptureInfo_v2 Legacy] [cuStreamGetCaptureInfo_v2_ptsz PerThread] {
        capture_info(order, handle, status, id, graph, Some((nodes, Out::none(), count)))
    }

    capture_info_3(
        order @ handle: Handle,
        status: Out<u32>,
        id: Out<u64>,
        graph: Out<Handle>,
        nodes: Out<*const Handle>,
        edges: Out<*const Handle>,
        count: Out<usize>,
    ) [cuStreamGetCaptureInfo_v3 Legacy] [cuStreamGetCaptureInfo_v3_ptsz PerThread] {
        edges.set(core::ptr::null());
        capture_info(order, handle, status, id, graph, Some((nodes, edges, count)))
    }

    update_dependencies_1(order @ handle: Handle, nodes: In<Handle>, count: usize, flags: u32)
    [cuStreamUpdateCaptureDependencies Legacy] [cuStreamUpdateCaptureDependencies_ptsz PerThread] {
        update_dependencies(order, handle, nodes, count, flags)
    }

    update_dependencies_2(order @ handle: Handle, nodes: In<Handle>, edges: In<u64>, count: usize, flags: u32)
    [cuStreamUpdateCaptureDependencies_v2 Legacy] [cuStreamUpdateCaptureDependencies_v2_ptsz PerThread] {
        check_edges(edges, count)?;
        update_dependencies(order, handle, nodes, count, flags)
    }

    exchange_mode(mode: Out<u32>) [cuThreadExchangeStreamCaptureMode Legacy] {
        std::thread_local! {
            static MODE: core::cell::Cell<u32> = const { core::cell::Cell::new(0) };
        }
        let wanted = mode.read("the mode")?;
        mode_of(wanted)?;
        mode.set(MODE.try_with(|current| current.replace(wanted)).map_err(|_| Code::Deinitialized)?);
        Ok(())
    }
}

/// CU_LAUNCH_ATTRIBUTE_PRIORITY.
const PRIORITY: u32 = 8;
/// Attributes of streams that are hints: access policy, synchronisation policy, memory domains.
const HINTS: [u32; 4] = [1, 3, 9, 10];

/// The graph that a handle names.
pub(crate) fn graph_of(handle: Handle) -> Result<Arc<Graph>> {
    driver()?.objects.get::<Graph>(handle)
}

/// Checks data of edges. Those of programmatic launches, with which a kernel may begin before the one before it has
/// ended and waits for it by itself, are taken for plain ones: it begins later than it could.
pub(crate) fn check_edges(data: In<u64>, count: usize) -> Result<()> {
    if data.is_null() {
        return Ok(());
    }
    let check = |data: Result<u64>| match data?.to_le_bytes() {
        // Ports of both ends, type, reserved bytes: plain, or CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC from one of the
        // ports CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC and CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_COMPLETION.
        [0, 0, 0, 0, 0, 0, 0, 0] | [1 | 2, 0, 1, 0, 0, 0, 0, 0] => Ok(()),
        data => Err(Failure::invalid(format!("data {data:x?} of an edge"))),
    };
    data.each(count, "the data of edges").try_for_each(check)
}

/// The places of nodes in a graph.
pub(crate) fn places(graph: &Graph, nodes: In<Handle>, count: usize) -> Result<Vec<usize>> {
    let place = |handle: Handle| {
        let node = driver()?.objects.get::<Node>(handle)?;
        if node.graph == graph.handle() {
            Ok(node.index)
        } else {
            Err(Failure::invalid("a node of another graph"))
        }
    };
    nodes.each(count, "the list of nodes").map(|node| place(node?)).collect()
}
