//! Tensors by their role.

use std::cell::RefCell;
use std::collections::BTreeSet;

use super::{Architecture, CONVOLVED, Experts, ModelFault, NormKind, Rope, Shape};
use crate::blocks::BlockType;
use crate::error::{Error, Result};
use crate::gguf::{File, Tensor};

/// A matrix, or some rows of one. Row `o` has the weights of all inputs for output `o`, in whole blocks.
///
/// ```
/// use infer::model::Model;
/// use infer::synthetic::Recipe;
///
/// let model = Model::from_bytes(Recipe::tiny_llama().to_bytes()?)?;
/// let mut row = vec![0.0; 256];
/// let embedding = model.embedding();
/// embedding.block.dequantise(embedding.row(7), &mut row)?;
/// assert!(row.iter().any(|weight| *weight != 0.0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Matrix<'a> {
    /// Name of the tensor that contains it.
    pub name: &'a str,
    /// Weights of a row.
    pub inputs: usize,
    /// Number of rows.
    pub outputs: usize,
    /// Format of the weights.
    pub block: BlockType,
    /// The rows.
    pub bytes: &'a [u8],
}

impl<'a> Matrix<'a> {
    /// Bytes of a row.
    pub fn row_bytes(&self) -> usize {
        self.bytes.len() / self.outputs
    }

    /// The bytes of a row.
    ///
    /// # Panics
    ///
    /// If the matrix has no such row.
    pub fn row(&self, row: usize) -> &'a [u8] {
        let bytes = self.row_bytes();
        &self.bytes[row * bytes..][..bytes]
    }

    /// Some of the rows.
    pub(crate) fn rows(self, first: usize, count: usize) -> Self {
        let bytes = self.row_bytes();
        Self { outputs: count, bytes: &self.bytes[first * bytes..][..count * bytes], ..self }
    }
}

/// A vector of floats.
#[derive(Clone, Copy, Debug)]
pub struct Vector<'a> {
    /// Name of the tensor that contains it.
    pub name: &'a str,
    /// Number of elements.
    pub len: usize,
    /// F32, F16 or BF16.
    pub block: BlockType,
    /// The elements.
    pub bytes: &'a [u8],
}

impl Vector<'_> {
    /// The elements, converted without rounding.
    pub fn to_vec(&self) -> Vec<f32> {
        let mut elements = vec![0.0; self.len];
        // PANIC: the parser checked the length, and `slice` keeps both in step.
        self.block.dequantise(self.bytes, &mut elements).expect("as many elements as bytes");
        elements
    }

    /// Returns an error for an element that `is_wrong`.
    pub(super) fn refuse(&self, is_wrong: impl Fn(f32) -> bool) -> Result<()> {
        let elements = self.to_vec();
        match elements.iter().position(|element| is_wrong(*element)) {
            None => Ok(()),
            Some(index) => {
                let (name, value) = (self.name.to_owned(), elements[index]);
                Err(Error::Model(ModelFault::Element { name, index, value }))
            }
        }
    }

    /// Some of the elements.
    fn slice(self, first: usize, len: usize) -> Self {
        let bytes = self.block.bytes();
        Self { len, bytes: &self.bytes[first * bytes..][..len * bytes], ..self }
    }
}

/// A matrix with an optional bias.
#[derive(Clone, Copy, Debug)]
pub struct Linear<'a> {
    /// The weights.
    pub weights: Matrix<'a>,
    /// Added to the outputs.
    pub bias: Option<Vector<'a>>,
}

impl Linear<'_> {
    /// Some of the rows, with their biases.
    pub(crate) fn rows(self, first: usize, count: usize) -> Self {
        Self {
            weights: self.weights.rows(first, count),
            bias: self.bias.map(|bias| bias.slice(first, count)),
        }
    }
}

/// A normalisation, of the kind in [`Shape`].
#[derive(Clone, Copy, Debug)]
pub struct Norm<'a> {
    /// Factors of the normalised vector.
    pub weights: Vector<'a>,
    /// Added to the product; only in layer normalisations.
    pub bias: Option<Vector<'a>>,
}

