//! The attention's properties that differ between layers and models, on the software Orin: windows, sinks, rotations,
//! scales, wide heads. In prompts, in decoding and in batches, compared with 64-bit floats.

use super::{device, relative_distance};
use crate::blocks::BlockType;
use crate::decode::{BatchOptions, Engine, EngineOptions, Layers, Session, SessionOptions};
use crate::error::Error;
use crate::model::{KvFormat, Model, Rope};
use crate::reference::{CacheFormat, Reference};
use crate::synthetic::Recipe;

/// A model of two layers with heads of `head_size` columns. The first layer has a window and a rotation of a part of
/// the columns, the second has no rotation; both have sinks. Scores and embedding have scales.
fn model(head_size: usize, heads: usize, window: usize) -> Model {
    let sizes =
        Recipe { width: 64, heads, kv_heads: 1, head_size, ffn: 64, vocabulary: 64, ..Recipe::tiny_qwen3() };
    let recipe = Recipe { block: BlockType::F16, has_tokens: false, ..sizes };
    let mut writer = recipe.writer().unwrap();
    for layer in 0..recipe.layers {
        let sinks: Vec<u8> = (0..heads).flat_map(|head| (head as f32 - 0.5).to_le_bytes()).collect();
        let name = format!("blk.{layer}.attn_sinks.weight");
        writer.tensor(&name, &[heads], BlockType::F32, move |_| sinks.clone()).unwrap();
    }
    let mut bytes = Vec::new();
    writer.write(&mut bytes).unwrap();
    let mut model = Model::from_bytes(bytes).unwrap();
    let shape = model.shape_mut();
    let components = head_size / 4 * 2;
    shape.ropes.push(Rope { components, base: 10_000.0, scale: 8.0, magnitude: 1.2, ..shape.ropes[0] });
    (shape.layers[0].rope, shape.layers[0].window) = (Some(1), Some(window));
    shape.layers[1].rope = None;
    (shape.attention_scale, shape.embedding_scale) = (0.8 / (head_size as f64).sqrt(), 3.0);
    model
}

/// Logits after each token.
fn expected(model: &Model, cache: CacheFormat, tokens: &[u32]) -> Vec<Vec<f64>> {
    let mut reference = Reference::new(model, cache).unwrap();
    tokens.iter().map(|token| reference.step(*token).unwrap()).collect()
}

/// Feeds `tokens`, the last few one by one. Returns the largest error of the logits.
fn feed(session: &mut Session, tokens: &[u32], expected: &[Vec<f64>]) -> f64 {
    let mut most = 0.0_f64;
    let last = tokens.len() - 3;
    session.feed(&tokens[..last]).unwrap();
    for at in last..=tokens.len() {
        most = most.max(relative_distance(&session.logits().unwrap(), &expected[at - 1]));
        session.feed(&tokens[at..tokens.len().min(at + 1)]).unwrap();
    }
    most
}

#[test]
fn windows_sinks_and_wide_heads_agree_with_64_bit_floats() {
    // In a tile of a prompt, some queries see no position of the first tile of others. A window of more than 256
    // positions has two chunks.
    for (head_size, heads, window, count, kv) in [
        (256, 3, 20, 70, KvFormat::F16),
        (32, 2, 260, 280, KvFormat::F16),
        (256, 2, 20, 40, KvFormat::Q8_0),
        (72, 4, 70, 68, KvFormat::Q8_0),
    ] {
        let model = model(head_size, heads, window);
        let tokens: Vec<u32> = (0..count).map(|token| (token * 37 + 11) % 64).collect();
        // An error of the vectors may give a neighbouring integer.
        let (cache, limit) =
            if kv == KvFormat::F16 { (CacheFormat::Half, 1e-3) } else { (CacheFormat::Q8_0, 4e-3) };
        let expected = expected(&model, cache, &tokens);
        let options = EngineOptions::default().kv(kv);
        let engine = Engine::load_with(&device(), &model, 320, &options, |_, _| ()).unwrap();
        let mut alone = engine.session(320).unwrap();
        let error = feed(&mut alone, &tokens, &expected);
        let what = format!("{heads} heads of {head_size} columns in {kv}, window {window}");
        println!("{what}: {error:e}");
        assert!(error < limit, "{what}: {error:e}");
        // The next token, produced by a step of a batch.
        let chosen = alone.tokens(1).unwrap().next().unwrap().unwrap();
        let after = alone.logits().unwrap();
        let one_launch = SessionOptions::default().layers(Layers::Persistent);
        match engine.session_with(320, &one_launch) {
            Ok(mut session) => {
                feed(&mut session, &tokens, &expected);
                assert_eq!(session.tokens(1).unwrap().next().unwrap().unwrap(), chosen, "{what}");
                assert!(session.logits().unwrap() == after, "{what}: other bits in one launch");
            }
            Err(Error::Persistent(_)) => assert!(head_size > 128 || kv != KvFormat::F16, "{what}"),
            Err(other) => panic!("{what}: {other}"),
        }
        for (tensor_cores_from, exact) in [(usize::MAX, true), (2, false)] {
            let options = BatchOptions::default().tensor_cores_from(tensor_cores_from);
            let mut batch = engine.batch_with(2, &options).unwrap();
            alone.truncate(tokens.len()).unwrap();
            let mut other = engine.session(64).unwrap();
            other.feed(&[3, 5]).unwrap();
            batch.join(other).unwrap();
            let slot = batch.join(alone).unwrap();
            let step = batch.step().unwrap().to_vec();
            alone = batch.leave(slot).unwrap();
            assert_eq!(step[1], (slot, chosen), "{what}");
            let made = alone.logits().unwrap();
            let error = relative_distance(&made, &after.iter().copied().map(f64::from).collect::<Vec<_>>());
            assert!(if exact { made == after } else { error < limit }, "{what}: {error:e}");
        }
    }
}
