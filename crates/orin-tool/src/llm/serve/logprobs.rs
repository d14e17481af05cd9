//! Log probabilities of tokens.

use std::collections::VecDeque;

/// A token of an answer.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Chosen {
    pub(super) token: u32,
    pub(super) logprob: f64,
    /// The most probable tokens with theirs, in descending order.
    pub(super) top: Vec<(u32, f64)>,
    /// Bytes of text in front of it.
    pub(super) start: usize,
}

/// A token among those of the vocabulary's `logits`, with the `most` most probable ones. Temperature, penalty and
/// grammar do not matter.
pub(super) fn chosen(logits: &[f32], token: u32, most: usize) -> Chosen {
    let largest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = logits.iter().map(|logit| f64::from(logit - largest).exp()).sum();
    let logprob = |logit: f32| f64::from(logit) - f64::from(largest) - sum.ln();
    let mut top: Vec<(u32, f32)> = Vec::with_capacity(most + 1);
    for (candidate, logit) in (0..).zip(logits) {
        if top.len() == most && top.last().is_none_or(|(_, last)| logit <= last) {
            continue;
        }
        let place = top.partition_point(|(_, other)| other >= logit);
        top.insert(place, (candidate, *logit));
        top.truncate(most);
    }
    let top = top.into_iter().map(|(token, logit)| (token, logprob(logit))).collect();
    let own = logits.get(token as usize).map_or(f64::NEG_INFINITY, |logit| logprob(*logit));
    Chosen { token, logprob: own, top, start: 0 }
}

/// Tokens whose text is not passed on yet: it may be a part of a character, or the start of a text that ends the
/// answer.
#[derive(Debug, Default)]
pub(super) struct Held {
    tokens: VecDeque<Chosen>,
    /// Bytes of text that tokens have made, and that were passed on.
    made: usize,
    passed: usize,
}

impl Held {
    /// Adds a token that completes `bytes` of text.
    pub(super) fn push(&mut self, chosen: Chosen, bytes: usize) {
        self.tokens.push_back(Chosen { start: self.made, ..chosen });
        self.made += bytes;
    }

    /// The tokens of the next `bytes` of text.
    pub(super) fn pass(&mut self, bytes: usize) -> Vec<Chosen> {
        self.passed += bytes;
        let count = self.tokens.partition_point(|token| token.start < self.passed);
        self.tokens.drain(..count).collect()
    }

    /// All that are left.
    pub(super) fn rest(&mut self) -> Vec<Chosen> {
        self.tokens.drain(..).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn log_probabilities_are_those_of_the_logits() {
        let chosen = chosen(&[0.0, 2.0_f32.ln(), -5.0, 2.0_f32.ln(), f32::NEG_INFINITY], 0, 3);
        let sum = 5.0 + (-5.0_f64).exp();
        let close = |a: f64, b: f64| (a - b.ln()).abs() < 1e-6;
        assert!(close(chosen.logprob, 1.0 / sum));
        // The first of equal ones comes first.
        assert_eq!(chosen.top.iter().map(|(token, _)| *token).collect::<Vec<_>>(), [1, 3, 0]);
        assert!(close(chosen.top[0].1, 2.0 / sum) && chosen.top[2].1 == chosen.logprob);
        assert!(super::chosen(&[1.0], 0, 0).top.is_empty());
    }

    #[test]
    fn tokens_are_passed_on_with_their_text() {
        let mut held = Held::default();
        let chosen = |token| Chosen { token, logprob: 0.0, top: Vec::new(), start: 0 };
        let tokens = |chosen: Vec<Chosen>| chosen.into_iter().map(|chosen| chosen.token).collect::<Vec<_>>();
        // The first makes a part of a character, the second the rest of it.
        held.push(chosen(1), 0);
        assert!(held.pass(0).is_empty());
        held.push(chosen(2), 2);
        held.push(chosen(3), 4);
        assert_eq!(tokens(held.pass(3)), [1, 2, 3]);
        held.push(chosen(4), 1);
        assert!(held.pass(3).is_empty());
        assert_eq!(tokens(held.rest()), [4]);
    }
}