/// The feed-forward network of a layer. Those of experts have the rows of all experts, one expert after another.
#[derive(Clone, Copy, Debug)]
pub struct FeedForward<'a> {
    /// Makes a number for each expert, if there are experts.
    pub router: Option<Linear<'a>>,
    /// The gate, if [`Activation::has_gate`](super::Activation::has_gate).
    pub gate: Option<Linear<'a>>,
    /// The first product.
    pub up: Linear<'a>,
    /// The last product.
    pub down: Linear<'a>,
}

/// The tensors of a layer.
#[derive(Clone, Copy, Debug)]
pub struct Layer<'a> {
    /// In front of the attention.
    pub attention_norm: Norm<'a>,
    /// Computes the queries of all heads; in a convolution, the factors of its input.
    pub query: Linear<'a>,
    /// Computes the keys of all heads; in a convolution, the factors of its output.
    pub key: Linear<'a>,
    /// Computes the values of all heads; in a convolution, its input.
    pub value: Linear<'a>,
    /// The weights of a convolution, for each component those of the [`CONVOLVED`] positions, oldest first; `None` in
    /// an attention.
    pub convolution: Option<Vector<'a>>,
    /// Normalises each query head before rotation; see [`Architecture::normalises_heads`].
    pub query_norm: Option<Vector<'a>>,
    /// Normalises each key head before rotation.
    pub key_norm: Option<Vector<'a>>,
    /// A score of each query head that takes part in the softmax and has no value.
    pub sinks: Option<Vector<'a>>,
    /// Behind the attention, or the convolution.
    pub attention_output: Linear<'a>,
    /// Of what the attention adds; see [`Architecture::normalises_results`].
    pub attention_result_norm: Option<Norm<'a>>,
    /// In front of the feed-forward network.
    pub feed_forward_norm: Norm<'a>,
    /// The feed-forward network.
    pub feed_forward: FeedForward<'a>,
    /// Of what the feed-forward network adds.
    pub feed_forward_result_norm: Option<Norm<'a>>,
}

/// Finds tensors by name and checks their shapes; remembers which were found.
pub(super) struct Finder<'a> {
    file: &'a File,
    shape: &'a Shape,
    found: RefCell<BTreeSet<&'a str>>,
}

impl<'a> Finder<'a> {
    pub(super) fn new(file: &'a File, shape: &'a Shape) -> Self {
        Self { file, shape, found: RefCell::default() }
    }

