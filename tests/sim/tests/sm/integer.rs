//! Integer arithmetic of compiled kernels, bit for bit.

use crate::support::{Machine, Params, Random};

/// All pairs of edge values, and random ones.
fn operands() -> (Vec<u32>, Vec<u32>) {
    const EDGES: [u32; 14] = [
        0,
        1,
        2,
        3,
        7,
        31,
        32,
        0x7fff_ffff,
        0x8000_0000,
        0x8000_0001,
        0xffff_ffff,
        0xffff_fffe,
        0x0001_0000,
        0x1234_5678,
    ];
    let mut random = Random::new(11);
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for x in EDGES {
        for y in EDGES {
            a.push(x);
            b.push(y);
        }
    }
    for _ in 0..800 {
        // Random widths, so that quotients have all sizes.
        let (left, right) = (random.u32() % 32, random.u32() % 32);
        a.push(random.u32() >> left);
        b.push(random.u32() >> right);
    }
    (a, b)
}

fn check_binary(name: &str, keep: impl Fn(u32, u32) -> bool, expected: impl Fn(u32, u32) -> u32) {
    let (a, b) = operands();
    let (a, b): (Vec<u32>, Vec<u32>) = a.into_iter().zip(b).filter(|&(x, y)| keep(x, y)).unzip();
    let n = a.len();
    let mut machine = Machine::kernels("int_ops");
    let (da, db, out) = (machine.u32s(&a), machine.u32s(&b), machine.zeros(4 * n));
    machine.run_1d(name, n, 128, &Params::new().buffer(&da).buffer(&db).buffer(&out).u32(n as u32));
    for (at, actual) in out.u32s().into_iter().enumerate() {
        let expected = expected(a[at], b[at]);
        assert_eq!(actual, expected, "{name}({:#x}, {:#x}) = {actual:#x}, not {expected:#x}", a[at], b[at]);
    }
}

fn check_unary(name: &str, expected: impl Fn(u32) -> u32) {
    let (a, _) = operands();
    let n = a.len();
    let mut machine = Machine::kernels("int_ops");
    let (da, out) = (machine.u32s(&a), machine.zeros(4 * n));
    machine.run_1d(name, n, 96, &Params::new().buffer(&da).buffer(&out).u32(n as u32));
    for (at, actual) in out.u32s().into_iter().enumerate() {
        assert_eq!(actual, expected(a[at]), "{name}({:#x})", a[at]);
    }
}

fn signed(f: impl Fn(i32, i32) -> i32) -> impl Fn(u32, u32) -> u32 {
    move |a, b| f(a as i32, b as i32) as u32
}

#[test]
fn two_operands() {
    let all = |_, _| true;
    check_binary("i32_add", all, u32::wrapping_add);
    check_binary("i32_sub", all, u32::wrapping_sub);
    check_binary("i32_mul", all, u32::wrapping_mul);
    check_binary("i32_mul_hi", all, signed(|a, b| ((i64::from(a) * i64::from(b)) >> 32) as i32));
    check_binary("u32_mul_hi", all, |a, b| ((u64::from(a) * u64::from(b)) >> 32) as u32);
    check_binary("i32_min", all, signed(i32::min));
    check_binary("i32_max", all, signed(i32::max));
    check_binary("u32_min", all, u32::min);
    check_binary("u32_max", all, u32::max);
    check_binary("u32_and", all, |a, b| a & b);
    check_binary("u32_or", all, |a, b| a | b);
    check_binary("u32_xor", all, |a, b| a ^ b);
    check_binary("u32_and_not", all, |a, b| a & !b);
    check_binary("u32_shl", all, |a, b| a << (b & 31));
    check_binary("u32_shr", all, |a, b| a >> (b & 31));
    check_binary("i32_shr", all, |a, b| (a as i32 >> (b & 31)) as u32);
    check_binary("u32_rotate_left", all, |a, b| a.rotate_left(b & 31));
    check_binary("u32_average", all, |a, b| ((u64::from(a) + u64::from(b)) >> 1) as u32);
    check_binary("i32_compare", all, signed(|a, b| a.cmp(&b) as i32));
    check_binary("u32_byte_permute", all, |a, b| {
        let bytes = (u64::from(b) << 32 | u64::from(a)).to_le_bytes();
        u32::from_le_bytes(core::array::from_fn(|at| bytes[((a ^ b) >> (4 * at) & 7) as usize]))
    });
}

#[test]
fn division() {
    let divisible = |_, y| y != 0;
    check_binary("u32_div", divisible, |a, b| a / b);
    check_binary("u32_mod", divisible, |a, b| a % b);
    check_binary("i32_div", divisible, signed(i32::wrapping_div));
    check_binary("i32_mod", divisible, signed(i32::wrapping_rem));
}

#[test]
fn one_operand() {
    check_unary("i32_abs", |a| (a as i32).wrapping_abs() as u32);
    check_unary("i32_negate", u32::wrapping_neg);
    check_unary("u32_not", |a| !a);
    check_unary("u32_popcount", u32::count_ones);
    check_unary("u32_leading_zeros", u32::leading_zeros);
    check_unary("u32_find_first_set", |a| if a == 0 { 0 } else { a.trailing_zeros() + 1 });
    check_unary("u32_reverse_bits", u32::reverse_bits);
    check_unary("u32_div_by_seven", |a| a / 7);
    check_unary("i32_mod_by_ten", |a| (a as i32 % 10) as u32);
    check_unary("u32_bit_field", |a| a >> 5 & 0x7ff);
}

