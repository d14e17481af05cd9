//! The recorded form of an executable graph: consecutive kernels run as one graph of the queue, with one submission.
//! Kernels that do not depend on each other run side by side.

use tegra_hcq::{Device, Graph, GraphBuilder, Queue};

use crate::branches::{Begin, branches};
use crate::code::Result;

/// Fewer kernels in a row are launched one by one.
const SHORTEST: usize = 2;

/// A piece of work of a graph.
pub(crate) trait Step {
    /// Adds it to a queue.
    fn encode(&self, queue: &mut Queue) -> Result<()>;

    /// Whether it can be part of a recorded graph.
    fn is_recordable(&self) -> bool;

    /// Adds it to a recorded graph.
    fn record(&self, builder: &mut GraphBuilder) -> Result<()>;
}

/// Some of the work, in order.
#[derive(Debug)]
struct Piece {
    /// Number of steps.
    steps: usize,
    /// Their recorded form, if all of them are kernels.
    graph: Option<Graph>,
}

/// The recorded form of steps. It is made for the second launch, as many graphs are launched once.
#[derive(Debug, Default)]
pub(crate) struct Recording {
    /// Ordinal of the GPU that it is for.
    gpu: usize,
    was_launched: bool,
    pieces: Option<Vec<Piece>>,
}

impl Recording {
    /// Forgets what was recorded, because the work has changed.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Records the work at the next launch.
    pub(crate) fn prepare(&mut self) {
        self.was_launched = true;
    }

    /// Adds steps to a queue of a GPU: the same steps as at the last call, unless [`Recording::clear`] was called.
    /// `dependencies` returns for each step the earlier ones that have to end before it.
    pub(crate) fn encode<'s, S: Step + 's>(
        &mut self,
        (gpu, device): (usize, &Device),
        mut steps: impl Iterator<Item = &'s S> + Clone,
        dependencies: impl FnOnce() -> Vec<Vec<usize>>,
        queue: &mut Queue,
    ) -> Result<()> {
        if !core::mem::replace(&mut self.was_launched, true) {
            return steps.try_for_each(|step| step.encode(queue));
        }
        if self.pieces.is_none() || self.gpu != gpu {
            self.pieces = Some(record(device, &steps.clone().collect::<Vec<_>>(), &dependencies()));
            self.gpu = gpu;
        }
        for Piece { steps: count, graph } in self.pieces.iter_mut().flatten() {
            let mut part = steps.by_ref().take(*count);
            match graph {
                // A launch does not wait for earlier ones.
                Some(graph) if graph.is_ready() => {
                    part.for_each(drop);
                    queue.replay(graph)?;
                }
                _ => part.try_for_each(|step| step.encode(queue))?,
            }
        }
        Ok(())
    }
}

/// Cuts steps into pieces, and records those that can be.
fn record<S: Step>(device: &Device, steps: &[&S], dependencies: &[Vec<usize>]) -> Vec<Piece> {
    let mut begin = 0;
    let piece = |piece: &[&S]| {
        let end = begin + piece.len();
        let is_recorded = piece.len() >= SHORTEST && piece[0].is_recordable();
        let graph =
            is_recorded.then(|| record_piece(device, piece, &inside(&dependencies[begin..end], begin)));
        let graph = graph.and_then(|graph| {
            graph
                .inspect_err(|error| tracing::debug!(%error, "kernels of a graph are launched one by one"))
                .ok()
        });
        begin = end;
        Piece { steps: piece.len(), graph }
    };
    steps.chunk_by(|one, other| one.is_recordable() == other.is_recordable()).map(piece).collect()
}

/// The dependencies of the steps of a piece on each other, counted from its `begin`.
fn inside(dependencies: &[Vec<usize>], begin: usize) -> Vec<Vec<usize>> {
    let inside = |after: &Vec<usize>| after.iter().filter_map(|step| step.checked_sub(begin)).collect();
    dependencies.iter().map(inside).collect()
}

fn record_piece<S: Step>(device: &Device, steps: &[&S], dependencies: &[Vec<usize>]) -> Result<Graph> {
    let mut builder = device.graph();
    for (step, begin) in branches(dependencies) {
        match begin {
            Begin::After => {}
            // SAFETY: the program has declared what depends on what, and promises the rest as for several streams.
            Begin::Beside => drop(unsafe { builder.beside() }),
            Begin::Join => drop(builder.join()),
        }
        steps[step].record(&mut builder)?;
    }
    Ok(builder.build()?)
}
