//! Waits for words of memory and writes to them, by streams and graphs.

use crate::support::*;
use crate::sweep::{call, make};

/// Memory that the host and the GPU see.
struct Pinned(u64);

impl Pinned {
    fn new() -> Self {
        let pinned = Self(make("cuMemHostAlloc", [256, 0]));
        (0..32).for_each(|at| pinned.set(at, 0));
        pinned
    }

    fn pointer(&self, word: usize) -> *mut u64 {
        core::ptr::with_exposed_provenance_mut(self.at(word) as usize)
    }

    fn at(&self, word: usize) -> u64 {
        self.0 + 8 * word as u64
    }

    fn set(&self, word: usize, value: u64) {
        // SAFETY: one of 32 words of the memory, which lives as long as the context.
        unsafe { self.pointer(word).write_volatile(value) };
    }

    fn get(&self, word: usize) -> u64 {
        // SAFETY: as above.
        unsafe { self.pointer(word).read_volatile() }
    }
}

/// GEQ, EQ, AND, NOR.
const CONDITIONS: [u64; 4] = [0, 1, 2, 3];

#[test]
fn a_stream_waits_until_a_word_meets_each_condition() {
    let _setup = Setup::new();
    let words = Pinned::new();
    let stream = make("cuStreamCreate", [1]);
    // Of each condition: the value, a word that does not meet it, and one that does.
    let narrow = [
        (0x8000_0000, 0x7fff_ffff, 0x8000_0001),
        (5, 6, 5),
        (6, 9, 2),
        (0xffff_fff0, 0xffff_ffff, 0xffff_fff0),
    ];
    let wide = [(1 << 63, 1, 1 << 63 | 1), (5, 1 << 32 | 5, 5), (1 << 40, 1, 3 << 40), (1, u64::MAX, 0)];
    for (symbol, cases) in [("cuStreamWaitValue32_v2", narrow), ("cuStreamWaitValue64_v2", wide)] {
        for (flags, (value, before, after)) in CONDITIONS.into_iter().zip(cases) {
            words.set(0, before);
            words.set(1, 0);
            ok(call(symbol, [stream, words.at(0), value, flags]));
            ok(call("cuStreamWriteValue64_v2", [stream, words.at(1), 3 << 33, 0]));
            ok(call("cuStreamWriteValue32", [stream, words.at(1) + 4, 9, 1]));
            std::thread::sleep(std::time::Duration::from_millis(2));
            gives(call("cuStreamQuery", [stream]), 600);
            assert_eq!(words.get(1), 0, "{symbol}, flags {flags}");
            words.set(0, after);
            ok(call("cuStreamSynchronize", [stream]));
            assert_eq!(words.get(1), 9 << 32, "{symbol}, flags {flags}");
        }
    }
}

/// `CUstreamBatchMemOpParams` of a step on a word.
fn step(kind: u64, address: u64, value: u64, flags: u64) -> [u64; 6] {
    [kind, address, value, flags, 0, 0]
}

fn at<T>(list: &[T]) -> u64 {
    list.as_ptr().expose_provenance() as u64
}