#[test]
fn three_operands_and_widths() {
    let (a, b) = operands();
    let c: Vec<u32> = b.iter().map(|b| b.rotate_left(9)).collect();
    let n = a.len();
    let mut machine = Machine::kernels("int_ops");
    let (da, db, dc, out) = (machine.u32s(&a), machine.u32s(&b), machine.u32s(&c), machine.zeros(4 * n));
    let params = Params::new().buffer(&da).buffer(&db).buffer(&dc).buffer(&out).u32(n as u32);
    machine.run_1d("i32_mad", n, 64, &params);
    let expected: Vec<u32> = (0..n).map(|i| a[i].wrapping_mul(b[i]).wrapping_add(c[i])).collect();
    assert_eq!(out.u32s(), expected);

    machine.run_1d("i32_dot4", n, 64, &params);
    let dot = |a: u32, b: u32| -> i32 {
        let bytes = |x: u32| x.to_le_bytes().map(|byte| i32::from(byte as i8));
        bytes(a).iter().zip(bytes(b)).map(|(x, y)| x * y).sum()
    };
    let expected: Vec<u32> = (0..n).map(|i| (dot(a[i], b[i]) as u32).wrapping_add(c[i])).collect();
    assert_eq!(out.u32s(), expected);

    let bytes = |row: &[u32]| row.iter().map(|word| *word as u8).collect::<Vec<_>>();
    let halves = |row: &[u32]| row.iter().flat_map(|word| (*word as u16).to_le_bytes()).collect::<Vec<_>>();
    let (ba, bb, hc, hd) = (
        machine.bytes(&bytes(&a)),
        machine.bytes(&bytes(&b)),
        machine.bytes(&halves(&a)),
        machine.bytes(&halves(&c)),
    );
    let params = Params::new().buffer(&ba).buffer(&bb).buffer(&hc).buffer(&hd).buffer(&out).u32(n as u32);
    machine.run_1d("widen_add", n, 64, &params);
    let expected: Vec<u32> = (0..n)
        .map(|i| {
            (i32::from(a[i] as i8) + i32::from(b[i] as u8) + i32::from(a[i] as i16) + i32::from(c[i] as u16))
                as u32
        })
        .collect();
    assert_eq!(out.u32s(), expected);

    let (narrow, half) = (machine.zeros(n), machine.zeros(2 * n));
    machine.run_1d("narrow", n, 64, &Params::new().buffer(&da).buffer(&narrow).buffer(&half).u32(n as u32));
    assert_eq!(narrow.bytes(), bytes(&a));
    assert_eq!(half.bytes(), halves(&a));
}

#[test]
fn sixty_four_bits() {
    const EDGES: [u64; 10] =
        [0, 1, 3, 63, 0xffff_ffff, 1 << 32, 1 << 63, u64::MAX, i64::MAX as u64, 0x1234_5678_9abc_def0];
    let mut random = Random::new(12);
    let mut pairs: Vec<(u64, u64)> = EDGES.iter().flat_map(|&a| EDGES.map(|b| (a, b))).collect();
    pairs.extend((0..600).map(|_| {
        let (left, right) = (random.u32() % 64, random.u32() % 64);
        (random.u64() >> left, random.u64() >> right)
    }));
    let check = |name: &str, expected: &dyn Fn(u64, u64) -> u64| {
        let divides = name.ends_with("div") || name.ends_with("mod");
        let (a, b): (Vec<u64>, Vec<u64>) = pairs.iter().copied().filter(|&(_, b)| !divides || b != 0).unzip();
        let n = a.len();
        let mut machine = Machine::kernels("int64");
        let (da, db, out) = (machine.u64s(&a), machine.u64s(&b), machine.zeros(8 * n));
        machine.run_1d(name, n, 128, &Params::new().buffer(&da).buffer(&db).buffer(&out).u32(n as u32));
        for (at, actual) in out.u64s().into_iter().enumerate() {
            let expected = expected(a[at], b[at]);
            assert_eq!(
                actual, expected,
                "{name}({:#x}, {:#x}) = {actual:#x}, not {expected:#x}",
                a[at], b[at]
            );
        }
    };
    check("i64_add", &u64::wrapping_add);
    check("i64_sub", &u64::wrapping_sub);
    check("i64_mul", &u64::wrapping_mul);
    check("i64_mul_hi", &|a, b| ((i128::from(a as i64) * i128::from(b as i64)) >> 64) as u64);
    check("i64_div", &|a, b| (a as i64).wrapping_div(b as i64) as u64);
    check("i64_mod", &|a, b| (a as i64).wrapping_rem(b as i64) as u64);
    check("u64_div", &|a, b| a / b);
    check("u64_mod", &|a, b| a % b);
    check("i64_min", &|a, b| (a as i64).min(b as i64) as u64);
    check("u64_max", &u64::max);
    check("u64_shl", &|a, b| a << (b & 63));
    check("i64_shr", &|a, b| (a as i64 >> (b & 63)) as u64);
    check("u64_bits", &|a, b| (a & b) ^ (a | !b));
    check("i64_compare", &|a, b| (a as i64).cmp(&(b as i64)) as i64 as u64);

    let a: Vec<u64> = pairs.iter().map(|&(a, _)| a).collect();
    let mut machine = Machine::kernels("int64");
    let (da, out) = (machine.u64s(&a), machine.zeros(4 * a.len()));
    machine.run_1d("u64_count", a.len(), 32, &Params::new().buffer(&da).buffer(&out).u32(a.len() as u32));
    assert_eq!(out.u32s(), a.iter().map(|a| a.count_ones() + a.leading_zeros()).collect::<Vec<_>>());
}
