//! CUDA graphs: captured streams.

use core::ptr;
use std::rc::Rc;

use super::library::{Handle, KernelNode};
use super::{Context, Launch, Memory, Stream};
use crate::error::{Error, Result};

/// CU_STREAM_CAPTURE_MODE_THREAD_LOCAL.
const THREAD_LOCAL: core::ffi::c_int = 1;

/// A captured sequence that is launched as a whole.
#[derive(Debug)]
pub struct Graph {
    context: Rc<Context>,
    graph: Handle,
    /// Null until the graph is instantiated.
    exec: Handle,
    /// The launches, with the kernels and memory that they use. Kept until the graph is destroyed.
    launches: Vec<Launch>,
    _memory: Vec<Memory>,
}

impl Graph {
    /// Captures launches, in order.
    ///
    /// # Errors
    ///
    /// Errors of libcuda.
    pub fn of_launches(stream: &Stream, mut launches: Vec<Launch>, memory: Vec<Memory>) -> Result<Self> {
        let graph = capture(stream, || launches.iter_mut().try_for_each(|launch| stream.launch(launch)))?;
        Self { context: Rc::clone(&stream.context), graph, exec: ptr::null_mut(), launches, _memory: memory }
            .instantiate()
    }

    /// Captures one copy of `bytes` bytes.
    ///
    /// # Errors
    ///
    /// Errors of libcuda.
    pub fn of_copy(stream: &Stream, source: Memory, mut target: Memory, bytes: usize) -> Result<Self> {
        let graph = capture(stream, || stream.copy(&source, &mut target, bytes))?;
        let memory = vec![source, target];
        let context = Rc::clone(&stream.context);
        Self { context, graph, exec: ptr::null_mut(), launches: Vec::new(), _memory: memory }.instantiate()
    }

    fn instantiate(mut self) -> Result<Self> {
        let instantiate = self.context.driver.functions.graph_instantiate;
        // SAFETY: the graph was captured; the pointer is valid for the call.
        let status = unsafe { instantiate(&raw mut self.exec, self.graph, 0) };
        self.context.check("cuGraphInstantiateWithFlags", status)?;
        Ok(self)
    }

    /// Launches the graph.
    ///
    /// # Errors
    ///
    /// Errors of libcuda.
    #[inline]
    pub fn launch(&self, stream: &Stream) -> Result<()> {
        // SAFETY: the graph is instantiated and the stream is open.
        let status = unsafe { (self.context.driver.functions.graph_launch)(self.exec, stream.handle) };
        self.context.check("cuGraphLaunch", status)
    }

    /// Returns the node of a graph that consists of one launch.
    ///
    /// # Errors
    ///
    /// Returns an error if the graph has another number of nodes. Errors of libcuda.
    pub fn only_node(&self) -> Result<Node> {
        let (mut node, mut count) = (ptr::null_mut(), 1);
        // SAFETY: there is room for one node, as `count` says; libcuda writes the actual number.
        let status =
            unsafe { (self.context.driver.functions.graph_nodes)(self.graph, &raw mut node, &raw mut count) };
        self.context.check("cuGraphGetNodes", status)?;
        if count != 1 || self.launches.len() != 1 || node.is_null() {
            let reason = format!("the graph has {count} nodes instead of one launch");
            return Err(Error::Cuda { call: "cuGraphGetNodes", reason });
        }
        Ok(Node(node))
    }

    /// Replaces the graph's only launch by `launch` of the same kernel, for later launches of the graph.
    ///
    /// # Errors
    ///
    /// Errors of libcuda.
    pub fn set_launch(&mut self, node: &Node, launch: &mut Launch) -> Result<()> {
        let mut pointers = launch.pointers();
        let parameters = KernelNode {
            function: launch.kernel.function,
            grid: launch.grid,
            block: launch.block,
            shared_bytes: 0,
            arguments: pointers.as_mut_ptr(),
            extra: ptr::null_mut(),
        };
        let set = self.context.driver.functions.graph_set_kernel;
        // SAFETY: the node belongs to the instantiated graph. There is a pointer to a value of the right size for each
        // parameter of the kernel, and libcuda copies the values.
        let status = unsafe { set(self.exec, node.0, &raw const parameters) };
        self.context.check("cuGraphExecKernelNodeSetParams", status)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        self.context.settle();
        let functions = self.context.driver.functions;
        if !self.exec.is_null() {
            // SAFETY: instantiated once, destroyed once, and not running.
            let _ = unsafe { (functions.graph_exec_destroy)(self.exec) };
        }
        // SAFETY: captured once, destroyed once.
        let _ = unsafe { (functions.graph_destroy)(self.graph) };
    }
}

/// A node of a graph.
#[derive(Debug)]
pub struct Node(Handle);

/// Captures the work that `work` submits to the stream. Ends the capture also if `work` fails.
fn capture(stream: &Stream, work: impl FnOnce() -> Result<()>) -> Result<Handle> {
    let functions = stream.context.driver.functions;
    // SAFETY: the stream is open.
    let status = unsafe { (functions.capture_begin)(stream.handle, THREAD_LOCAL) };
    stream.context.check("cuStreamBeginCapture", status)?;
    let sent = work();
    let mut graph = ptr::null_mut();
    // SAFETY: the stream is being captured; the pointer is valid for the call.
    let status = unsafe { (functions.capture_end)(stream.handle, &raw mut graph) };
    let ended = stream.context.check("cuStreamEndCapture", status);
    match sent.and(ended) {
        Ok(()) => Ok(graph),
        Err(error) => {
            if !graph.is_null() {
                // SAFETY: the graph was just captured.
                let _ = unsafe { (functions.graph_destroy)(graph) };
            }
            Err(error)
        }
    }
}
