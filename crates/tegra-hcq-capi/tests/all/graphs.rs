//! Recorded graphs.

use core::ptr;

use tegra_hcq_capi::*;

use crate::support::{Board, LONG, at, dim, fails, ok, read, word};

#[test]
fn a_graph_replays_with_changed_arguments_sizes_and_copies() {
    let board = Board::open();
    let kernel = board.kernel("basics", c"fill_u32");
    let (a, b, c) = (board.words(&[0; 8]), board.words(&[0; 8]), board.words(&[0; 8]));
    let (mut builder, mut graph, mut fence) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
    let (mut launch, mut copy, mut fill, mut len) = (9, 9, 9, 0);
    let args = [at(a, 4), word(7), word(2)];
    // SAFETY: results have places, the arguments this length; the kernel stays inside its buffer.
    unsafe {
        ok(tegra_hcq_graph_begin(board.device, &raw mut builder));
        ok(tegra_hcq_graph_set_instances(builder, 2));
        fails(tegra_hcq_graph_build(builder, &raw mut graph), Status::InvalidArgument, "no steps");
        ok(tegra_hcq_graph_launch(builder, kernel, dim(1), dim(32), 0, args.as_ptr(), 3, &raw mut launch));
        ok(tegra_hcq_graph_copy(builder, b, 0, a, 0, 16, &raw mut copy));
        ok(tegra_hcq_graph_fill(builder, a, 28, 4, 1, 4, &raw mut fill));
        ok(tegra_hcq_graph_build(builder, &raw mut graph));
        assert_eq!((launch, copy, fill), (0, 1, 2));
        fails(tegra_hcq_graph_abandon(builder), Status::InvalidHandle, "was freed");
        ok(tegra_hcq_graph_len(graph, &raw mut len));
        assert_eq!(len, 3);
        ok(tegra_hcq_queue_replay(board.queue, graph, &raw mut fence));
        ok(tegra_hcq_fence_wait(fence, LONG));
        assert_eq!(read(a, 8), [0, 7, 7, 0, 0, 0, 0, 1]);
        assert_eq!(read(b, 4), [0, 7, 7, 0]);

        let (value, count) = (word(9), word(4));
        ok(tegra_hcq_graph_set_argument(graph, launch, 1, &raw const value));
        ok(tegra_hcq_graph_set_argument(graph, launch, 2, &raw const count));
        ok(tegra_hcq_graph_set_size(graph, launch, dim(2), dim(2)));
        ok(tegra_hcq_graph_set_copy(graph, copy, c, 0, a, 4, 16));
        ok(tegra_hcq_queue_replay(board.queue, graph, ptr::null_mut()));
        fails(tegra_hcq_graph_set_size(graph, 3, dim(1), dim(1)), Status::InvalidArgument, "no step 3");
        fails(
            tegra_hcq_graph_set_argument(graph, launch, 3, &raw const count),
            Status::InvalidArgument,
            "no argument 3",
        );
        fails(tegra_hcq_graph_set_copy(graph, launch, c, 0, a, 0, 16), Status::InvalidArgument, "copy");
    }
    ok(board.wait());
    assert_eq!(read(a, 8), [0, 9, 9, 9, 9, 0, 0, 1]);
    assert_eq!(read(c, 4), [9, 9, 9, 9]);
    // The graph keeps its buffers; its handles are independent of theirs.
    ok(tegra_hcq_buffer_free(b));
    ok(tegra_hcq_kernel_free(kernel));
    // SAFETY: the fence is not wanted.
    ok(unsafe { tegra_hcq_queue_replay(board.queue, graph, ptr::null_mut()) });
    ok(board.wait());
    ok(tegra_hcq_graph_free(graph));
    // SAFETY: refused.
    let gone = unsafe { tegra_hcq_queue_replay(board.queue, graph, ptr::null_mut()) };
    fails(gone, Status::InvalidHandle, "the graph");
}
