//! `groups.cu`: operations of a warp with a member mask per group of lanes.

use crate::case::Case;
use crate::data::Element;

const FILE: &str = "groups";

/// A division of the warp: the mask of each lane, lanes that have exited before, and lanes that take another way.
struct Division {
    masks: [u32; 32],
    dead: u32,
    part: u32,
}

impl Division {
    /// Lanes with equal keys are a group.
    fn by(key: impl Fn(u32) -> u32, dead: u32, part: u32) -> Self {
        let mask =
            |lane| (0..32).filter(|other| key(*other) == key(lane)).fold(0, |mask, other| mask | 1 << other);
        Self { masks: core::array::from_fn(|lane| mask(lane as u32)), dead, part }
    }

    /// The lanes with results.
    fn lanes(&self) -> impl Iterator<Item = usize> + '_ {
        (0..32).filter(|lane| self.dead >> lane & 1 == 0)
    }

    /// The group of a lane without those that have exited, if lanes of `part` are apart or not.
    fn group(&self, lane: usize, apart: bool) -> u32 {
        let side = match (apart, self.part >> lane & 1) {
            (false, _) => u32::MAX,
            (true, 1) => self.part,
            (true, _) => !self.part,
        };
        self.masks[lane] & side & !self.dead
    }
}

/// Groups of 2, 4, 8 and 16 lanes, neighbours and not, the whole warp, groups of odd sizes, one lane against all.
fn divisions() -> Vec<Division> {
    vec![
        Division::by(|lane| lane / 2, 0, 0x3c3c_ff00),
        Division::by(|lane| lane / 4, 0, 0xf0f0_f0f0),
        Division::by(|lane| lane / 8, 0x0100_0001, 0x0000_ffff),
        Division::by(|lane| lane / 16, 0xffff_0000, 0x00ff_00ff),
        Division::by(|lane| lane % 2, 0x0000_0006, 0x5555_5555),
        Division::by(|lane| lane % 3, 0, 0x0f0f_0f0f),
        Division::by(|lane| lane * lane % 7, 0x8000_1000, 0x1111_ffff),
        Division::by(|_| 0, 0xf000_0000, 0x0000_0fff),
        Division::by(|lane| u32::from(lane == 5), 0, 0x0000_0020),
        Division::by(|lane| lane, 0, 0xaaaa_aaaa),
    ]
}

/// The same word or words of each division, one after the other.
fn all<const N: usize>(f: impl Fn(&Division) -> [u32; N]) -> Vec<u32> {
    divisions().iter().flat_map(f).collect()
}

/// Random numbers for the lanes of all divisions.
fn random(kernel: &str) -> Vec<u32> {
    let mut numbers = Case::numbers(kernel);
    (0..32 * divisions().len()).map(|_| u32::random(&mut numbers)).collect()
}

/// A case with one block per division. `lane` computes `N` words from the lane, its living group and the values of all
/// lanes.
fn case<T, const N: usize>(
    kernel: &'static str,
    apart: bool,
    values: Vec<T>,
    lane: fn(usize, u32, &[T]) -> [u32; N],
) -> Case
where
    T: Element + Copy + core::ops::BitXor<Output = T> + From<u8> + Send + Sync,
{
    let case = Case::new(FILE, kernel)
        .launch(divisions().len() as u32, 32)
        .input(&values)
        .input(&all(|division| division.masks))
        .update(&vec![0_u32; N * values.len()])
        .input(&all(|division| [division.dead]));
    let case = if apart { case.input(&all(|division| [division.part])) } else { case };
    case.gives(move || {
        let mut out = vec![0; N * values.len()];
        for (block, division) in divisions().iter().enumerate() {
            let own = &values[32 * block..][..32];
            let flipped: Vec<T> = own.iter().map(|value| *value ^ T::from(1)).collect();
            for at in division.lanes() {
                let seen = if apart && division.part >> at & 1 == 0 { &flipped } else { own };
                out[N * (32 * block + at)..][..N].copy_from_slice(&lane(at, division.group(at, apart), seen));
            }
        }
        out
    })
}

fn members(group: u32) -> impl Iterator<Item = usize> {
    (0..32).filter(move |lane| group >> lane & 1 != 0)
}

/// The members for which a condition holds.
fn which(group: u32, f: impl Fn(usize) -> bool) -> u32 {
    members(group).filter(|lane| f(*lane)).fold(0, |mask, lane| mask | 1 << lane)
}

/// Members with the key of lane `at`.
fn same(at: usize, group: u32, key: impl Fn(usize) -> u64) -> u32 {
    which(group, |lane| key(lane) == key(at))
}

fn votes(_: usize, group: u32, v: &[u32]) -> [u32; 5] {
    let odd = which(group, |lane| v[lane] & 1 != 0);
    let any = members(group).any(|lane| v[lane] & 6 == 0);
    let all = members(group).all(|lane| v[lane] & 3 != 0);
    [odd, any.into(), all.into(), u32::from(odd == 0 || odd == group), group]
}

