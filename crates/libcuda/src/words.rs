//! Waits for words of memory and writes to them, by streams and graphs.

use std::sync::Arc;

use orin_cuda_core::context::current;
use orin_cuda_core::{Code, Context, Failure, Result, WordStep, Words, Work};
use tegra_hcq::{AcquireCondition, Payload};

use crate::abi::{Address, Handle, In, Out};
use crate::call::{Order, api};
use crate::memory::find;
use crate::node::{add, change, change_node, parameters_of};
use crate::stream::stream_of;

/// `CUstreamBatchMemOpParams`.
pub(crate) type StepParameters = [u64; 6];
/// The steps of a batch are fewer than this.
const MOST: u32 = 256;
/// CU_STREAM_WAIT_VALUE_FLUSH.
const FLUSH: u32 = 1 << 30;

/// Which form of the interface: the first has no barriers, the second no writes without one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    First,
    Second,
}

/// `CUDA_BATCH_MEM_OP_NODE_PARAMS`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct WordsNode {
    context: Handle,
    count: u32,
    gap: u32,
    list: In<StepParameters>,
    flags: u32,
    rest: u32,
}

/// The address on the GPU of a word of memory of this library.
fn word(context: &Context, address: Address, value: Payload) -> Result<Address> {
    let found = find(context, address).filter(|found| !found.is_managed());
    let at = found.map(|found| (found.offset(address), found));
    let fits = at.filter(|(offset, found)| offset + value.bytes() <= found.bytes as u64);
    match fits {
        Some((offset, found)) if address.is_multiple_of(value.bytes()) => Ok(found.base + offset),
        _ => {
            let bytes = value.bytes();
            Err(Failure::invalid(format!(
                "no word of {bytes} bytes at {address:#x} of memory but managed one"
            )))
        }
    }
}

fn wait(context: &Context, address: Address, value: Payload, flags: u32) -> Result<WordStep> {
    if flags & FLUSH != 0 {
        return Err(Failure::new(Code::NotSupported, "flushes of remote writes"));
    }
    let condition = match flags {
        0 => AcquireCondition::CircularGreaterOrEqual,
        1 => AcquireCondition::Equal,
        2 => AcquireCondition::AnySet,
        3 => AcquireCondition::AnyClear,
        _ => return Err(Failure::invalid(format!("flags {flags:#x} of a wait"))),
    };
    Ok(WordStep::Wait(word(context, address, value)?, value, condition))
}

fn write(context: &Context, form: Form, address: Address, value: Payload, flags: u32) -> Result<WordStep> {
    // CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER permits a write without a barrier.
    if flags > u32::from(form == Form::First) {
        return Err(Failure::invalid(format!("flags {flags:#x} of a write")));
    }
    Ok(WordStep::Write(word(context, address, value)?, value))
}

impl Form {
    /// A step of a batch.
    fn step(self, context: &Context, parameters: StepParameters) -> Result<WordStep> {
        let [operation, address, number, flags, ..] = parameters;
        // CAST: the lower halves; of the operations without an address, the flags are the upper half of the first.
        let (kind, flags, narrow) = (operation as u32, flags as u32, Payload::Bits32(number as u32));
        match (kind, self) {
            (1, _) => wait(context, address, narrow, flags),
            (2, _) => write(context, self, address, narrow, flags),
            (3, _) => Err(Failure::new(Code::NotSupported, "flushes of remote writes")),
            (4, _) => wait(context, address, Payload::Bits64(number), flags),
            (5, _) => write(context, self, address, Payload::Bits64(number), flags),
            (6, Self::Second) if operation >> 32 <= 1 => Ok(WordStep::Barrier),
            (8, Self::Second) => Err(Failure::new(Code::NotSupported, "reductions by streams")),
            _ => Err(Failure::invalid(format!("operation {operation:#x} on memory"))),
        }
    }

    fn work(self, context: &Context, program: Box<[StepParameters]>) -> Result<Work> {
        let steps =
            program.iter().map(|parameters| self.step(context, *parameters)).collect::<Result<_>>()?;
        Ok(Work::Words(Arc::new(Words { steps, program })))
    }
}

/// The steps of a batch.
fn steps(list: In<StepParameters>, count: u32, flags: u32) -> Result<Box<[StepParameters]>> {
    if count >= MOST || flags != 0 {
        return Err(Failure::invalid(format!("{count} operations with the flags {flags:#x}")));
    }
    Ok(list.list(count as usize, "the list of operations")?.into())
}

impl WordsNode {
    pub(crate) fn work(self) -> Result<Work> {
        let Self { list, count, flags, .. } = self;
        Form::Second.work(&*current()?, steps(list, count, flags)?)
    }

