//! Textures, surfaces and the graphics pipeline.

use super::memory::{DATA, EVICTION, LOAD_ORDER, REDUCTION_OPERATION, STRONG_ORDER};
use crate::field::*;
use crate::instruction::{Instruction, Refusal, Sizes};
use crate::op::Op;
use crate::print::Printer;
use crate::row::Layout::Own;
use crate::row::Operand::{By, Hex, HexUnless, Named, Register, TargetIfKept};
use crate::row::Part::{Always, One, Set};
use crate::row::{A, D, Operand, Part, Row, f, named, row};

const SCORED: Part = Set(SCORES, "SCR");
/// A handle in a constant bank, or bindless.
const BOUND: Part = Set(BINDLESS, "B");
/// A handle in a register.
const UNBOUND: Part = One(BINDLESS, &["???0", "B"]);
const PRECISION: Part = One(TEXTURE_PRECISION, &["", "F16.RN", "F16.RZ"]);
const OFFSETS: Part = Set(TEXTURE_OFFSET, "AOFFI");
const NO_DEPENDENCY: Part = Set(TEXTURE_NO_DEPENDENCY, "NODEP");
const LEVELS: Part = One(TEXTURE_LEVEL, &["", "LZ", "LB", "LL", "LC", "LB.LC", "LC.FDV"]);
const FETCH_LEVELS: Part = One(TEXTURE_LEVEL, &["INVALID0", "LZ", "INVALID2", "LL"]);
const COMPONENT: Part = One(TEXTURE_COMPONENT, &["R", "G", "B", "A"]);
const NDV: Part = Set(TEXTURE_FLAGS[0], "NDV");
const PTP: Part = Set(TEXTURE_FLAGS[0], "PTP");
const CL: Part = Set(TEXTURE_FLAGS[0], "CL");
const DC: Part = Set(TEXTURE_FLAGS[1], "DC");
const MS: Part = Set(TEXTURE_FLAGS[1], "MS");
const CLAMPED: Part = Set(TEXTURE_CLAMP, "LC");

/// Both destinations, the sources, the handle, the dimensions and the components.
macro_rules! texture {
    ($kinds:expr, bound) => {
        texture!($kinds, Register(SLOT_REGISTER), Hex(BANK), Hex(HANDLE_OFFSET))
    };
    ($kinds:expr, unbound) => {
        texture!($kinds, Register(SLOT_REGISTER))
    };
    ($kinds:expr, $($handle:expr),*) => {
        &[TargetIfKept(TARGET), Register(UPPER), D, A, $($handle,)* Named(DIMENSIONS, $kinds), MASK]
    };
}

const MASK: Operand = HexUnless(COMPONENTS, 15);
const SAMPLED: &[&str] = &["1D", "2D", "3D", "CUBE", "ARRAY_1D", "ARRAY_2D", "INVALID6", "ARRAY_CUBE"];
const GATHERED: &[&str] =
    &["INVALID0", "2D", "INVALID2", "CUBE", "INVALID4", "ARRAY_2D", "INVALID6", "ARRAY_CUBE"];
const FETCHED: &[&str] = &["1D", "2D", "3D", "INVALID3", "ARRAY_1D", "ARRAY_2D"];
const DERIVED: &[&str] = &["1D", "2D", "INVALID2", "INVALID3", "ARRAY_1D", "ARRAY_2D"];
const QUERIED: &[&str] =
    &["TEX_HEADER_DIMENSION", "TEX_HEADER_TEXTURE_TYPE", "TEX_HEADER_SAMPLER_POS", "INVALID3"];
/// A second source that is absent from a fetch without level and handle.
const LEVEL: Operand = By(&[], |p| {
    if p.i.bit(BINDLESS) || p.i.register(SLOT_REGISTER) != crate::instruction::RZ {
        p.push(p.register(SLOT_REGISTER));
    }
});

