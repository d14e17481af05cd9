//! Language models: shape and tensors of a file, checked against each other.

mod architecture;
pub(crate) mod fault;
mod keys;
mod layer;
mod rope;
mod shape;

use std::path::Path;

pub use architecture::Architecture;
pub use fault::ModelFault;
pub(crate) use keys::MOST_CONTEXT;
pub use layer::{FeedForward, Layer, Linear, Matrix, Norm, Vector};
pub use rope::{Rope, RopePairs, Yarn};
pub use shape::{Activation, CONVOLVED, Experts, KvFormat, LayerShape, NormKind, Shape};

use crate::error::{Error, Result};
use crate::gguf::File;
use layer::Finder;

/// A language model in a GGUF file: its weights stay in the file's format, behind the file's map.
///
/// ```
/// use infer::model::{Architecture, Model};
/// use infer::synthetic::Recipe;
///
/// let model = Model::from_bytes(Recipe::tiny_llama().to_bytes()?)?;
/// assert_eq!(model.shape().architecture, Architecture::Llama);
/// let layer = model.layer(1);
/// assert_eq!((layer.query.weights.inputs, layer.key.weights.outputs), (256, 128));
/// assert!(layer.query.bias.is_none() && layer.feed_forward.gate.is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Model {
    file: File,
    shape: Shape,
}

/// Name of the embedding.
const EMBEDDING: &str = "token_embd.weight";

/// Name of the output matrix, if it is not the embedding.
const OUTPUT: &str = "output.weight";

/// Name of learned positions.
const POSITIONS: &str = "position_embd.weight";

fn fault(fault: ModelFault) -> Error {
    Error::Model(fault)
}