#[test]
fn batches_order_the_work_of_two_streams_and_are_nodes_of_graphs() {
    let setup = Setup::new();
    let words = Pinned::new();
    let [first, second] = [1, 1].map(|flags| make("cuStreamCreate", [flags]));
    let (ones, sums) = (upload(&[1.0; 64]), upload(&[0.0; 64]));
    // The second stream begins when the first has written, and the other way round.
    let wait = [step(1, words.at(0), 1, 1), step(4, words.at(1), 1 << 33, 0)];
    ok(call("cuStreamBatchMemOp", [second, 2, at(&wait), 0]));
    ok(setup.add(second as Handle, [ones, sums, sums], 64));
    ok(setup.add(first as Handle, [ones, ones, sums], 64));
    let write = [step(2, words.at(0), 1, 0), step(6, 0, 0, 0), step(5, words.at(1), 1 << 34, 0)];
    gives(call("cuStreamBatchMemOp", [first, 3, at(&write), 0]), 1);
    ok(call("cuStreamBatchMemOp_v2", [first, 3, at(&write), 0]));
    ok(call("cuStreamSynchronize", [second]));
    assert_eq!(download::<f32>(sums, 64), [3.0; 64]);

    // A captured write, and a node that is read back, changed, and changed in an executable graph.
    ok(call("cuStreamBeginCapture_v2", [first, 0]));
    ok(call("cuStreamWriteValue32_v2", [first, words.at(2), 7, 0]));
    let mut graph = 0_u64;
    ok(call("cuStreamEndCapture", [first, place(&mut graph)]));
    // CUDA_BATCH_MEM_OP_NODE_PARAMS: context, count, list, flags.
    let list = [step(5, words.at(3), 8, 0), step(1, words.at(0), 1, 0)];
    let node = make("cuGraphAddBatchMemOpNode", [graph, 0, 0, at(&[0, 2, at(&list), 0])]);
    let mut kind = [0_u32];
    ok(call("cuGraphNodeGetType", [node, place(&mut kind)]));
    assert_eq!(kind, [12]);
    let mut read = [0_u64; 4];
    ok(call("cuGraphBatchMemOpNodeGetParams", [node, place(&mut read)]));
    assert_eq!(read, [setup.context as u64, 2, read[2], 0]);
    let kept: *const [[u64; 6]; 2] = core::ptr::with_exposed_provenance(read[2] as usize);
    // SAFETY: the list of the node, which is there.
    assert_eq!(unsafe { kept.read() }, list);
    // CUgraphNodeParams: the type, and from byte 16 on the parameters.
    let mut any = [0_u64; 32];
    ok(call("cuGraphNodeGetParams", [node, place(&mut any)]));
    assert_eq!((any[0], &any[2..6]), (12, &read[..]));
    let executable = make("cuGraphInstantiateWithFlags", [graph, 0]);
    ok(call("cuGraphLaunch", [executable, first]));
    ok(call("cuStreamSynchronize", [first]));
    assert_eq!([2, 3].map(|word| words.get(word)), [7, 8]);
    let changed = [step(5, words.at(3), 10, 0)];
    ok(call("cuGraphExecBatchMemOpNodeSetParams", [executable, node, at(&[0, 1, at(&changed), 0])]));
    ok(call("cuGraphLaunch", [executable, first]));
    ok(call("cuStreamSynchronize", [first]));
    assert_eq!(words.get(3), 10);
    ok(call("cuGraphBatchMemOpNodeSetParams", [node, at(&[0, 1, at(&changed), 0])]));
    gives(call("cuGraphBatchMemOpNodeSetParams", [node, at(&[0, 1, at(&changed), 1])]), 1);
}

#[test]
fn wrong_words_are_refused() {
    let _setup = Setup::new();
    let words = Pinned::new();
    let (managed, device) = (make("cuMemAllocManaged", [64, 1]), upload(&[0.0; 2]));
    let write = |address, flags| call("cuStreamWriteValue64_v2", [0, address, 1, flags]);
    ok(write(device, 0));
    for address in [device + 4, device + 8, managed, 0, 0x1000, u64::MAX] {
        gives(write(address, 0), 1);
    }
    gives(write(device, 1), 1);
    gives(call("cuStreamWriteValue32", [0, device, 1, 2]), 1);
    gives(call("cuStreamWriteValue32", [0, device + 2, 1, 0]), 1);
    gives(call("cuStreamWaitValue32", [0, device, 0, 4]), 1);
    // CU_STREAM_WAIT_VALUE_FLUSH, and the batch's form of it; reductions.
    gives(call("cuStreamWaitValue32", [0, device, 0, 1 << 30]), 801);
    for (step, code) in [
        (step(3, 0, 0, 0), 801),
        (step(8, 0, 0, 0), 801),
        (step(7, 0, 0, 0), 1),
        (step(6 | 2 << 32, 0, 0, 0), 1),
        (step(2, 0, 0, 0), 1),
    ] {
        gives(call("cuStreamBatchMemOp_v2", [0, 1, at(&[step]), 0]), code);
    }
    let many = vec![step(5, words.at(0), 1, 0); 256];
    gives(call("cuStreamBatchMemOp_v2", [0, 256, at(&many), 0]), 1);
    gives(call("cuStreamBatchMemOp_v2", [0, 1, at(&many), 1]), 1);
    gives(call("cuStreamBatchMemOp_v2", [0, 1, 0, 0]), 1);
    ok(call("cuStreamBatchMemOp_v2", [0, 255, at(&many), 0]));
    ok(call("cuCtxSynchronize", []));
    assert_eq!(words.get(0), 1);
    for attribute in [92, 93, 94, 122, 123, 125] {
        // SAFETY: the place is valid.
        assert_eq!(made::<i32>(|place| unsafe { cuDeviceGetAttribute(place, attribute, 0) }), 1);
    }
}