const BYTES: Part = Set(SURFACE_BYTES, "BA");
const SURFACE: Part = One(DIMENSIONS, &["1D", "1D_BUFFER", "1D_ARRAY", "2D", "2D_ARRAY", "3D"]);
/// Effect of an access out of bounds.
const OUTSIDE: Part = One(SURFACE_TRAP, &["IGN", "", "TRAP"]);
const SURFACE_LOAD: &[Part] = &[Always("D"), BYTES, SURFACE, EVICTION, DATA, LOAD_ORDER, OUTSIDE];
const SURFACE_STORE: &[Part] = &[Always("D"), BYTES, SURFACE, EVICTION, DATA, STRONG_ORDER, OUTSIDE];
const SURFACE_REDUCTION: &[Part] = &[
    Always("D"),
    BYTES,
    SURFACE,
    REDUCTION_OPERATION,
    EVICTION,
    One(SIZE, &["", "S32", "U64", "F32.FTZ.RN", "F16x2.RN", "S64", "SD32", "SD64"]),
    STRONG_ORDER,
    OUTSIDE,
];
const PLACE: Operand = By(&[], |p: &mut Printer<'_>| {
    p.push(format_args!("[{}]", p.register(A_REGISTER)));
});

/// Registers that the coordinates of dimensions take, with the number of the layer.
const COORDINATES: [u8; 8] = [1, 2, 3, 3, 2, 3, 3, 4];
/// Those of surfaces.
const PLACES: [u8; 6] = [1, 1, 2, 2, 3, 3];

/// Registers of a lookup: half of the results, the sources, the other half. Sources are the coordinates, the handle if
/// it is in a register, and the level. With `SCR` the first two of three or four are in A, otherwise the coordinates.
fn lookup_sizes(i: &Instruction, _: Sizes) -> Result<Sizes, Refusal> {
    let found = i.bits(COMPONENTS).count_ones();
    // CAST: at most 2.
    let [first, second] = [found.min(2) as u8, found.saturating_sub(2) as u8];
    let coordinates = COORDINATES[i.bits(DIMENSIONS) as usize];
    let handle = u8::from(i.form == 1);
    let level = u8::from(matches!(i.op, Op::Tex | Op::Tld) && i.bits(TEXTURE_LEVEL) == 3);
    let [a, b] = match (i.op, i.bit(SCORES), coordinates + handle + level) {
        (Op::Txd, ..) => [coordinates + handle, 2 * COORDINATES[i.bits(DIMENSIONS) as usize & 3]],
        (_, false, _) => [coordinates, handle + level],
        (_, true, 1) => [1, 0],
        (_, true, 2) => [1, 1],
        (_, true, 3) => [2, 1],
        (_, true, 4) => [2, 2],
        _ => return Err(Refusal::Unmodelled(i.mnemonic())),
    };
    Ok([first, a, b, second])
}

/// Registers of a query: the handle if it is in a register, and the level.
fn query_sizes(i: &Instruction, _: Sizes) -> Result<Sizes, Refusal> {
    let found = i.bits(COMPONENTS).count_ones();
    // CAST: at most 2.
    Ok([found.min(2) as u8, 1 + u8::from(i.form == 1), 0, found.saturating_sub(2) as u8])
}

/// Registers of a surface access: data, place, data, handle.
fn surface_sizes(i: &Instruction, _: Sizes) -> Result<Sizes, Refusal> {
    let places = PLACES.get(i.bits(DIMENSIONS) as usize).ok_or(Refusal::Unmodelled(i.mnemonic()))?;
    let data = match (i.op, i.bits(SIZE)) {
        (Op::Sured, 2 | 5 | 7) | (Op::Suld | Op::Sust, 5) => 2,
        (Op::Suld | Op::Sust, 6) => 4,
        _ => 1,
    };
    let handle = u8::from(matches!(i.form, 1 | 4));
    let load = i.op == Op::Suld;
    Ok([if load { data } else { 0 }, *places, if load { 0 } else { data }, handle])
}

/// Whether places are in bytes, and the surface is not a buffer.
fn is_in_bytes(i: &Instruction) -> bool {
    i.bit(SURFACE_BYTES) && i.bits(DIMENSIONS) != 1
}

/// A lookup, with what all of them refuse.
const fn lookup(row: Row) -> Row {
    row.refuses(TEXTURE_PRECISION).refuses(TEXTURE_OFFSET).drops(TARGET).sized(lookup_sizes)
}

