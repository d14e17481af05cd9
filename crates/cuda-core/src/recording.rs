//! The recorded form of an executable graph: consecutive kernels run as one graph of the queue, with one submission.

use tegra_hcq::{Device, Graph, GraphBuilder, Queue};

use crate::code::Result;
use crate::work::{Launch, Work};

/// Fewer kernels in a row are launched one by one.
const SHORTEST: usize = 2;

/// Some of the work, in order.
#[derive(Debug)]
struct Piece {
    /// Number of works.
    works: usize,
    /// Their recorded form, if all of them are kernels.
    graph: Option<Graph>,
}

/// The recorded form of work. It is made for the second launch, as many graphs are launched once.
#[derive(Debug, Default)]
pub(crate) struct Recording {
    /// Number of the context that it is for.
    context: u64,
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

    /// Adds the works to a queue of a context. The same works as at the last call, unless [`Recording::clear`] was
    /// called.
    pub(crate) fn encode<'w>(
        &mut self,
        (context, device): (u64, &Device),
        mut works: impl Iterator<Item = &'w Work> + Clone,
        queue: &mut Queue,
    ) -> Result<()> {
        if !core::mem::replace(&mut self.was_launched, true) {
            return works.try_for_each(|work| work.encode(queue));
        }
        if self.pieces.is_none() || self.context != context {
            self.pieces = Some(record(device, works.clone()));
            self.context = context;
        }
        for Piece { works: count, graph } in self.pieces.iter_mut().flatten() {
            let mut part = works.by_ref().take(*count);
            match graph {
                // A launch does not wait for earlier ones.
                Some(graph) if graph.is_ready() => {
                    part.for_each(drop);
                    queue.replay(graph)?;
                }
                _ => part.try_for_each(|work| work.encode(queue))?,
            }
        }
        Ok(())
    }
}

/// Cuts works into pieces, and records those of kernels.
fn record<'w>(device: &Device, works: impl Iterator<Item = &'w Work>) -> Vec<Piece> {
    let (mut pieces, mut open) = (Vec::new(), None::<GraphBuilder>);
    let mut works = works.peekable();
    let mut count = 0;
    while let Some(work) = works.next() {
        count += 1;
        let is_recorded = match work {
            Work::Launch(launch) => add(open.get_or_insert_with(|| device.graph()), launch),
            _ => false,
        };
        let recorded = count - usize::from(!is_recorded);
        if (!is_recorded || works.peek().is_none()) && recorded > 0 {
            let builder = open.take().filter(|_| recorded >= SHORTEST);
            let graph = builder.and_then(|builder| match builder.build() {
                Ok(graph) => Some(graph),
                Err(error) => {
                    tracing::debug!(%error, "kernels of a graph are launched one by one");
                    None
                }
            });
            pieces.push(Piece { works: recorded, graph });
            count -= recorded;
        }
        if !is_recorded {
            pieces.push(Piece { works: count, graph: None });
            count = 0;
        }
    }
    pieces
}

/// Adds a kernel to a recording. Returns whether it can be recorded: it has no texture references, which have a number
/// at each launch only, and no barrier of the grid.
fn add(builder: &mut GraphBuilder, launch: &Launch) -> bool {
    let Launch { function, size, parameters } = launch;
    function.references.is_empty()
        // SAFETY: whoever made the launch promised that the kernel may run with these parameters.
        && unsafe {
            builder.launch_raw(&function.kernel, size.grid, size.block, size.shared_bytes, parameters.bytes())
        }
        .is_ok()
}
