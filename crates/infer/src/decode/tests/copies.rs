//! Contexts that sessions take over from each other.

use super::{device, small};
use crate::blocks::BlockType;
use crate::decode::{Engine, EngineOptions, Sampling, Session};
use crate::error::Error;
use crate::model::{KvFormat, Model};
use crate::synthetic::Recipe;

#[test]
fn a_copied_context_continues_with_the_same_bits() {
    for (recipe, kv) in [
        (small(Recipe::tiny_llama(), BlockType::F16), KvFormat::F16),
        (small(Recipe::tiny_qwen2(), BlockType::Q8_0), KvFormat::Q8_0),
        (small(Recipe::tiny_lfm2(), BlockType::F32), KvFormat::F16),
    ] {
        let what = format!("{} in {kv}", recipe.architecture);
        let model = Model::from_bytes(recipe.to_bytes().unwrap()).unwrap();
        let options = EngineOptions::default().kv(kv);
        let engine = Engine::load_with(&device(), &model, 64, &options, |_, _| ()).unwrap();
        let prompt: Vec<u32> = (0..20).map(|token| token * 7 % 64).collect();
        let mut first = engine.session(64).unwrap();
        first.feed(&prompt).unwrap();
        let mut second = engine.session(64).unwrap();
        second.feed(&[5]).unwrap();
        second.copy_context(&mut first).unwrap();
        assert_eq!(second.context_tokens(), prompt, "{what}");
        let drawn = Sampling { temperature: 1.0, seed: 3, ..Sampling::default() };
        let continued = |session: &mut Session| {
            session.set_sampling(&drawn).unwrap();
            let tokens: Vec<u32> = session.tokens(2).unwrap().map(Result::unwrap).collect();
            (tokens, session.logits().unwrap())
        };
        // The first goes on before the second: they share nothing.
        let expected = continued(&mut first);
        assert!(continued(&mut second) == expected, "{what}");
        if kv == KvFormat::F16 {
            continue;
        }
        // A context that has ended elsewhere, and an empty one.
        first.truncate(10).unwrap();
        second.copy_context(&mut first).unwrap();
        assert!(second.logits().unwrap() == first.logits().unwrap(), "{what}");
        first.clear().unwrap();
        second.copy_context(&mut first).unwrap();
        assert!(second.is_empty(), "{what}");
        let mut short = engine.session(63).unwrap();
        assert!(matches!(short.copy_context(&mut first), Err(Error::Length { len: 64, needed: 63, .. })));
        let other = Engine::load_with(&device(), &model, 64, &options, |_, _| ()).unwrap();
        let mut foreign = other.session(64).unwrap();
        assert!(matches!(foreign.copy_context(&mut first), Err(Error::OtherEngine)));
    }
}