fn matches(at: usize, group: u32, v: &[u32]) -> [u32; 4] {
    let agree = same(at, group, |lane| u64::from(v[lane] & 1)) == group;
    [
        same(at, group, |lane| u64::from(v[lane] & 3)),
        if agree { group } else { 0 },
        agree.into(),
        same(at, group, |lane| u64::from(v[lane] >> 30)),
    ]
}

fn wide_matches(at: usize, group: u32, v: &[u64]) -> [u32; 3] {
    let agree = same(at, group, |lane| v[lane] & 1 << 32) == group;
    [same(at, group, |lane| v[lane] & 0x3_0000_0001), if agree { group } else { 0 }, agree.into()]
}

fn shuffles(at: usize, group: u32, v: &[u32]) -> [u32; 4] {
    let first = group.trailing_zeros() as usize;
    let next = members(group).find(|lane| *lane > at).unwrap_or(first);
    let other = if group >> (at ^ 1) & 1 == 1 { v[at ^ 1] } else { 0 };
    let below = members(group).filter(|lane| *lane < at).count() as u32;
    [v[first], v[31 - group.leading_zeros() as usize], v[next], other.wrapping_add(below)]
}

fn reductions(_: usize, group: u32, v: &[u32]) -> [u32; 7] {
    let fold = |f: fn(u32, u32) -> u32| members(group).map(|lane| v[lane]).reduce(f).unwrap_or(0);
    [
        fold(u32::wrapping_add),
        fold(u32::min),
        fold(u32::max),
        fold(|a, b| a.cast_signed().min(b.cast_signed()).cast_unsigned()),
        fold(|a, b| a & b),
        fold(|a, b| a | b),
        fold(|a, b| a ^ b),
    ]
}

/// Each round of a group: a ballot, and the number of equal bits or a sum.
fn rounds(at: usize, group: u32, v: &[u32], turns: u32) -> u32 {
    (0..=turns).fold(0, |result: u32, i| {
        let bit = |lane: usize| v[lane] >> i & 1;
        let result = result.wrapping_mul(31).wrapping_add(which(group, |lane| bit(lane) == 1));
        if members(group).any(|lane| v[lane] >> i & 7 == 0) {
            result.wrapping_add(which(group, |lane| bit(lane) == bit(at)).count_ones())
        } else {
            result ^ members(group).fold(0, |sum: u32, lane| sum.wrapping_add(v[lane] >> i))
        }
    })
}

/// The cases.
pub(super) fn cases() -> Vec<Case> {
    let wide = |kernel| -> Vec<u64> {
        random(kernel).into_iter().map(|x| u64::from(x) << 31 | u64::from(x >> 9 & 1)).collect()
    };
    vec![
        case("group_votes", false, random("group_votes"), votes),
        case("group_votes_apart", true, random("group_votes_apart"), votes),
        case("group_matches", false, random("group_matches"), matches),
        case("group_matches_apart", true, random("group_matches_apart"), matches),
        case("group_wide_matches", false, wide("group_wide_matches"), wide_matches),
        case("group_wide_matches_apart", true, wide("group_wide_matches_apart"), wide_matches),
        case("group_shuffles", false, random("group_shuffles"), shuffles),
        case("group_shuffles_apart", true, random("group_shuffles_apart"), shuffles),
        case("group_reductions", false, random("group_reductions"), reductions),
        case("group_reductions_apart", true, random("group_reductions_apart"), reductions),
        group_rounds(),
        labelled(),
    ]
}

fn group_rounds() -> Case {
    let values = random("group_rounds");
    Case::new(FILE, "group_rounds")
        .launch(divisions().len() as u32, 32)
        .input(&values)
        .input(&all(|division| division.masks))
        .update(&vec![0_u32; values.len()])
        .input(&all(|division| [division.dead]))
        .gives(move || {
            let mut out = vec![0; values.len()];
            for (block, division) in divisions().iter().enumerate() {
                for at in division.lanes() {
                    let turns = (division.masks[at].trailing_zeros() + 1) % 4;
                    let own = &values[32 * block..][..32];
                    out[32 * block + at] = rounds(at, division.group(at, false), own, turns);
                }
            }
            out
        })
}

fn labelled() -> Case {
    let mut numbers = Case::numbers("labelled");
    let n = 150;
    let values: Vec<u32> = (0..n).map(|_| u32::random(&mut numbers)).collect();
    Case::new(FILE, "labelled").launch(2, 96).input(&values).output::<u32>(n).scalar(n as u32).gives(
        move || {
            let of = |at: usize| {
                let warp = at / 96 * 96 + at % 96 / 32 * 32;
                let lane = at - warp;
                let group: Vec<usize> = (0..32)
                    .filter(|l| values.get(warp + l).is_some_and(|x| x % 3 == values[at] % 3))
                    .collect();
                let v = |lane: &usize| values[warp + lane];
                let sum: u32 = group.iter().map(|l| v(l) & 0xff).sum();
                let rank = group.iter().filter(|l| **l < lane).count() as u32;
                let odd = group.iter().filter(|l| v(l) & 1 == 1).count() as u32;
                let all = u32::from(group.iter().all(|l| v(l) & 2 != 0));
                sum | rank << 16 | odd << 21 | (group[0] as u32) << 26 | all << 31
            };
            (0..n).map(of).collect()
        },
    )
}
