//! The feed-forward networks of models with experts: the launches of `kernels/llm/experts.cu`.

use bytemuck::bytes_of;
use tegra_hcq::{Arg, Device, GraphBuilder, Kernel, Program, Queue};

use super::engine::{BLOCK, Inner, STAGES, WARPS, of_format, of_formats, rounds, tiles_bytes, vector_bytes};
use super::pack::{Place, Unit};
use super::places::Addresses;
use super::stages::ProductCall;
use super::weights::{Layer, Packed, Up};
use crate::blocks::BlockType;
use crate::error::{Error, Result};
use crate::launch::{cubins, word, words};
use crate::model::{Experts, Model, Shape};
use crate::parameters::{Choice, Epilogue, ExpertsParams, HiddenForm, MAX_SEQUENCES};

/// Most experts of a layer, and most that a token uses.
const MOST: usize = 256;
const MOST_USED: usize = 16;

/// The form in which a product with a format takes its vector.
pub(super) fn form(block: BlockType) -> HiddenForm {
    match (rounds(block), Unit::of(block).weights) {
        (true, _) => HiddenForm::Rounded,
        (false, 8) => HiddenForm::Units,
        (false, _) => HiddenForm::Plain,
    }
}

/// Bytes of the router's numbers, of the choices, of the hidden vectors, and of the results of a batch.
pub(super) fn sizes(shape: &Shape) -> [usize; 4] {
    let Some(Experts { count, used }) = shape.experts else { return [0; 4] };
    let hidden = BlockType::ALL.map(|block| vector_bytes(block, shape.ffn)).into_iter().max().unwrap_or(0);
    [count * 4, used * size_of::<Choice>(), used * hidden, used * shape.width * 4]
}

/// GPU addresses of the experts' vectors of a prompt: each has a row per token.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ExpertRows {
    pub(super) router: u64,
    choices: u64,
    hidden: u64,
    partial: u64,
    prepared: u64,
}

impl ExpertRows {
    /// The rows at addresses that `next` makes of their bytes.
    pub(super) fn new(shape: &Shape, next: impl FnMut(usize) -> u64) -> Self {
        let [router, choices, hidden, partial] = sizes(shape);
        let prepared = BlockType::ALL.map(|block| vector_bytes(block, shape.width)).into_iter().max();
        let bytes = [router, choices, hidden, partial, prepared.unwrap_or(0)];
        let [router, choices, hidden, partial, prepared] = bytes.map(next);
        Self { router, choices, hidden, partial, prepared }
    }
}

/// The launches for several vectors.
#[derive(Clone, Copy, Debug)]
enum Part {
    /// Brings vectors into the form of the first products.
    Prepare,
    First,
    Second,
    /// Adds the results.
    Combine,
}

/// Kernels by format: of one vector, and of several sequences.
#[derive(Debug)]
pub(super) struct ExpertKernels {
    first: [Kernel; BlockType::ALL.len()],
    second: [Kernel; BlockType::ALL.len()],
    firsts: [Kernel; BlockType::ALL.len()],
    seconds: [Kernel; BlockType::ALL.len()],
    combine: Kernel,
    /// The forms of rows: rounded, in units, plain.
    prepare: [Kernel; 3],
}

impl ExpertKernels {
    /// Loads the kernels, if the model has experts.
    ///
    /// # Errors
    ///
    /// [`Error::Experts`] if they do not take the model's; those of the device.
    pub(super) fn load(device: &Device, model: &Model) -> Result<Option<Self>> {
        let Some(Experts { count, used }) = model.shape().experts else { return Ok(None) };
        if count > MOST || used > MOST_USED {
            return Err(Error::Experts(format!(
                "{count} experts, of which a token uses {used}: {MOST} and {MOST_USED} are possible"
            )));
        }
        (0..model.shape().layers.len()).try_for_each(|number| check(model, number))?;
        let program = Program::load_fitting(device, &cubins!("llm/experts"))?;
        Ok(Some(Self {
            first: of_formats(&program, "first")?,
            second: of_formats(&program, "second")?,
            firsts: of_formats(&program, "firsts")?,
            seconds: of_formats(&program, "seconds")?,
            combine: program.kernel("combine")?,
            prepare: [
                program.kernel("prepare_rounded")?,
                program.kernel("prepare_units")?,
                program.kernel("prepare_plain")?,
            ],
        }))
    }
}

