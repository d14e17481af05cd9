//! Textures, surfaces and the graphics pipeline. Nothing here is executed.

use super::memory::{DATA, EVICTION, LOAD_ORDER, REDUCTION_OPERATION, STRONG_ORDER};
use crate::field::*;
use crate::print::Printer;
use crate::row::Layout::Own;
use crate::row::Operand::{By, Hex, HexUnless, Named, Register, TargetIfKept};
use crate::row::Part::{Always, One, Set};
use crate::row::{A, D, Operand, Part, Row, f, named, printed};

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

/// Textures and surfaces.
pub(super) const ROWS: &[Row] = &[
    printed(0x160, f(5), "TEX", Own)
        .name(&[SCORED, BOUND, PRECISION, LEVELS, OFFSETS, EVICTION, NDV, DC, NO_DEPENDENCY])
        .operands(texture!(SAMPLED, bound)),
    printed(0x161, f(1), "TEX", Own)
        .name(&[SCORED, UNBOUND, PRECISION, LEVELS, OFFSETS, EVICTION, NDV, DC, NO_DEPENDENCY])
        .operands(texture!(SAMPLED, unbound)),
    printed(0x163, f(5), "TLD4", Own)
        .name(&[SCORED, COMPONENT, BOUND, PRECISION, OFFSETS, EVICTION, PTP, DC, NO_DEPENDENCY])
        .operands(texture!(GATHERED, bound)),
    printed(0x164, f(1), "TLD4", Own)
        .name(&[SCORED, COMPONENT, UNBOUND, PRECISION, OFFSETS, EVICTION, PTP, DC, NO_DEPENDENCY])
        .operands(texture!(GATHERED, unbound)),
    printed(0x166, f(5), "TLD", Own)
        .name(&[SCORED, BOUND, PRECISION, FETCH_LEVELS, OFFSETS, EVICTION, CL, MS, NO_DEPENDENCY])
        .operands(texture!(FETCHED, LEVEL, Hex(BANK), Hex(HANDLE_OFFSET))),
    printed(0x167, f(1), "TLD", Own)
        .name(&[SCORED, UNBOUND, PRECISION, FETCH_LEVELS, OFFSETS, EVICTION, CL, MS, NO_DEPENDENCY])
        .operands(texture!(FETCHED, unbound)),
    printed(0x16c, f(5), "TXD", Own)
        .name(&[BOUND, PRECISION, CLAMPED, OFFSETS, EVICTION, NO_DEPENDENCY])
        .operands(texture!(DERIVED, bound)),
    printed(0x16d, f(1), "TXD", Own)
        .name(&[UNBOUND, PRECISION, CLAMPED, OFFSETS, EVICTION, NO_DEPENDENCY])
        .operands(texture!(DERIVED, unbound)),
    printed(0x16f, f(5), "TXQ", Own).name(&[BOUND, NO_DEPENDENCY]).operands(&[
        Register(UPPER),
        D,
        A,
        Named(QUERY, QUERIED),
        Hex(BANK),
        Hex(HANDLE_OFFSET),
        MASK,
    ]),
    printed(0x170, f(1), "TXQ", Own).name(&[UNBOUND, NO_DEPENDENCY]).operands(&[
        Register(UPPER),
        D,
        A,
        Named(QUERY, QUERIED),
        MASK,
    ]),
    printed(0x199, f(5), "SULD", Own).name(SURFACE_LOAD).operands(&[
        TargetIfKept(TARGET),
        D,
        PLACE,
        Hex(BANK),
        Hex(HANDLE_OFFSET),
    ]),
    printed(0x19a, f(4), "SULD", Own).name(SURFACE_LOAD).operands(&[
        TargetIfKept(TARGET),
        D,
        PLACE,
        Register(UPPER),
    ]),
    printed(0x19d, f(5), "SUST", Own).name(SURFACE_STORE).operands(&[
        PLACE,
        Register(SLOT_REGISTER),
        Hex(BANK),
        Hex(HANDLE_OFFSET),
    ]),
    printed(0x19e, f(4), "SUST", Own).name(SURFACE_STORE).operands(&[
        PLACE,
        Register(SLOT_REGISTER),
        Register(UPPER),
    ]),
    printed(0x19f, f(2), "SURED", Own).name(SURFACE_REDUCTION).operands(&[
        PLACE,
        Register(SLOT_REGISTER),
        Hex(BANK),
        Hex(HANDLE_OFFSET),
    ]),
    printed(0x1a0, f(1), "SURED", Own).name(SURFACE_REDUCTION).operands(&[
        PLACE,
        Register(SLOT_REGISTER),
        Register(UPPER),
    ]),
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
