//! One launch for all layers, compared with a launch for each part.

use std::time::Duration;

use super::large_device;
use crate::blocks::BlockType;
use crate::decode::persistent::Persistent;
use crate::decode::{Engine, EngineOptions, Layers, Sampling, Session, SessionOptions};
use crate::error::Error;
use crate::model::{KvFormat, Model};
use crate::synthetic::Recipe;

fn options() -> SessionOptions {
    SessionOptions::default().layers(Layers::Persistent)
}

/// A model with batches of rows for some SMs, and none for others.
fn small(recipe: Recipe, block: BlockType) -> Recipe {
    Recipe { block, layers: 1, ffn: 256, vocabulary: 64, has_tokens: false, ..recipe }
}

fn load(recipe: &Recipe) -> Engine {
    let model = Model::from_bytes(recipe.to_bytes().unwrap()).unwrap();
    Engine::load(&large_device(), &model, 64, |_, _| ()).unwrap()
}

/// Tokens that continue the context, and the logits after them.
type Continued = (Vec<u32>, Vec<f32>);

fn continued(session: &mut Session, count: usize) -> Continued {
    let tokens: Vec<u32> = session.tokens(count).unwrap().map(Result::unwrap).collect();
    assert_eq!(tokens.len(), count);
    (tokens, session.logits().unwrap())
}

/// Panics unless both have the same tokens, and logits that differ by what roundings of other sums make.
fn assert_close(one: &[Continued], many: &[Continued], what: &str) {
    assert_eq!(one.len(), many.len(), "{what}");
    for ((tokens, logits), (expected_tokens, expected)) in one.iter().zip(many) {
        assert_eq!(tokens, expected_tokens, "{what}");
        let largest = expected.iter().fold(0.0_f32, |most, logit| most.max(logit.abs()));
        let differences = logits.iter().zip(expected).map(|(a, b)| (a - b).abs());
        // A NaN is not below the limit.
        let worst = differences.fold(0.0_f32, |most, d| if d <= most { most } else { d });
        assert!(worst <= 1e-3 * largest, "{what}: logits of {largest} differ by {worst}");
    }
}

#[test]
fn one_launch_for_all_layers_computes_what_many_do() {
    let gemma = Recipe { head_size: 160, heads: 1, kv_heads: 1, ..Recipe::tiny_gemma3() };
    let short = || Recipe { width: 96, heads: 1, kv_heads: 1, mixed: true, ..Recipe::tiny_qwen2() };
    for recipe in [
        // Rows of 96 columns have formats with blocks of 32.
        Recipe { layers: 2, ..small(short(), BlockType::Q4K) },
        Recipe { ffn: 320, ..small(short(), BlockType::Q5K) },
        // Results are normalised. One block of 16 has no rows of the first product, but keeps the sum as all do.
        Recipe { layers: 2, ..small(gemma, BlockType::Q8_0) },
        small(Recipe::tiny_llama(), BlockType::Q6K),
        small(Recipe::tiny_qwen3(), BlockType::Q8_0),
        small(Recipe::tiny_qwen2(), BlockType::Q4K),
        // Values and the last product of the second layer, and the logits, are in Q6_K.
        Recipe { mixed: true, layers: 2, ..small(Recipe::tiny_llama(), BlockType::Q4K) },
        Recipe { mixed: true, ..small(Recipe::tiny_qwen3(), BlockType::Q5K) },
    ] {
        let results = |mut session: Session| {
            session.feed(&[17]).unwrap();
            [continued(&mut session, 2)]
        };
        let engine = load(&recipe);
        let many = results(engine.session(64).unwrap());
        let one = || results(engine.session_with(64, &options()).unwrap());
        let (first, second) = (one(), one());
        let what = format!("{} {}", recipe.architecture, recipe.block);
        assert!(first == second, "{what}: other bits in the second run");
        assert_close(&first, &many, &what);
    }
}

#[test]
fn one_launch_for_all_layers_continues_contexts_as_many_do() {
    let thin = Recipe { width: 64, heads: 1, kv_heads: 1, head_size: 64, ..Recipe::tiny_gpt2() };
    let engine = load(&Recipe { layers: 3, ..small(thin, BlockType::F16) });
    let results = |mut session: Session| {
        session.feed(&[17, 50]).unwrap();
        let mut all = vec![continued(&mut session, 2)];
        let drawn = Sampling { temperature: 1.0, penalty: 1.2, seed: 3, ..Sampling::default() };
        session.set_sampling(&drawn).unwrap();
        all.push(continued(&mut session, 1));
        session.truncate(2).unwrap();
        session.feed(&[9]).unwrap();
        all.push(continued(&mut session, 1));
        all
    };
    let one = engine.session_with(64, &options()).unwrap();
    assert_eq!(one.launches_per_token(), 2);
    assert_close(&results(one), &results(engine.session(64).unwrap()), "contexts");
}

