//! The order of a graph's steps, and which of them run side by side.

/// When a step begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Begin {
    /// When the step before it has ended.
    After,
    /// With the last step that joins.
    Beside,
    /// When all steps before it have ended.
    Join,
}

/// An order of steps, and when each begins. Steps of which each has no dependency but the one before it form a chain;
/// chains run side by side if they depend on equally long sequences of others.
pub(crate) fn branches(dependencies: &[Vec<usize>]) -> Vec<(usize, Begin)> {
    let mut followers = vec![0; dependencies.len()];
    dependencies.iter().flatten().for_each(|&step| followers[step] += 1);
    let mut chains: Vec<Chain> = Vec::new();
    let mut chain_of: Vec<usize> = Vec::with_capacity(dependencies.len());
    for (step, after) in dependencies.iter().enumerate() {
        let chain = match after[..] {
            [before] if followers[before] == 1 => chain_of[before],
            _ => {
                let depth = after.iter().map(|&before| chains[chain_of[before]].depth + 1).max().unwrap_or(0);
                chains.push(Chain { depth, steps: Vec::new() });
                chains.len() - 1
            }
        };
        chains[chain].steps.push(step);
        chain_of.push(chain);
    }
    chains.sort_by_key(|chain| chain.depth);
    let mut order = Vec::with_capacity(dependencies.len());
    let mut were_several = false;
    for level in chains.chunk_by(|one, other| one.depth == other.depth) {
        let several = level.len() > 1;
        for (index, Chain { steps, .. }) in level.iter().enumerate() {
            let first = match index {
                0 if several || were_several => Begin::Join,
                0 => Begin::After,
                _ => Begin::Beside,
            };
            let begins = core::iter::once(first).chain(core::iter::repeat(Begin::After));
            order.extend(steps.iter().copied().zip(begins));
        }
        were_several = several;
    }
    order
}

/// An order of steps, each after those that it depends on; `None` if there is a cycle.
pub(crate) fn sorted(dependencies: &[&[usize]]) -> Option<Vec<usize>> {
    let mut missing: Vec<_> = dependencies.iter().map(|after| after.len()).collect();
    // The followers of a step are those from its begin to that of the next one.
    let mut begins = vec![0; dependencies.len() + 1];
    dependencies.iter().copied().flatten().for_each(|&before| begins[before] += 1);
    let total = begins.iter_mut().fold(0, |sum, begin| {
        *begin += sum;
        *begin
    });
    let mut followers = vec![0; total];
    for (step, after) in dependencies.iter().enumerate().rev() {
        for &before in *after {
            begins[before] -= 1;
            followers[begins[before]] = step;
        }
    }
    let mut order: Vec<_> = (0..missing.len()).filter(|&step| missing[step] == 0).collect();
    let mut next = 0;
    while let Some(&step) = order.get(next) {
        next += 1;
        for &follower in &followers[begins[step]..begins[step + 1]] {
            missing[follower] -= 1;
            if missing[follower] == 0 {
                order.push(follower);
            }
        }
    }
    (order.len() == dependencies.len()).then_some(order)
}

/// Steps one after the other.
struct Chain {
    /// Number of chains in the longest sequence that has to end before it.
    depth: usize,
    steps: Vec<usize>,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Begin::{After, Beside, Join};
    use super::*;

    #[test]
    fn chains_without_a_common_path_run_side_by_side() {
        let of = |dependencies: &[&[usize]]| {
            branches(&dependencies.iter().map(|after| after.to_vec()).collect::<Vec<_>>())
        };
        assert_eq!(of(&[&[], &[0], &[1]]), [(0, After), (1, After), (2, After)]);
        // One step, two branches of two, and one step, in the order of their depth.
        let fork = of(&[&[], &[0], &[0], &[1], &[2], &[3, 4]]);
        assert_eq!(fork, [(0, After), (1, Join), (3, After), (2, Beside), (4, After), (5, Join)]);
        // A dependency that follows from another costs no wait for all.
        assert_eq!(of(&[&[], &[0], &[0, 1]]), [(0, After), (1, After), (2, After)]);
        assert_eq!(of(&[&[], &[], &[]]), [(0, Join), (1, Beside), (2, Beside)]);
    }

    #[test]
    fn a_cycle_has_no_order() {
        assert_eq!(sorted(&[&[2], &[], &[1]]), Some(vec![1, 2, 0]));
        assert_eq!(sorted(&[&[], &[0, 2], &[1]]), None);
        assert_eq!(sorted(&[&[0]]), None);
        assert_eq!(sorted(&[&[], &[0, 0]]), Some(vec![0, 1]), "named twice");
        assert_eq!(sorted(&[]), Some(vec![]));
    }

    /// Dependencies of some steps on earlier ones.
    fn dependencies() -> impl Strategy<Value = Vec<Vec<usize>>> {
        let edges = prop::collection::vec(prop::collection::vec(any::<prop::sample::Index>(), 0..3), 1..24);
        edges.prop_map(|edges| {
            let steps = edges.iter().enumerate().map(|(step, after)| {
                let mut after: Vec<_> = after.iter().filter(|_| step > 0).map(|at| at.index(step)).collect();
                after.sort_unstable();
                after.dedup();
                after
            });
            steps.collect()
        })
    }

    proptest! {
        #[test]
        fn an_order_has_each_step_after_those_that_it_depends_on(dependencies in dependencies()) {
            // Numbered the other way round, so that each depends on later ones.
            let last = dependencies.len() - 1;
            let turned = |after: &Vec<usize>| after.iter().map(|step| last - step).collect::<Vec<_>>();
            let turned: Vec<_> = dependencies.iter().rev().map(turned).collect();
            let order = sorted(&turned.iter().map(|after| &after[..]).collect::<Vec<_>>()).unwrap();
            let mut place = vec![None; turned.len()];
            order.iter().enumerate().for_each(|(at, &step)| place[step] = Some(at));
            prop_assert_eq!(order.len(), turned.len());
            for (step, after) in turned.iter().enumerate() {
                prop_assert!(place[step].is_some() && after.iter().all(|&before| place[before] < place[step]));
            }
        }

        #[test]
        fn a_step_begins_after_those_that_it_depends_on(dependencies in dependencies()) {
            let order = branches(&dependencies);
            // What has ended when each step begins: all before the last join, and those before it in its chain.
            let mut ended = vec![Vec::new(); dependencies.len()];
            let (mut joined, mut chain) = (Vec::new(), Vec::new());
            for (at, &(step, begin)) in order.iter().enumerate() {
                match begin {
                    After => {}
                    Beside => chain.clear(),
                    Join => (joined, chain) = (order[..at].iter().map(|&(step, _)| step).collect(), Vec::new()),
                }
                ended[step] = [&joined[..], &chain[..]].concat();
                chain.push(step);
            }
            let mut steps: Vec<_> = order.iter().map(|&(step, _)| step).collect();
            steps.sort_unstable();
            prop_assert_eq!(steps, (0..dependencies.len()).collect::<Vec<_>>());
            for (step, after) in dependencies.iter().enumerate() {
                prop_assert!(after.iter().all(|before| ended[step].contains(before)), "{step}: {order:?}");
            }
        }
    }
}
