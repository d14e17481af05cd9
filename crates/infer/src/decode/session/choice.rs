//! Limits of the choice of tokens, and what it was made from.

use tegra_hcq::MemoryUse;

use super::Session;
use crate::decode::engine::TIMEOUT;
use crate::error::{Error, Result};

impl Session {
    /// Sets the tokens that later steps may choose, until the next mask or [`Session::set_sampling`]: bit `t % 32` of
    /// word `t / 32` allows token `t`. `None` allows all.
    ///
    /// A mask that changes from token to token, such as a grammar's, needs the token before it: ask
    /// [`Session::tokens`] for one token at a time, or use a [`Batch`](crate::decode::Batch), whose steps do not work
    /// ahead.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use tegra_hcq::{Device, DeviceKind};
    /// # let device = Device::open(DeviceKind::Sim)?;
    /// # use infer::decode::Engine;
    /// # use infer::model::Model;
    /// # use infer::synthetic::Recipe;
    /// # let model = Model::from_bytes(Recipe::tiny_llama().to_bytes()?)?;
    /// # let engine = Engine::load(&device, &model, 64, |_, _| ())?;
    /// # let mut session = engine.session(64)?;
    /// session.feed(&[1, 2, 3])?;
    /// let mut mask = vec![0; model.shape().vocabulary.div_ceil(32)];
    /// mask[70 / 32] |= 1 << (70 % 32);
    /// session.set_mask(Some(&mask))?;
    /// assert_eq!(session.tokens(1)?.next().transpose()?, Some(70));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Length`] if the mask has not a bit for each token of the vocabulary, in as few words as possible;
    /// [`Error::EmptyMask`] if it allows no token; those of the device.
    pub fn set_mask(&mut self, mask: Option<&[u32]>) -> Result<()> {
        self.discard_in_flight()?;
        let mut settings = self.settings;
        settings.mask = match mask {
            None => 0,
            Some(words) => self.write_mask(words)?,
        };
        if settings.mask != self.settings.mask {
            self.buffers.settings.copy_from_slice(&[settings])?;
            self.settings = settings;
        }
        Ok(())
    }

    /// Copies a mask to the device; returns its address. No step that reads it is in flight: each step has read it
    /// when its token arrives.
    fn write_mask(&mut self, words: &[u32]) -> Result<u64> {
        let vocabulary = self.engine.shape.vocabulary;
        let needed = vocabulary.div_ceil(32);
        if words.len() != needed {
            return Err(Error::Length { what: "a mask", len: words.len(), needed });
        }
        // Bits behind the vocabulary allow nothing.
        let last = u32::MAX >> (needed * 32 - vocabulary);
        let allowed = words
            .split_last()
            .map_or(0, |(end, start)| start.iter().fold(end & last, |all, word| all | word));
        if allowed == 0 {
            return Err(Error::EmptyMask);
        }
        let buffer = match &mut self.buffers.mask {
            Some(buffer) => buffer,
            none => {
                let buffer = self.engine.device.alloc_for::<u32>(needed, MemoryUse::Upload)?;
                none.insert(buffer.named("mask of tokens"))
            }
        };
        buffer.copy_from_slice(words)?;
        Ok(buffer.gpu_va())
    }

    /// The logits from which the newest token was chosen, without the penalty for repetitions and without a mask.
    ///
    /// # Errors
    ///
    /// [`Error::Length`] if the slice has not a place for each token of the vocabulary; [`Error::NothingChosen`] if no
    /// step has made the newest token, or if the session computes [all layers in one
    /// launch](crate::decode::Layers::Persistent), which makes the next logits at once; those of the device.
    pub fn chosen_from(&mut self, logits: &mut [f32]) -> Result<()> {
        let needed = self.engine.shape.vocabulary;
        if logits.len() != needed {
            return Err(Error::Length { what: "a slice for logits", len: logits.len(), needed });
        }
        if self.produced == 0 || !self.is_current || self.persistent.is_some() {
            return Err(Error::NothingChosen);
        }
        self.queue.wait(TIMEOUT)?;
        let made = self.buffers.scratch.slice(self.buffers.logits.clone())?;
        Ok(made.copy_to_slice(bytemuck::cast_slice_mut(logits))?)
    }

    /// The model's vector of the newest token after the last norm, in front of the product that makes logits:
    /// what embeddings of texts are made of.
    ///
    /// # Errors
    ///
    /// As [`Session::logits`].
    pub fn hidden(&mut self) -> Result<Vec<f64>> {
        self.refresh()?;
        if self.engine.shape.architecture.normalises_results() {
            // The product that makes logits adds the last result.
            self.queue.replay(&mut self.logits_graph)?;
        }
        self.queue.wait(TIMEOUT)?;
        let mut x = vec![0.0_f32; self.engine.shape.width];
        let made = self.buffers.scratch.slice(self.buffers.x.clone())?;
        made.copy_to_slice(bytemuck::cast_slice_mut(&mut x))?;
        let x: Vec<f64> = x.into_iter().map(f64::from).collect();
        Ok(self.engine.output_norm.apply(&x))
    }
}