#[test]
fn chunks_of_a_context_come_and_go() {
    let thin = Recipe { width: 64, heads: 1, kv_heads: 1, head_size: 64, ..Recipe::tiny_gpt2() };
    let model = Model::from_bytes(small(thin, BlockType::F16).to_bytes().unwrap()).unwrap();
    let engine = Engine::load(&large_device(), &model, 300, |_, _| ()).unwrap();
    let results = |mut session: Session| {
        let mut all = Vec::new();
        // One and two chunks, in both halves of the exchange.
        for (kept, fed) in [(0, 270), (20, 2), (22, 250), (0, 258)] {
            session.truncate(kept).unwrap();
            let tokens: Vec<u32> = (0..fed).map(|token| token % 60).collect();
            session.feed(&tokens).unwrap();
            all.push(continued(&mut session, 2));
        }
        all
    };
    let one = engine.session_with(300, &options()).unwrap();
    assert_close(&results(one), &results(engine.session(300).unwrap()), "chunks");
}

#[test]
fn models_without_a_kernel_are_refused() {
    let mixed = Recipe { mixed: true, ..small(Recipe::tiny_llama(), BlockType::Q4_0) };
    let gemma = Recipe { head_size: 256, heads: 1, kv_heads: 1, ..Recipe::tiny_gemma3() };
    for (recipe, words) in [
        (small(Recipe::tiny_llama(), BlockType::F32), "no kernel for F32"),
        (mixed, "no kernel for Q4_0 with Q6_K"),
        (small(gemma, BlockType::F16), "no kernel for F16 and heads of more than 128 columns"),
        (small(Recipe::tiny_gemma3(), BlockType::Q8_0), "normalises results of 256 columns with heads of 64"),
    ] {
        let error = load(&recipe).session_with(64, &options()).unwrap_err();
        assert!(matches!(&error, Error::Persistent(reason) if reason.contains(words)), "{error}");
    }
    let model = Model::from_bytes(small(Recipe::tiny_llama(), BlockType::F16).to_bytes().unwrap()).unwrap();
    let integers = EngineOptions::default().kv(KvFormat::Q8_0);
    let engine = Engine::load_with(&large_device(), &model, 64, &integers, |_, _| ()).unwrap();
    let error = engine.session_with(64, &options()).unwrap_err();
    assert!(matches!(&error, Error::Persistent(reason) if reason.contains("values are in Q8_0")), "{error}");
}

#[test]
fn a_block_that_waits_in_vain_ends_the_launch() {
    let engine = load(&small(Recipe::tiny_llama(), BlockType::F16));
    let (inner, device) = (&engine.inner, engine.device());
    let (places, end) = inner.places();
    let memory = device.alloc_zeroed::<u8>(end).unwrap();
    let cache = device.alloc_zeroed::<u8>(engine.shape().kv_bytes(KvFormat::F16, 64).unwrap()).unwrap();
    let position = device.alloc_zeroed::<u32>(1).unwrap();
    let mut at = places.moved(memory.gpu_va());
    (at.context, at.position, at.keys, at.values) = (64, position.gpu_va(), cache.gpu_va(), cache.gpu_va());
    let run = |complete: bool| {
        let mut one = Persistent::new(inner, &at).unwrap();
        one.parameters.patience = 20_000;
        if !complete {
            // Nobody computes what the attention waits for.
            let mut products = one.memory.0.to_vec().unwrap();
            products[0].product.batches = 0;
            one.memory.0.copy_from_slice(&products).unwrap();
        }
        let mut builder = device.graph();
        one.record(&mut builder, true).unwrap();
        let (mut graph, mut queue) = (builder.build().unwrap(), device.queue().unwrap());
        queue.replay(&mut graph).and_then(|fence| fence.wait(Duration::from_secs(60)))
    };
    run(true).unwrap();
    let error = run(false).unwrap_err();
    assert!(matches!(&error, tegra_hcq::Error::Fault(_)), "{error}");
}
