//! Circles of a directed graph.

use std::collections::BTreeSet;

/// For each node, the nodes that it points to.
pub(crate) type Graph = Vec<BTreeSet<usize>>;

/// The largest strongly connected component in ascending order; the first of several. A single node if there
/// is no circle; empty if the graph is empty.
pub(crate) fn largest(graph: &Graph) -> Vec<usize> {
    let reached: Vec<Vec<bool>> = (0..graph.len()).map(|node| reached_from(graph, node)).collect();
    let mut best = Vec::new();
    for (node, reached_here) in reached.iter().enumerate() {
        let circle: Vec<usize> =
            (0..graph.len()).filter(|&other| reached_here[other] && reached[other][node]).collect();
        if circle.len() > best.len() {
            best = circle;
        }
    }
    best
}

/// The nodes reachable from a node, including itself.
fn reached_from(graph: &Graph, start: usize) -> Vec<bool> {
    let mut reached = vec![false; graph.len()];
    let mut pending = vec![start];
    while let Some(node) = pending.pop() {
        if !std::mem::replace(&mut reached[node], true) {
            pending.extend(&graph[node]);
        }
    }
    reached
}
