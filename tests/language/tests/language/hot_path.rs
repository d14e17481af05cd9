//! A token of a language model makes no system call and no allocation once warm.

use infer::decode::{Engine, Sampling};
use infer::model::Model;
use infer::synthetic::Recipe;
use test_support::{Bench, allocations};

#[global_allocator]
static ALLOCATOR: allocations::Counting = allocations::Counting;

#[test]
fn a_token_of_a_language_model_costs_neither() {
    let bench = Bench::spinning("basics");
    let recipe = Recipe { layers: 1, vocabulary: 300, ..Recipe::tiny_llama() };
    let model = Model::from_bytes(recipe.to_bytes().unwrap()).unwrap();
    let engine = Engine::load(&bench.device, &model, 128, |_, _| ()).unwrap();
    let mut session = engine.session(128).unwrap();
    session.set_sampling(&Sampling { temperature: 0.8, top_k: 20, ..Sampling::default() }).unwrap();
    session.feed(&[1, 2, 3]).unwrap();
    let mut tokens = session.tokens(40).unwrap();
    // Every instance of the graph has been used once.
    tokens.by_ref().take(12).for_each(|token| assert!(token.unwrap() < 300));

    let (calls, requests, allocated) = (bench.probe.calls(), bench.orin.ioctl_count(), allocations::count());
    tokens.by_ref().take(20).for_each(|token| assert!(token.unwrap() < 300));
    assert_eq!(bench.probe.calls() - calls, 0, "calls through the door");
    assert_eq!(bench.orin.ioctl_count() - requests, 0, "requests that reached the kernel");
    assert_eq!(allocations::count() - allocated, 0, "allocations");
    drop(tokens);
    assert_eq!(session.len(), 35);
}
