//! Where a session's vectors are.

use super::engine::{Ahead, Inner, rounded_bytes, vector_bytes};
use super::experts;
use crate::blocks::BlockType;

/// Addresses of what a session's launches use.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Addresses {
    pub(super) x: u64,
    /// A second place of the vector, and a result that is to be normalised and added to it; only of models that
    /// normalise results.
    pub(super) second: u64,
    pub(super) branch: u64,
    /// The input of a product of several sequences.
    pub(super) prepared: u64,
    pub(super) qkv: u64,
    pub(super) attended: u64,
    pub(super) hidden: u64,
    pub(super) gate: u64,
    /// Of models with experts: the router's numbers, the choices, and the results of experts in a batch.
    pub(super) router: u64,
    pub(super) choices: u64,
    pub(super) partial: u64,
    pub(super) logits: u64,
    pub(super) best: u64,
    pub(super) parts: u64,
    pub(super) tickets: u64,
    pub(super) rotation: u64,
    /// What convolutions keep of earlier positions.
    pub(super) kept: u64,
    /// Of the newest token; the first word of the state.
    pub(super) position: u64,
    pub(super) keys: u64,
    pub(super) values: u64,
    /// Scales of both; 0 for halves.
    pub(super) scales: u64,
    pub(super) context: u32,
    /// Bytes of later weights that a launch of each kind asks for.
    pub(super) ahead: Ahead,
}

/// Cuts a buffer into parts.
#[derive(Default)]
struct Cut(usize);

impl Cut {
    /// The offset of the next part.
    fn next(&mut self, bytes: usize) -> u64 {
        let start = self.0;
        self.0 = (start + bytes).next_multiple_of(256);
        // CAST: usize is at most 64 bits.
        start as u64
    }
}

impl Inner {
    /// Places of vectors in a session's memory, the same in all sessions, and the bytes that they need.
    pub(super) fn places(&self) -> (Addresses, usize) {
        let shape = &self.shape;
        let mut cut = Cut::default();
        let (parts, tickets) = self.attention_sizes();
        let widest = shape.width.max(shape.query_width()).max(shape.ffn);
        let [router, choices, hidden, partial] = experts::sizes(shape);
        let forms = BlockType::ALL.map(|block| vector_bytes(block, widest));
        let results = if shape.architecture.normalises_results() { shape.width * 4 } else { 0 };
        let places = Addresses {
            x: cut.next(shape.width * 4),
            second: cut.next(results),
            branch: cut.next(results),
            prepared: cut.next(forms.into_iter().max().unwrap_or(0)),
            qkv: cut.next(shape.most_first_outputs() * 4),
            attended: cut.next(shape.query_width().max(shape.width) * 4),
            hidden: cut.next((shape.ffn * 4).max(rounded_bytes(shape.ffn)).max(hidden)),
            gate: cut.next(shape.ffn * 4),
            router: cut.next(router),
            choices: cut.next(choices),
            partial: cut.next(partial),
            logits: cut.next(shape.vocabulary * 4),
            best: cut.next(self.logits_blocks() * 8),
            parts: cut.next(parts * 4),
            tickets: cut.next(tickets * 4),
            rotation: cut.next(shape.rope_pairs() * 8),
            kept: cut.next(self.kept_bytes()),
            ..Addresses::default()
        };
        (places, cut.0)
    }
}

impl Addresses {
    /// The addresses in the memory that starts at `base`.
    pub(super) fn moved(mut self, base: u64) -> Self {
        let places = [
            &mut self.x,
            &mut self.second,
            &mut self.branch,
            &mut self.prepared,
            &mut self.qkv,
            &mut self.attended,
            &mut self.hidden,
            &mut self.gate,
            &mut self.router,
            &mut self.choices,
            &mut self.partial,
            &mut self.logits,
            &mut self.best,
            &mut self.parts,
            &mut self.tickets,
            &mut self.rotation,
            &mut self.kept,
        ];
        places.into_iter().for_each(|place| *place += base);
        self
    }
}