impl Model {
    /// Maps a file and checks it.
    ///
    /// # Errors
    ///
    /// Those of [`File::open`]; [`Error::Model`] if the model is not supported, or if keys, vocabulary and tensors
    /// contradict each other; [`Error::Value`] if a key has a wrong type.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::new(File::open(path)?)
    }

    /// Checks a file that is in memory.
    ///
    /// # Errors
    ///
    /// As [`Model::open`].
    pub fn from_bytes(bytes: Vec<u8>) -> Result<Self> {
        Self::new(File::from_bytes(bytes)?)
    }

    /// Checks a file.
    ///
    /// # Errors
    ///
    /// As [`Model::open`].
    pub fn new(file: File) -> Result<Self> {
        let count = file.integer::<u32>("split.count")?.filter(|count| *count > 1);
        if let Some(count) = count.filter(|_| file.parts() == 1) {
            let number = file.integer::<u32>("split.no")?.unwrap_or(0).saturating_add(1);
            return Err(Error::Model(ModelFault::Part { number, count }));
        }
        if file.tensors().len() == 0 && file.value("tokenizer.ggml.tokens").is_some() {
            return Err(Error::Model(ModelFault::VocabularyOnly));
        }
        let mut shape = Shape::read(&file)?;
        shape.tied = file.tensor(OUTPUT).is_none();
        // Each layer has tensors of its own: a number of layers that exceeds them is found without a long search.
        if shape.layers.len() > file.tensors().len() {
            let key = format!("{}.block_count", shape.architecture);
            return Err(Error::Model(ModelFault::Size {
                key,
                size: shape.layers.len() as u64,
                most: file.tensors().len(),
            }));
        }
        let finder = Finder::new(&file, &shape);
        finder.matrix(EMBEDDING, shape.width, shape.vocabulary)?;
        if !shape.tied {
            finder.matrix(OUTPUT, shape.width, shape.vocabulary)?;
        }
        finder.norm(shape.architecture.output_norm())?;
        if shape.learned_positions {
            finder.matrix(POSITIONS, shape.width, shape.context)?;
        }
        for rope in &shape.ropes {
            for factors in finder.rope_factors(rope)?.into_iter().flatten() {
                factors.refuse(|factor| !factor.is_finite() || factor <= 0.0)?;
            }
        }
        for number in 0..shape.layers.len() {
            finder.layer(number)?;
        }
        finder.refuse_others()?;
        Ok(Self { file, shape })
    }

    /// The model's sizes and kinds.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The shape, for layers that are in no file.
    #[cfg(test)]
    pub(crate) fn shape_mut(&mut self) -> &mut Shape {
        &mut self.shape
    }

    /// The file.
    pub fn file(&self) -> &File {
        &self.file
    }

    fn finder(&self) -> Finder<'_> {
        Finder::new(&self.file, &self.shape)
    }

    /// The vectors of the tokens, one per row.
    pub fn embedding(&self) -> Matrix<'_> {
        // PANIC: `Model::new` found the same tensor with the same shape.
        self.finder().matrix(EMBEDDING, self.shape.width, self.shape.vocabulary).expect("checked")
    }

    /// The vectors of the positions, one per row; `None` if positions are rotations.
    pub fn position_embedding(&self) -> Option<Matrix<'_>> {
        // PANIC: `Model::new` found the same tensor with the same shape.
        self.shape
            .learned_positions
            .then(|| self.finder().matrix(POSITIONS, self.shape.width, self.shape.context).expect("checked"))
    }

    /// The normalisation in front of the output matrix.
    pub fn output_norm(&self) -> Norm<'_> {
        // PANIC: `Model::new` found the same tensors with the same shapes.
        self.finder().norm(self.shape.architecture.output_norm()).expect("checked")
    }

    /// The matrix that makes a number for each token; the embedding if [`Shape::tied`].
    pub fn output(&self) -> Matrix<'_> {
        let name = if self.shape.tied { EMBEDDING } else { OUTPUT };
        // PANIC: `Model::new` found the same tensor with the same shape.
        self.finder().matrix(name, self.shape.width, self.shape.vocabulary).expect("checked")
    }

    /// The tensors of a layer.
    ///
    /// # Panics
    ///
    /// If the model has no layer with this number.
    pub fn layer(&self, number: usize) -> Layer<'_> {
        let layers = self.shape.layers.len();
        assert!(number < layers, "the model has {layers} layers, not {number}");
        // PANIC: `Model::new` found the same tensors with the same shapes.
        self.finder().layer(number).expect("checked")
    }

    /// Angle per position of each pair of components in a rotation of [`Shape::ropes`], in radians, with all scaling,
    /// in contexts of `context` positions.
    ///
    /// # Panics
    ///
    /// If the rotation is not one of them.
    pub fn rope_frequencies(&self, rope: usize, context: usize) -> Vec<f64> {
        let rope = &self.shape.ropes[rope];
        // PANIC: `Model::new` found the same tensors with the same shapes.
        let factors = self.finder().rope_factors(rope).expect("checked");
        let factors =
            factors.map(|[short, long]| if context > rope.original { long } else { short }.to_vec());
        rope.frequencies(factors.as_deref())
    }

    /// Bytes of all tensors.
    pub fn weight_bytes(&self) -> usize {
        self.file.tensors().map(|tensor| tensor.bytes.len()).sum()
    }

    /// Bytes of weights that one token reads: all tensors, but one row each of the embedding and of the positions, and
    /// of experts only those that it uses.
    pub fn bytes_per_token(&self) -> usize {
        let row = |matrix: Matrix<'_>| matrix.bytes.len() / matrix.outputs;
        let embedding = self.embedding();
        let mut bytes = self.weight_bytes() + row(embedding);
        if !self.shape.tied {
            bytes -= embedding.bytes.len();
        }
        if let Some(positions) = self.position_embedding() {
            bytes = bytes - positions.bytes.len() + row(positions);
        }
        if let Some(Experts { count, used }) = self.shape.experts {
            for number in 0..self.shape.layers.len() {
                let FeedForward { gate, up, down, .. } = self.layer(number).feed_forward;
                let linears = [gate, Some(up), Some(down)].into_iter().flatten();
                let bias = |linear: &Linear<'_>| linear.bias.map_or(0, |bias| bias.bytes.len());
                let all: usize = linears.map(|linear| linear.weights.bytes.len() + bias(&linear)).sum();
                bytes -= all / count * (count - used);
            }
        }
        bytes
    }
}
