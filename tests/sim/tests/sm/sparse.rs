//! Sparse matrix products from the program to the result.

use crate::support::{Machine, Params, Random};

/// The two present elements of each group of four in a row.
const KEPT: [[usize; 2]; 6] = [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]];

/// A has 16 rows and 32 columns with two present elements of each four; B has 32 rows and 8 columns.
struct Matrices {
    a: Vec<[i32; 32]>,
    kept: Vec<[[usize; 2]; 8]>,
    b: Vec<[i32; 8]>,
}

impl Matrices {
    fn new(random: &mut Random) -> Self {
        let mut number = move || (random.u32() % 15) as i32;
        let kept: Vec<[[usize; 2]; 8]> =
            (0..16).map(|_| core::array::from_fn(|_| KEPT[number() as usize % 6])).collect();
        let mut a = vec![[0; 32]; 16];
        for (row, kept) in a.iter_mut().zip(&kept) {
            for (chunk, kept) in kept.iter().enumerate() {
                kept.iter().for_each(|index| row[4 * chunk + index] = number() - 7);
            }
        }
        let b = (0..32).map(|_| core::array::from_fn(|_| number())).collect();
        Self { a, kept, b }
    }

    fn product(&self, row: usize, column: usize) -> i32 {
        (0..32).map(|k| self.a[row][k] * self.b[k][column]).sum()
    }

    /// The present element number `at` of a row.
    fn held(&self, row: usize, at: usize) -> i32 {
        self.a[row][4 * (at / 2) + self.kept[row][at / 2][at % 2]]
    }

    /// Four index bits per four elements of a row.
    fn indices(&self, row: usize) -> impl Iterator<Item = u32> + '_ {
        self.kept[row].iter().map(|[first, second]| (first | second << 2) as u32)
    }
}

fn pack(bits: u32, elements: impl Iterator<Item = u32>) -> u32 {
    elements.zip((0..32).step_by(bits as usize)).fold(0, |word, (element, at)| word | element << at)
}

/// Row and column of the `index`th result of a lane.
fn place(lane: usize, index: usize) -> (usize, usize) {
    (lane / 4 + 8 * (index / 2), 2 * (lane % 4) + index % 2)
}

#[test]
fn halves() {
    let mut random = Random::new(31);
    let matrices = Matrices::new(&mut random);
    let f16 = |value: i32| u32::from(half::f16::from_f32(value as f32).to_bits());
    let (mut a, mut b, mut c, mut e) = (vec![0; 128], vec![0; 128], vec![0f32; 128], vec![random.u32(); 32]);
    for lane in 0..32 {
        let (group, t) = (lane / 4, lane % 4);
        for register in 0..4 {
            let (row, first) = (group + 8 * (register % 2), 2 * t + 8 * (register / 2));
            a[4 * lane + register] = pack(16, (0..2).map(|step| f16(matrices.held(row, first + step))));
            let first = 2 * t + 8 * register;
            b[4 * lane + register] = pack(16, (0..2).map(|step| f16(matrices.b[first + step][group])));
            c[4 * lane + register] = (lane + register) as f32;
        }
        // Lanes 2 and 3 of each four, as selected by selector 1, have half of k each, for both rows.
        if t >= 2 {
            let half = |row: usize| pack(4, matrices.indices(row).skip(4 * (t - 2)).take(4));
            e[lane] = half(group) | half(group + 8) << 16;
        }
    }
    let mut machine = Machine::sass("sparse");
    let (da, db, dc) = (machine.u32s(&a), machine.u32s(&b), machine.f32s(&c));
    let (de, d) = (machine.u32s(&e), machine.zeros(512));
    let params = Params::new().buffer(&da).buffer(&db).buffer(&dc).buffer(&de).buffer(&d);
    machine.run("f16_k32", [1, 1, 1], [32, 1, 1], &params);
    for (at, value) in d.f32s().into_iter().enumerate() {
        let (row, column) = place(at / 4, at % 4);
        assert_eq!(value, matrices.product(row, column) as f32 + c[at], "row {row}, column {column}");
    }
}

#[test]
fn bytes() {
    let mut random = Random::new(32);
    let matrices = Matrices::new(&mut random);
    let (mut a, mut b, mut c, mut e) = (vec![0; 128], vec![0; 128], vec![0; 128], vec![random.u32(); 32]);
    for lane in 0..32 {
        let (group, t) = (lane / 4, lane % 4);
        for register in 0..2 {
            let row = group + 8 * register;
            let byte = |value: i32| value as u32 & 0xff;
            a[4 * lane + register] = pack(8, (0..4).map(|step| byte(matrices.held(row, 4 * t + step))));
            let first = 4 * t + 16 * register;
            b[4 * lane + register] = pack(8, (0..4).map(|step| byte(matrices.b[first + step][group])));
        }
        (0..4).for_each(|index| c[4 * lane + index] = random.u32());
        // Lanes 0 and 1 of each four, as selected by selector 0, have one row each.
        if t < 2 {
            e[lane] = pack(4, matrices.indices(group + 8 * t));
        }
    }
    let mut machine = Machine::sass("sparse");
    let (da, db, dc) = (machine.u32s(&a), machine.u32s(&b), machine.u32s(&c));
    let (de, d) = (machine.u32s(&e), machine.zeros(512));
    let params = Params::new().buffer(&da).buffer(&db).buffer(&dc).buffer(&de).buffer(&d);
    machine.run("s8_k32", [1, 1, 1], [32, 1, 1], &params);
    for (at, value) in d.u32s().into_iter().enumerate() {
        let (row, column) = place(at / 4, at % 4);
        assert_eq!(value, c[at].wrapping_add(matrices.product(row, column) as u32));
    }
}