    /// The parameters of a node, whose list lives as long as its work.
    pub(crate) fn of(context: Handle, words: &Words) -> Self {
        let list = In::at_address(words.program.as_ptr().expose_provenance());
        // CAST: fewer than MOST.
        Self { context, count: words.program.len() as u32, gap: 0, list, flags: 0, rest: 0 }
    }
}

/// Does one step.
fn one(order: Order, form: Form, stream: Handle, step: [u64; 3], flags: u32) -> Result<()> {
    let (context, stream) = stream_of(order, stream)?;
    let [kind, address, number] = step;
    let work = form.work(&context, Box::new([[kind, address, number, flags.into(), 0, 0]]))?;
    stream.run(&context, work)
}

fn batch(
    order: Order,
    form: Form,
    stream: Handle,
    count: u32,
    list: In<StepParameters>,
    flags: u32,
) -> Result<()> {
    let steps = steps(list, count, flags)?;
    let (context, stream) = stream_of(order, stream)?;
    stream.run(&context, form.work(&context, steps)?)
}

api! {
    wait_32(order @ stream: Handle, address: Address, value: u32, flags: u32)
    [cuStreamWaitValue32 Legacy] [cuStreamWaitValue32_ptsz PerThread]
    [cuStreamWaitValue32_v2 Legacy] [cuStreamWaitValue32_v2_ptsz PerThread] {
        one(order, Form::Second, stream, [1, address, value.into()], flags)
    }

    wait_64(order @ stream: Handle, address: Address, value: u64, flags: u32)
    [cuStreamWaitValue64 Legacy] [cuStreamWaitValue64_ptsz PerThread]
    [cuStreamWaitValue64_v2 Legacy] [cuStreamWaitValue64_v2_ptsz PerThread] {
        one(order, Form::Second, stream, [4, address, value], flags)
    }

    write_32(order @ stream: Handle, address: Address, value: u32, flags: u32)
    [cuStreamWriteValue32 Legacy] [cuStreamWriteValue32_ptsz PerThread] {
        one(order, Form::First, stream, [2, address, value.into()], flags)
    }

    write_32_2(order @ stream: Handle, address: Address, value: u32, flags: u32)
    [cuStreamWriteValue32_v2 Legacy] [cuStreamWriteValue32_v2_ptsz PerThread] {
        one(order, Form::Second, stream, [2, address, value.into()], flags)
    }

    write_64(order @ stream: Handle, address: Address, value: u64, flags: u32)
    [cuStreamWriteValue64 Legacy] [cuStreamWriteValue64_ptsz PerThread] {
        one(order, Form::First, stream, [5, address, value], flags)
    }

    write_64_2(order @ stream: Handle, address: Address, value: u64, flags: u32)
    [cuStreamWriteValue64_v2 Legacy] [cuStreamWriteValue64_v2_ptsz PerThread] {
        one(order, Form::Second, stream, [5, address, value], flags)
    }

    batch_1(order @ stream: Handle, count: u32, list: In<StepParameters>, flags: u32)
    [cuStreamBatchMemOp Legacy] [cuStreamBatchMemOp_ptsz PerThread] {
        batch(order, Form::First, stream, count, list, flags)
    }

    batch_2(order @ stream: Handle, count: u32, list: In<StepParameters>, flags: u32)
    [cuStreamBatchMemOp_v2 Legacy] [cuStreamBatchMemOp_v2_ptsz PerThread] {
        batch(order, Form::Second, stream, count, list, flags)
    }

    add_node(place: Out<Handle>, graph: Handle, after: In<Handle>, count: usize, node: In<WordsNode>)
    [cuGraphAddBatchMemOpNode Legacy] {
        add(place, graph, after, count, |_| node.read("the node")?.work())
    }

    node_parameters(node: Handle, place: Out<WordsNode>) [cuGraphBatchMemOpNodeGetParams Legacy] {
        let place = place.need("the place for the parameters")?;
        let context = current()?.handle;
        place.set(parameters_of(node, |work| match work {
            Work::Words(words) => Some(WordsNode::of(context, words)),
            _ => None,
        })?);
        Ok(())
    }

    set_node(node: Handle, parameters: In<WordsNode>) [cuGraphBatchMemOpNodeSetParams Legacy] {
        change_node(node, |_| parameters.read("the node")?.work())
    }

    change_in_executable(executable: Handle, node: Handle, parameters: In<WordsNode>)
    [cuGraphExecBatchMemOpNodeSetParams Legacy] {
        change(executable, node, |_| parameters.read("the node")?.work())
    }
}