/// Returns an error if the kernels do not take the experts of a layer.
fn check(model: &Model, number: usize) -> Result<()> {
    let (shape, layer) = (model.shape(), model.layer(number).feed_forward);
    let gate = layer.gate.unwrap_or(layer.up);
    if gate.weights.block != layer.up.weights.block || gate.bias.is_some() != layer.up.bias.is_some() {
        let (gate, up) = (gate.weights, layer.up.weights);
        return Err(Error::Experts(format!(
            "`{}` in {} and `{}` in {}, or a bias of one of them",
            gate.name, gate.block, up.name, up.block
        )));
    }
    let whole = |block: BlockType, rows: usize| rows.is_multiple_of(2 * Unit::of(block).pairs);
    let (up, down) = (layer.up.weights, layer.down.weights);
    if whole(up.block, 2 * shape.ffn) && whole(down.block, shape.width) {
        return Ok(());
    }
    let (width, ffn) = (shape.width, shape.ffn);
    Err(Error::Experts(format!("experts of {ffn} and {width} rows in {} and {}", up.block, down.block)))
}

/// The matrices of a layer's experts.
fn matrices(layer: &Layer) -> (&Packed, &Packed) {
    match &layer.up {
        Up::Pairs(up) | Up::Plain(up) | Up::Apart { up, .. } => (up, &layer.down),
    }
}

impl Inner {
    fn experts(&self) -> (&ExpertKernels, Experts) {
        // PANIC: only layers with a router have such a stage, and they are in models with experts.
        (self.experts.as_ref().expect("kernels"), self.shape.experts.expect("experts"))
    }

    /// Parameters of a product of the experts with these rows each.
    fn experts_product(
        &self,
        at: &Addresses,
        call: &ProductCall<'_>,
        down: BlockType,
        sequences: u64,
    ) -> Result<ExpertsParams> {
        let (_, Experts { count, used }) = self.experts();
        let place = &call.matrix.place;
        let mut product = self.product(at, call)?;
        [product.rows, product.packed_output] = words([place.rows / count, 0])?;
        let [experts, used, hidden_bytes] = words([count, used, vector_bytes(down, self.shape.ffn)])?;
        Ok(ExpertsParams {
            product,
            logits: at.router,
            choices: at.choices,
            sequences,
            // CAST: usize is at most 64 bits.
            expert_bytes: ((place.end - place.start) / count) as u64,
            hidden_bytes,
            form: form(down) as u32,
            experts,
            used,
            ..ExpertsParams::default()
        })
    }