    /// A tensor with the needed dimensions, behind which there may be ones.
    fn optional(&self, name: &str, needed: &[usize]) -> Result<Option<Tensor<'a>>> {
        let Some(tensor) = self.file.tensor(name) else { return Ok(None) };
        self.found.borrow_mut().insert(tensor.name);
        let (front, rest) = tensor.dims.split_at(needed.len().min(tensor.dims.len()));
        if front == needed && rest.iter().all(|dim| *dim == 1) {
            return Ok(Some(tensor));
        }
        let (name, dims) = (name.to_owned(), tensor.dims.to_vec());
        Err(Error::Model(ModelFault::Dimensions { name, dims, needed: needed.to_vec() }))
    }

    pub(super) fn matrix(&self, name: &str, inputs: usize, outputs: usize) -> Result<Matrix<'a>> {
        let tensor = self.optional(name, &[inputs, outputs])?.ok_or_else(|| missing(name))?;
        Ok(Matrix { name: tensor.name, inputs, outputs, block: tensor.block, bytes: tensor.bytes })
    }

    pub(super) fn optional_vector(&self, name: &str, dims: &[usize]) -> Result<Option<Vector<'a>>> {
        let Some(tensor) = self.optional(name, dims)? else { return Ok(None) };
        let len = dims.iter().product();
        let Tensor { name, block, bytes, .. } = tensor;
        if !matches!(block, BlockType::F32 | BlockType::F16 | BlockType::Bf16) {
            return Err(Error::Model(ModelFault::Vector { name: name.to_owned(), block }));
        }
        Ok(Some(Vector { name, len, block, bytes }))
    }

    fn vector(&self, name: &str, len: usize) -> Result<Vector<'a>> {
        self.optional_vector(name, &[len])?.ok_or_else(|| missing(name))
    }

    /// A vector that layers of all architectures but gpt-oss may lack.
    fn extra(&self, name: &str, dims: &[usize]) -> Result<Option<Vector<'a>>> {
        match self.optional_vector(name, dims)? {
            None if self.shape.architecture == Architecture::GptOss => Err(missing(name)),
            vector => Ok(vector),
        }
    }

    pub(super) fn norm(&self, name: &str) -> Result<Norm<'a>> {
        let weights = self.vector(&format!("{name}.weight"), self.shape.width)?;
        let bias = match self.shape.norm {
            NormKind::Rms => None,
            NormKind::Layer => Some(self.vector(&format!("{name}.bias"), self.shape.width)?),
        };
        Ok(Norm { weights, bias })
    }

    fn linear(&self, name: &str, inputs: usize, outputs: usize) -> Result<Linear<'a>> {
        let weights = self.matrix(&format!("{name}.weight"), inputs, outputs)?;
        let bias = self.extra(&format!("{name}.bias"), &[outputs])?;
        Ok(Linear { weights, bias })
    }

    /// The parts of a convolution, as rows of one tensor.
    fn convolution(&self, block: &str) -> Result<[Linear<'a>; 3]> {
        let width = self.shape.width;
        let all = self.linear(&format!("{block}.shortconv.in_proj"), width, 3 * width)?;
        Ok([0, 1, 2].map(|part| all.rows(part * width, width)))
    }

    /// Queries, keys and values: three tensors, or the rows of one.
    fn attention(&self, block: &str) -> Result<[Linear<'a>; 3]> {
        let (width, queries, keys) = (self.shape.width, self.shape.query_width(), self.shape.kv_width());
        let joined = format!("{block}.attn_qkv");
        if self.file.tensor(&format!("{joined}.weight")).is_some() {
            let all = self.linear(&joined, width, queries + 2 * keys)?;
            return Ok([all.rows(0, queries), all.rows(queries, keys), all.rows(queries + keys, keys)]);
        }
        Ok([
            self.linear(&format!("{block}.attn_q"), width, queries)?,
            self.linear(&format!("{block}.attn_k"), width, keys)?,
            self.linear(&format!("{block}.attn_v"), width, keys)?,
        ])
    }

    pub(super) fn layer(&self, number: usize) -> Result<Layer<'a>> {
        let shape = self.shape;
        let block = format!("blk.{number}");
        let is_convolution = shape.layers[number].convolution;
        let taps = format!("{block}.shortconv.conv.weight");
        let taps = is_convolution
            .then(|| self.optional_vector(&taps, &[CONVOLVED, shape.width])?.ok_or_else(|| missing(&taps)))
            .transpose()?;
        let ([query, key, value], output, inputs) = if is_convolution {
            (self.convolution(&block)?, "shortconv.out_proj", shape.width)
        } else {
            (self.attention(&block)?, "attn_output", shape.query_width())
        };
        let head_norm = |name: &str| {
            let needed = shape.architecture.normalises_heads() && !is_convolution;
            needed.then(|| self.vector(&format!("{block}.{name}.weight"), shape.head_size)).transpose()
        };
        let result_norm = |name: &str| {
            let needed = shape.architecture.normalises_results();
            needed.then(|| self.norm(&format!("{block}.{name}"))).transpose()
        };
        Ok(Layer {
            attention_norm: self.norm(&format!("{block}.attn_norm"))?,
            query,
            key,
            value,
            convolution: taps,
            query_norm: head_norm("attn_q_norm")?,
            key_norm: head_norm("attn_k_norm")?,
            sinks: self.extra(&format!("{block}.attn_sinks.weight"), &[shape.heads])?,
            attention_output: self.linear(&format!("{block}.{output}"), inputs, shape.width)?,
            attention_result_norm: result_norm("post_attention_norm")?,
            feed_forward_norm: self.norm(&format!("{block}.{}", shape.architecture.feed_forward_norm()))?,
            feed_forward: self.feed_forward(&block)?,
            feed_forward_result_norm: result_norm("post_ffw_norm")?,
        })
    }

    /// The products of a feed-forward network. Phi's file has gate and up as the rows of one tensor.
    fn feed_forward(&self, block: &str) -> Result<FeedForward<'a>> {
        let Shape { width, ffn, experts, architecture, .. } = *self.shape;
        let has_gate = self.shape.activation.has_gate();
        let name = |part: &str| format!("{block}.ffn_{part}");
        if let Some(Experts { count, .. }) = experts {
            let stack = |part, inputs, outputs| self.experts(&name(part), inputs, outputs, count);
            return Ok(FeedForward {
                router: Some(self.linear(&name("gate_inp"), width, count)?),
                gate: has_gate.then(|| stack("gate_exps", width, ffn)).transpose()?,
                up: stack("up_exps", width, ffn)?,
                down: stack("down_exps", ffn, width)?,
            });
        }
        let down = self.linear(&name("down"), ffn, width)?;
        if architecture == Architecture::Phi3 {
            let both = self.linear(&name("up"), width, 2 * ffn)?;
            let (gate, up) = (Some(both.rows(0, ffn)), both.rows(ffn, ffn));
            return Ok(FeedForward { router: None, gate, up, down });
        }
        Ok(FeedForward {
            router: None,
            gate: has_gate.then(|| self.linear(&name("gate"), width, ffn)).transpose()?,
            up: self.linear(&name("up"), width, ffn)?,
            down,
        })
    }

    /// The matrices of all experts, in one tensor.
    fn experts(&self, name: &str, inputs: usize, outputs: usize, count: usize) -> Result<Linear<'a>> {
        let weights = format!("{name}.weight");
        let tensor = self.optional(&weights, &[inputs, outputs, count])?.ok_or_else(|| missing(&weights))?;
        let Tensor { name: tensor_name, block, bytes, .. } = tensor;
        let weights = Matrix { name: tensor_name, inputs, outputs: outputs * count, block, bytes };
        let bias = self.extra(&format!("{name}.bias"), &[outputs, count])?;
        Ok(Linear { weights, bias })
    }

    /// The divisors of a rotation's frequencies: those of contexts up to [`Rope::original`] positions, and of longer
    /// ones.
    pub(super) fn rope_factors(&self, rope: &Rope) -> Result<Option<[Vector<'a>; 2]>> {
        let find = |name: &str| self.optional_vector(name, &[rope.components / 2]);
        match self.shape.architecture {
            Architecture::Phi3 => {
                let names = ["rope_factors_short.weight", "rope_factors_long.weight"];
                match (find(names[0])?, find(names[1])?) {
                    (None, None) => Ok(None),
                    (short, long) => Ok(Some([
                        short.ok_or_else(|| missing(names[0]))?,
                        long.ok_or_else(|| missing(names[1]))?,
                    ])),
                }
            }
            Architecture::Gemma3 | Architecture::SmolLm3 | Architecture::Lfm2 | Architecture::GptOss => {
                Ok(None)
            }
            _ => Ok(find("rope_freqs.weight")?.map(|factors| [factors; 2])),
        }
    }

    /// Returns an error if the file has tensors that no layer uses.
    pub(super) fn refuse_others(&self) -> Result<()> {
        let found = self.found.borrow();
        let rotated = !self.shape.ropes.is_empty();
        // Old files of LLaMA models contain the frequencies that follow from the keys.
        let is_known = |name: &str| found.contains(name) || rotated && name.ends_with(".attn_rot_embd");
        match self.file.tensors().find(|tensor| !is_known(tensor.name)) {
            None => Ok(()),
            Some(tensor) => Err(Error::Model(ModelFault::UnknownTensor(tensor.name.to_owned()))),
        }
    }
}

fn missing(name: &str) -> Error {
    Error::Model(ModelFault::MissingTensor(name.to_owned()))
}