/// A lookup whose other flags are refused as well.
const fn plain_lookup(row: Row) -> Row {
    lookup(row).refuses(TEXTURE_FLAGS[0]).refuses(TEXTURE_FLAGS[1])
}

/// Textures and surfaces.
pub(super) const ROWS: &[Row] = &[
    plain_lookup(
        row(0x160, f(5), "TEX", Op::Tex, Own, [1, 1, 1, 1])
            .name(&[SCORED, BOUND, PRECISION, LEVELS, OFFSETS, EVICTION, NDV, DC, NO_DEPENDENCY])
            .operands(texture!(SAMPLED, bound))
            .only(|i| matches!(i.bits(TEXTURE_LEVEL), 1 | 3)),
    ),
    plain_lookup(
        row(0x161, f(1), "TEX", Op::Tex, Own, [1, 1, 1, 1])
            .name(&[SCORED, UNBOUND, PRECISION, LEVELS, OFFSETS, EVICTION, NDV, DC, NO_DEPENDENCY])
            .operands(texture!(SAMPLED, unbound))
            .only(|i| matches!(i.bits(TEXTURE_LEVEL), 1 | 3)),
    ),
    plain_lookup(
        row(0x163, f(5), "TLD4", Op::Tld4, Own, [1, 1, 1, 1])
            .name(&[SCORED, COMPONENT, BOUND, PRECISION, OFFSETS, EVICTION, PTP, DC, NO_DEPENDENCY])
            .operands(texture!(GATHERED, bound)),
    ),
    plain_lookup(
        row(0x164, f(1), "TLD4", Op::Tld4, Own, [1, 1, 1, 1])
            .name(&[SCORED, COMPONENT, UNBOUND, PRECISION, OFFSETS, EVICTION, PTP, DC, NO_DEPENDENCY])
            .operands(texture!(GATHERED, unbound)),
    ),
    plain_lookup(
        row(0x166, f(5), "TLD", Op::Tld, Own, [1, 1, 1, 1])
            .name(&[SCORED, BOUND, PRECISION, FETCH_LEVELS, OFFSETS, EVICTION, CL, MS, NO_DEPENDENCY])
            .operands(texture!(FETCHED, LEVEL, Hex(BANK), Hex(HANDLE_OFFSET))),
    ),
    plain_lookup(
        row(0x167, f(1), "TLD", Op::Tld, Own, [1, 1, 1, 1])
            .name(&[SCORED, UNBOUND, PRECISION, FETCH_LEVELS, OFFSETS, EVICTION, CL, MS, NO_DEPENDENCY])
            .operands(texture!(FETCHED, unbound)),
    ),
    lookup(
        row(0x16c, f(5), "TXD", Op::Txd, Own, [1, 1, 1, 1])
            .name(&[BOUND, PRECISION, CLAMPED, OFFSETS, EVICTION, NO_DEPENDENCY])
            .operands(texture!(DERIVED, bound)),
    )
    .refuses(TEXTURE_CLAMP),
    lookup(
        row(0x16d, f(1), "TXD", Op::Txd, Own, [1, 1, 1, 1])
            .name(&[UNBOUND, PRECISION, CLAMPED, OFFSETS, EVICTION, NO_DEPENDENCY])
            .operands(texture!(DERIVED, unbound)),
    )
    .refuses(TEXTURE_CLAMP),
    row(0x16f, f(5), "TXQ", Op::Txq, Own, [1, 1, 1, 1])
        .name(&[BOUND, NO_DEPENDENCY])
        .operands(&[Register(UPPER), D, A, Named(QUERY, QUERIED), Hex(BANK), Hex(HANDLE_OFFSET), MASK])
        .refuses(QUERY)
        .sized(query_sizes),
    row(0x170, f(1), "TXQ", Op::Txq, Own, [1, 1, 1, 1])
        .name(&[UNBOUND, NO_DEPENDENCY])
        .operands(&[Register(UPPER), D, A, Named(QUERY, QUERIED), MASK])
        .refuses(QUERY)
        .sized(query_sizes),
    row(0x199, f(5), "SULD", Op::Suld, Own, [1, 1, 1, 1])
        .name(SURFACE_LOAD)
        .operands(&[TargetIfKept(TARGET), D, PLACE, Hex(BANK), Hex(HANDLE_OFFSET)])
        .drops(TARGET)
        .only(is_in_bytes)
        .sized(surface_sizes),
    row(0x19a, f(4), "SULD", Op::Suld, Own, [1, 1, 1, 1])
        .name(SURFACE_LOAD)
        .operands(&[TargetIfKept(TARGET), D, PLACE, Register(UPPER)])
        .drops(TARGET)
        .only(is_in_bytes)
        .sized(surface_sizes),
    row(0x19d, f(5), "SUST", Op::Sust, Own, [1, 1, 1, 1])
        .name(SURFACE_STORE)
        .operands(&[PLACE, Register(SLOT_REGISTER), Hex(BANK), Hex(HANDLE_OFFSET)])
        .only(is_in_bytes)
        .sized(surface_sizes),
    row(0x19e, f(4), "SUST", Op::Sust, Own, [1, 1, 1, 1])
        .name(SURFACE_STORE)
        .operands(&[PLACE, Register(SLOT_REGISTER), Register(UPPER)])
        .only(is_in_bytes)
        .sized(surface_sizes),
    row(0x19f, f(2), "SURED", Op::Sured, Own, [1, 1, 1, 1])
        .name(SURFACE_REDUCTION)
        .operands(&[PLACE, Register(SLOT_REGISTER), Hex(BANK), Hex(HANDLE_OFFSET)])
        .only(is_in_bytes)
        .sized(surface_sizes),
    row(0x1a0, f(1), "SURED", Op::Sured, Own, [1, 1, 1, 1])
        .name(SURFACE_REDUCTION)
        .operands(&[PLACE, Register(SLOT_REGISTER), Register(UPPER)])
        .only(is_in_bytes)
        .sized(surface_sizes),
    // Known by name only.
    named(0x160, f(7), "TEX"),
    named(0x162, f(5), "TEX"),
    named(0x163, f(7), "TLD4"),
    named(0x165, f(5), "TLD4"),
    named(0x166, f(7), "TLD"),
    named(0x168, f(5), "TLD"),
    named(0x169, f(5) | f(7), "TMML"),
    named(0x16a, f(1), "TMML"),
    named(0x16b, f(5), "TMML"),
    named(0x16c, f(7), "TXD"),
    named(0x16e, f(5), "TXD"),
    named(0x16f, f(7), "TXQ"),
    named(0x171, f(5), "TXQ"),
    named(0x172, f(5), "FOOTPRINT"),
    named(0x173, f(1), "FOOTPRINT"),
    named(0x174, f(5), "FOOTPRINT"),
    named(0x193, f(2) | f(3), "SUATOM"),
    named(0x194, f(1), "SUATOM"),
    named(0x195, f(2) | f(3), "SUATOM"),
    named(0x196, f(1), "SUATOM"),
    named(0x197, f(3) | f(5), "SULD"),
    named(0x198, f(4), "SULD"),
    named(0x199, f(3) | f(7), "SULD"),
    named(0x19b, f(3) | f(5), "SUST"),
    named(0x19c, f(4), "SUST"),
    named(0x19d, f(3) | f(7), "SUST"),
    named(0x19f, f(3) | f(7), "SURED"),
    named(0x1b3, f(3) | f(4) | f(5), "SUQUERY"),
];

/// The graphics pipeline, and what else is known by name only.
pub(super) const OTHERS: &[Row] = &[
    named(0x0ba, f(1) | f(2) | f(4), "UF2FP"),
    named(0x120, f(4), "AL2P"),
    named(0x121, f(2), "ALD"),
    named(0x122, f(2), "AST"),
    named(0x123, f(4), "ISBERD"),
    named(0x124, f(1) | f(4), "OUT"),
    named(0x125, f(4), "PIXLD"),
    named(0x126, f(1) | f(2) | f(4) | f(5), "IPA"),
    named(0x127, f(4), "ISBEWR"),
];