    /// The first products of a layer's experts: gate and up.
    pub(super) fn first_experts<'a>(&'a self, at: &Addresses, number: usize) -> ProductCall<'a> {
        let layer = &self.weights.layers[number];
        ProductCall {
            prologue: self.norm_kind(),
            norm: layer.feed_forward_norm,
            epilogue: Epilogue::Pair,
            output: at.hidden,
            ..ProductCall::of(matrices(layer).0, at.x)
        }
    }

    /// The second ones.
    fn second_experts<'a>(&'a self, at: &Addresses, number: usize) -> ProductCall<'a> {
        ProductCall {
            epilogue: Epilogue::Add,
            output: at.x,
            other: at.x,
            ..ProductCall::of(matrices(&self.weights.layers[number]).1, at.hidden)
        }
    }

    /// A part of the work for several vectors.
    fn part<'a>(&'a self, at: &Addresses, number: usize, part: Part) -> ProductCall<'a> {
        let (first, second) = (self.first_experts(at, number), self.second_experts(at, number));
        match part {
            Part::Prepare => ProductCall { output: at.prepared, ..first },
            Part::First => ProductCall { input: at.prepared, ..first },
            Part::Second => ProductCall { output: at.partial, ..second },
            Part::Combine => ProductCall { input: at.partial, ..second },
        }
    }

    /// Blocks of the products with one vector: those that have work.
    fn expert_blocks(&self, place: &Place, is_first: bool) -> Result<u32> {
        let (_, Experts { count, used }) = self.experts();
        let pairs = Unit::of(place.block).pairs;
        let bands = place.rows / count / (2 * pairs);
        let blocks = if is_first {
            // A round of a block makes 32 elements of a hidden vector, or twice as many.
            used * bands.div_ceil((WARPS * pairs).max(32) / pairs)
        } else {
            bands.div_ceil(WARPS / used)
        };
        word(blocks.min(self.sms))
    }

    /// The launches for one vector.
    pub(super) fn launch_experts(
        &self,
        graph: &mut GraphBuilder,
        at: &Addresses,
        number: usize,
    ) -> Result<()> {
        let (kernels, _) = self.experts();
        let (up, down) = (self.first_experts(at, number), self.second_experts(at, number));
        let formats = [up.matrix.place.block, down.matrix.place.block];
        let vector = vector_bytes(formats[0], up.matrix.place.columns);
        for (call, kernels, vector) in [(&up, &kernels.first, vector), (&down, &kernels.second, 0)] {
            let place = &call.matrix.place;
            let parameters = self.experts_product(at, call, formats[1], 0)?;
            let grid = self.expert_blocks(place, call.epilogue == Epilogue::Pair)?;
            let shared = word(vector + tiles_bytes(place.block, STAGES))?;
            let arguments = [Arg::Bytes(bytes_of(&parameters))];
            // SAFETY: as for other products; choices are below the number of experts.
            unsafe {
                graph.launch_with_shared(of_format(kernels, place.block), grid, BLOCK, shared, &arguments)?;
            }
        }
        Ok(())
    }

    /// The launches for `count` tokens of a prompt: up to [`MAX_SEQUENCES`] of them read the weights together.
    pub(super) fn launch_experts_of_prompt(
        &self,
        queue: &mut Queue,
        (x, rows): (u64, ExpertRows),
        number: usize,
        count: usize,
    ) -> Result<()> {
        let (kernels, Experts { count: experts, used }) = self.experts();
        let (up, down) = matrices(&self.weights.layers[number]);
        let (up, down) = (up.place, down.place);
        let (hidden, prepared) = (vector_bytes(down.block, down.columns), vector_bytes(up.block, up.columns));
        let mut launch =
            |kernel: &Kernel, grid: [usize; 2], first: usize, vectors: usize, part: Part, tiles| {
                // CAST: usize is at most 64 bits.
                let row = |address: u64, bytes: usize| address + (first * bytes) as u64;
                let at = Addresses {
                    x: row(x, down.rows / experts * 4),
                    prepared: row(rows.prepared, prepared),
                    router: row(rows.router, experts * 4),
                    choices: row(rows.choices, used * size_of::<Choice>()),
                    hidden: row(rows.hidden, used * hidden),
                    partial: row(rows.partial, used * (down.rows / experts) * 4),
                    ..Addresses::default()
                };
                let call = self.part(&at, number, part);
                let mut parameters = self.experts_product(&at, &call, down.block, 0)?;
                [parameters.vectors, parameters.input_bytes] = words([vectors, prepared])?;
                let (grid, arguments) = (words(grid)?, [Arg::Bytes(bytes_of(&parameters))]);
                // SAFETY: as for other products of a prompt; choices are below the number of experts.
                unsafe {
                    queue.launch_with_shared(kernel, (grid[0], grid[1]), BLOCK, word(tiles)?, &arguments)?
                };
                Ok::<(), Error>(())
            };
        // CAST: the forms are numbered as the kernels.
        launch(&kernels.prepare[form(up.block) as usize], [count, 1], 0, count, Part::Prepare, 0)?;
        for first in (0..count).step_by(MAX_SEQUENCES) {
            let vectors = MAX_SEQUENCES.min(count - first);
            for (kernels, block, part) in
                [(&kernels.firsts, up.block, Part::First), (&kernels.seconds, down.block, Part::Second)]
            {
                let (kernel, tiles) = (of_format(kernels, block), tiles_bytes(block, STAGES));
                launch(kernel, [self.sms, 1], first, vectors, part, tiles)?;
            }
        }
        let blocks = self.shape.width.div_ceil(BLOCK as usize);
        launch(&kernels.combine, [blocks, count], 0, count, Part::Combine, 0)
    }

    /// The launches for up to `size` sequences, whose table is at `sequences`. The rounded vectors are in
    /// [`Addresses::prepared`].
    pub(super) fn launch_experts_of_batch(
        &self,
        graph: &mut GraphBuilder,
        at: &Addresses,
        number: usize,
        (sequences, size): (u64, usize),
    ) -> Result<()> {
        let (kernels, _) = self.experts();
        let block = self.second_experts(at, number).matrix.place.block;
        for (part, kernels) in [(Part::First, &kernels.firsts), (Part::Second, &kernels.seconds)] {
            let call = self.part(at, number, part);
            let own = call.matrix.place.block;
            let parameters = self.experts_product(at, &call, block, sequences)?;
            let (grid, shared) = (word(self.sms)?, word(tiles_bytes(own, STAGES))?);
            let arguments = [Arg::Bytes(bytes_of(&parameters))];
            // SAFETY: as for other products of a batch; choices are below the number of experts.
            unsafe {
                graph.launch_with_shared(of_format(kernels, own), grid, BLOCK, shared, &arguments)?;
            }
        }
        let parameters = self.experts_product(at, &self.part(at, number, Part::Combine), block, sequences)?;
        let arguments = [Arg::Bytes(bytes_of(&parameters))];
        let grid: [u32; 2] = words([self.shape.width.div_ceil(BLOCK as usize), size])?;
        // SAFETY: as above.
        unsafe { graph.launch(&kernels.combine, (grid[0], grid[1]), BLOCK, &arguments)? };
        Ok(())
    }
}
