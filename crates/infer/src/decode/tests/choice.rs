//! How the device chooses tokens.

use super::device;
use crate::blocks::BlockType;
use crate::decode::{Engine, Sampling};
use crate::model::Model;
use crate::synthetic::Recipe;

/// The number in [0, 1) that the device draws for its token `number`.
fn random(seed: u64, number: u64) -> f64 {
    let mut z = seed.wrapping_add((number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((z ^ z >> 31) >> 40) as f64 / f64::from(1 << 24)
}

/// The share of the drawn number at which each allowed token begins and ends, in the order in which the device looks at
/// them.
fn shares(
    logits: &[f32],
    context: &[u32],
    sampling: &Sampling,
    allows: impl Fn(u32) -> bool,
) -> Vec<(u32, f64, f64)> {
    let mut logits: Vec<f64> = logits.iter().copied().map(f64::from).collect();
    let mut seen = std::collections::BTreeSet::new();
    for token in context.iter().rev().take(sampling.window as usize).filter(|token| seen.insert(**token)) {
        let logit = &mut logits[*token as usize];
        let penalty = f64::from(sampling.penalty);
        *logit = if *logit > 0.0 { *logit / penalty } else { *logit * penalty };
    }
    let mut order: Vec<u32> = (0..logits.len() as u32).filter(|token| allows(*token)).collect();
    let logit = |token: u32| logits[token as usize];
    let top = order.iter().map(|token| logit(*token)).fold(f64::MIN, f64::max);
    let cut = sampling.top_k > 0 || sampling.top_p < 1.0 || sampling.min_p > 0.0;
    if cut {
        order.sort_by(|a, b| logit(*b).total_cmp(&logit(*a)));
        order.truncate(if sampling.top_k == 0 { order.len() } else { sampling.top_k as usize });
        let total: f64 = order.iter().map(|token| (logit(*token) - top).exp()).sum();
        let mut before = 0.0;
        order.retain(|token| {
            let share = (logit(*token) - top).exp();
            before += share;
            before - share < f64::from(sampling.top_p) * total && share >= f64::from(sampling.min_p)
        });
    }
    let chance = |token: u32| ((logit(token) - top) / f64::from(sampling.temperature)).exp();
    let total: f64 = order.iter().map(|token| chance(*token)).sum();
    let mut at = 0.0;
    let share = |token: u32| {
        let start = at;
        at += chance(token) / total;
        (token, start, at)
    };
    order.into_iter().map(share).collect()
}

/// A model with one narrow layer and the whole vocabulary, for tests of the choice of tokens.
pub(super) const fn thin(recipe: Recipe) -> Recipe {
    Recipe { layers: 1, width: 64, heads: 1, kv_heads: 1, head_size: 64, ffn: 64, ..recipe }
}

/// A mask of the tokens that are allowed.
pub(super) fn mask(vocabulary: u32, allows: impl Fn(u32) -> bool) -> Vec<u32> {
    let mut words = vec![0; vocabulary.div_ceil(32) as usize];
    (0..vocabulary)
        .filter(|token| allows(*token))
        .for_each(|token| words[token as usize / 32] |= 1 << (token % 32));
    words
}

#[test]
fn the_device_chooses_tokens_as_the_settings_say() {
    let recipe = Recipe { block: BlockType::Q4_0, ..thin(Recipe::tiny_llama()) };
    let model = Model::from_bytes(recipe.to_bytes().unwrap()).unwrap();
    let engine = Engine::load(&device(), &model, 128, |_, _| ()).unwrap();
    let mut session = engine.session(128).unwrap();
    let warm = Sampling { temperature: 1.3, seed: 9, ..Sampling::default() };
    let settings = [
        warm,
        Sampling { top_k: 5, ..warm },
        Sampling { top_p: 0.4, ..warm },
        Sampling { min_p: 0.5, top_k: 300, ..warm },
        Sampling { top_k: 40, top_p: 0.8, min_p: 0.1, penalty: 1.5, window: 6, ..warm },
    ];
    // All tokens; fewer than some settings take.
    for (sampling, is_masked) in settings.iter().flat_map(|one| [(one, false), (one, true)]) {
        let allows = |token| !is_masked || token % 7 == 3;
        session.clear().unwrap();
        session.feed(&[1, 2, 1]).unwrap();
        session.set_sampling(sampling).unwrap();
        if is_masked {
            session.set_mask(Some(&mask(512, allows))).unwrap();
        }
        for number in 0..3 {
            let logits = session.logits().unwrap();
            let shares = shares(&logits, session.context_tokens(), sampling, allows);
            let token = session.tokens(1).unwrap().next().unwrap().unwrap();
            let drawn = random(sampling.seed, number);
            let share = shares.iter().find(|(candidate, ..)| *candidate == token);
            let (_, start, end) = share.unwrap_or_else(|| panic!("{sampling:?}: {token} is no candidate"));
            assert!(
                *start - 1e-4 <= drawn && drawn <= *end + 1e-4,
                "{sampling:?}: {drawn} in {start} to {end}"
            );
        }
    }
}

#[test]
fn greedy_tokens_have_the_largest_logit_also_with_a_penalty() {
    let recipe = Recipe { block: BlockType::Q8_0, ..thin(Recipe::tiny_qwen2()) };
    let model = Model::from_bytes(recipe.to_bytes().unwrap()).unwrap();
    let engine = Engine::load(&device(), &model, 64, |_, _| ()).unwrap();
    let mut session = engine.session(64).unwrap();
    session.feed(&[5]).unwrap();
    for penalty in [1.0, 4.0] {
        session.set_sampling(&Sampling { penalty, ..Sampling::default() }).unwrap();
        for _ in 0..6 {
            let logits = session.logits().unwrap();
            let penalised = |token: usize| match logits[token] {
                logit if !session.context_tokens().contains(&(token as u32)) => logit,
                logit if logit > 0.0 => logit / penalty,
                logit => logit * penalty,
            };
            let best = (0..logits.len()).max_by(|a, b| penalised(*a).total_cmp(&penalised(*b))).unwrap();
            assert_eq!(session.tokens(1).unwrap().next().unwrap().unwrap(), best as u32);
        }
    }
}
