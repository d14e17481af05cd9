//! Loads, stores, atomics and cache control.

use crate::field::*;
use crate::instruction::{Instruction, RZ, Refusal, Sizes};
use crate::op::Op;
use crate::print::{Printer, number};
use crate::row::Layout::{Own, Unary};
use crate::row::Operand::{Address, By, Condition, ConditionIfUsed, Register, Target, TargetIfKept};
use crate::row::Part::{Always, Clear, Computed, Join, One, Required, Set};
use crate::row::{Addressing, D, Global, Part, Row, f, named, printed, row};

pub(super) const EVICTION: Part = One(EVICT, &["EF", "", "EL", "LU", "EU", "NA"]);
pub(super) const DATA: Part = One(SIZE, &["U8", "S8", "U16", "S16", "", "64", "128"]);
/// Sizes of constants.
const CONSTANT_MODE: Part = One(LDC_MODE, &["", "IL", "IS", "ISL"]);
const CONSTANT_DATA: Part = One(SIZE, &["U8", "S8", "U16", "S16", "", "64"]);
const PREFETCHES: [&str; 4] = ["", "LTC64B", "LTC128B", "LTC256B"];
const LOAD_ORDERS: [&str; 16] = [
    "",
    "CONSTANT.PRIVATE",
    "CONSTANT.CTA",
    "CONSTANT.CTA.PRIVATE",
    "CONSTANT",
    "STRONG.SM",
    "STRONG.GPU.PRIVATE",
    "STRONG.GPU",
    "MMIO.GPU",
    "CONSTANT.SM",
    "STRONG.SYS",
    "CONSTANT.SM.PRIVATE",
    "MMIO.SYS",
    "CONSTANT.VC",
    "CONSTANT.VC.PRIVATE",
    "CONSTANT.GPU",
];
pub(super) const LOAD_ORDER: Part = One(ORDER, &LOAD_ORDERS);
/// Memory order of accesses without a weak read-only variant.
pub(super) const STRONG_ORDER: Part = One(ORDER, &{
    let mut orders = LOAD_ORDERS;
    orders[4] = "STRONG.SM.PRIVATE";
    orders
});
const COPY_ORDERS: [&str; 16] = [
    "",
    "CONSTANT.PRIVATE",
    "CONSTANT.CTA",
    "CONSTANT.CTA.PRIVATE",
    "CONSTANT",
    "MMIO.CTA",
    "GPU.PRIVATE",
    "MMIO.CTA.PRIVATE",
    "MMIO.SM",
    "CONSTANT.SM",
    "MMIO.VC",
    "CONSTANT.SM.PRIVATE",
    "MMIO.GPU",
    "CONSTANT.VC",
    "CONSTANT.VC.PRIVATE",
    "CONSTANT.GPU",
];
/// A 64-bit address; a 64-bit register without it is a contradiction.
const E: Part = Computed(&[EXTENDED_ADDRESS], |i| extended(i, i.bit(WIDE)));
/// [`E`] of an atomic with a result.
const ATOMIC_E: Part = Computed(&[EXTENDED_ADDRESS], |i| extended(i, true));
const OPERATIONS: [&str; 10] = ["ADD", "MIN", "MAX", "INC", "DEC", "AND", "OR", "XOR", "EXCH", "SAFEADD"];
const OPERATION: Part = One(ATOMIC, &OPERATIONS);
const SHARED_OPERATION: Part = {
    let (shared, _) = OPERATIONS.split_at(9);
    One(ATOMIC, shared)
};
/// Operations without a result, of memory and of surfaces.
pub(super) const REDUCTION_OPERATION: Part = {
    let (reductions, _) = OPERATIONS.split_at(8);
    One(REDUCTION, reductions)
};
const TYPE: Part = One(ATOMIC_TYPE, &["", "S32", "64", "F32.FTZ.RN", "F16x2.RN", "S64", "F64.RN"]);
const SWAP_TYPE: Part = One(ATOMIC_TYPE, &["", "S32", "64"]);
const SHARED_TYPES: Part = One(SHARED_TYPE, &["", "S32", "64", "INVALID3"]);
const SWAP: Part = Join(&[CAST, CAST_SPIN], &["CAS", "CAST", "CAS", "CAST.SPIN"]);

/// Register and offset.
const PLAIN: Addressing = Addressing { offset: OFFSET, uniform: None, stride: None, global: None };
const LOAD: Addressing = Addressing {
    uniform: Some(SLOT_UNIFORM),
    global: Some(Global { wide: Some(WIDE), descriptor: DESCRIPTOR, keeps_uniform: false }),
    ..PLAIN
};
const STORE: Addressing = Addressing { uniform: Some(UPPER_UNIFORM), ..LOAD };
/// A store to a 32-bit generic address, which has its data elsewhere.
const SHORT_STORE: Addressing = Addressing { offset: LONG_OFFSET, ..PLAIN };
const COPY: Addressing = Addressing {
    offset: COPY_FROM,
    uniform: Some(UPPER_UNIFORM),
    global: Some(Global { wide: None, descriptor: DESCRIPTOR, keeps_uniform: false }),
    ..PLAIN
};
const ATOMIC_ADDRESS: Addressing = Addressing {
    uniform: Some(UPPER_UNIFORM),
    global: Some(Global { wide: Some(ATOMIC_WIDE), descriptor: ATOMIC_DESCRIPTOR, keeps_uniform: false }),
    ..PLAIN
};
const REDUCTION_ADDRESS: Addressing = Addressing {
    global: Some(Global { wide: Some(WIDE), descriptor: ATOMIC_DESCRIPTOR, keeps_uniform: false }),
    ..ATOMIC_ADDRESS
};
const QUERY_ADDRESS: Addressing = Addressing {
    uniform: Some(SLOT_UNIFORM),
    global: Some(Global { wide: Some(WIDE), descriptor: ATOMIC_DESCRIPTOR, keeps_uniform: true }),
    ..PLAIN
};
const LOCAL_LOAD: Addressing = Addressing { uniform: Some(SLOT_UNIFORM), ..PLAIN };
const LOCAL_STORE: Addressing = Addressing { uniform: Some(UPPER_UNIFORM), ..PLAIN };
const SHARED_LOAD: Addressing = Addressing { stride: Some(STRIDE), ..LOCAL_LOAD };
const SHARED_STORE: Addressing = Addressing { stride: Some(STRIDE), ..LOCAL_STORE };
const CACHE_ADDRESS: Addressing = Addressing { offset: LONG_OFFSET, ..PLAIN };

pub(super) const ROWS: &[Row] = &[
    row(0x181, f(1) | f(4), "LDG", Op::Ldg, Own, [1, 1, 0, 0])
        .name(&[E, EVICTION, One(PREFETCH, &PREFETCHES), DATA, LOAD_ORDER])
        .operands(&[TargetIfKept(TARGET), D, Address(&LOAD), By(&[LOAD_CONDITION], load_condition)])
        .ignores(UPPER_HALF)
        // The meaning of the predicates of loads is not known.
        .drops(TARGET)
        .refuses(LOAD_CONDITION)
        .sized(load_sizes),
    row(0x180, f(4), "LD", Op::Ld, Own, [1, 1, 0, 0])
        .name(&[E, EVICTION, One(PREFETCH, &PREFETCHES), DATA, LOAD_ORDER])
        .operands(&[D, Address(&LOAD), By(&[LOAD_CONDITION], load_condition)])
        .ignores(UPPER_HALF)
        .refuses(LOAD_CONDITION)
        .only(|i| matches!(i.bits(TARGET), 0 | 7))
        .sized(load_sizes),
    row(0x186, f(1) | f(4), "STG", Op::Stg, Own, [0, 1, 1, 0])
        .name(&[E, EVICTION, DATA, STRONG_ORDER])
        .operands(&[Address(&STORE), Register(SLOT_REGISTER)])
        .ignores(UPPER_HALF)
        .sized(store_sizes),
    row(0x185, f(1), "ST", Op::St, Own, [0, 1, 0, 0])
        .name(&[E, EVICTION, DATA, STRONG_ORDER])
        .operands(&[Address(&SHORT_STORE), Register(UPPER)])
        .ignores(UPPER_HALF)
        .sized(|i, sizes| Ok([sizes[0], if i.bit(EXTENDED_ADDRESS) { 2 } else { 1 }, sizes[2], data(i)])),
    row(0x185, f(4), "ST", Op::St, Own, [0, 1, 0, 0])
        .name(&[E, EVICTION, DATA, STRONG_ORDER])
        .operands(&[Address(&STORE), Register(SLOT_REGISTER)])
        .ignores(UPPER_HALF)
        .sized(store_sizes),
    row(0x183, f(4), "LDL", Op::Ldl, Own, [1, 1, 0, 0])
        .name(&[EVICTION, DATA])
        .operands(&[D, Address(&LOCAL_LOAD)])
        .sized(target_sizes),
    row(0x187, f(1), "STL", Op::Stl, Own, [0, 1, 1, 0])
        .name(&[EVICTION, DATA])
        .operands(&[Address(&PLAIN), Register(SLOT_REGISTER)])
        .sized(data_sizes),
    printed(0x187, f(4), "STL", Own)
        .name(&[EVICTION, DATA])
        .operands(&[Address(&LOCAL_STORE), Register(SLOT_REGISTER)]),
    row(0x184, f(4), "LDS", Op::Lds, Own, [1, 1, 0, 0])
        .name(&[DATA])
        .operands(&[D, Address(&SHARED_LOAD)])
        .sized(target_sizes),
    row(0x188, f(1) | f(4), "STS", Op::Sts, Own, [0, 1, 1, 0])
        .name(&[DATA])
        .operands(&[Address(&SHARED_STORE), Register(SLOT_REGISTER)])
        .sized(data_sizes),
    row(0x182, f(5), "LDC", Op::Ldc, Own, [1, 1, 0, 0])
        .name(&[CONSTANT_DATA, CONSTANT_MODE])
        .operands(&[D, By(&[BANK, BANK_OFFSET, UNIFORM], indexed_constant)])
        .refuses(LDC_MODE)
        .refuses(UNIFORM)
        .sized(target_sizes),
    printed(0x182, f(2), "LDC", Own)
        .name(&[CONSTANT_DATA, CONSTANT_MODE])
        .operands(&[D, By(&[BANK, BANK_OFFSET, UNIFORM], indexed_constant)]),
    row(0x0b9, f(5), "ULDC", Op::Uldc, Unary, [1, 0, 1, 0])
        .name(&[CONSTANT_DATA])
        .operands(&[D, By(&[BANK, BANK_OFFSET], uniform_constant)])
        .sized(target_sizes),
    row(0x0bb, f(5), "ULDC", Op::UldcIndexed, Own, [1, 1, 0, 0])
        .name(&[CONSTANT_DATA])
        .operands(&[
            D,
            By(&[BANK, BANK_OFFSET, UNIFORM], |p| {
                let place = plus(p.uniform(UNIFORM_A), p.i.signed(BANK_OFFSET));
                p.push(format_args!("c[{:#x}][{place}]", p.i.bits(BANK)));
            }),
        ])
        .sized(target_sizes),
    printed(0x0b8, f(4), "ULDC", Own).name(&[CONSTANT_DATA]).operands(&[
        D,
        By(&[POINTER_OFFSET], |p| {
            let place = plus(p.uniform(UNIFORM_A), p.i.signed(POINTER_OFFSET));
            p.push(format_args!("[{place}]"));
        }),
        Condition(CONDITION),
    ]),
    row(0x03b, f(4), "LDSM", Op::Ldsm, Own, [1, 1, 0, 0])
        .name(&[
            Always("16"),
            One(LDSM_SHAPE, &["M88", "MT88", "M816", "M832"]),
            One(LDSM_COUNT, &["", "2", "4"]),
        ])
        .operands(&[D, Address(&LOCAL_LOAD)])
        .sized(|i, sizes| Ok([1 << i.bits(LDSM_COUNT).min(2), sizes[1], sizes[2], sizes[3]])),
    row(0x1ae, f(7), "LDGSTS", Op::Ldgsts, Own, [0, 2, 0, 0])
        .name(&[
            Always("E"),
            Clear(COPY_CACHES, "BYPASS"),
            EVICTION,
            One(COPY_PREFETCH, &PREFETCHES),
            One(SIZE, &["INVALID0", "INVALID1", "INVALID2", "INVALID3", "", "64", "128", "INVALID7"]),
            Set(COPY_FILL, "ZFILL"),
            One(ORDER, &COPY_ORDERS),
        ])
        .operands(&[By(&[], copy_target), Address(&COPY), ConditionIfUsed(CONDITION)])
        .ignores(UPPER_HALF),
    row(0x1aa, f(1) | f(4), "QSPC", Op::Qspc, Own, [1, 1, 0, 0])
        .name(&[E, One(SPACE, &["G", "L", "S"])])
        .operands(&[Target(TARGET), D, Address(&QUERY_ADDRESS)])
        .ignores(DESCRIPTOR)
        .refuses(ATOMIC_DESCRIPTOR)
        .sized(|i, sizes| Ok([sizes[0], address(i), sizes[2], sizes[3]])),
    row(0x1b0, f(4), "ARRIVES", Op::Arrives, Own, [0, 1, 0, 0])
        .name(&[
            One(ARRIVE_KIND, &["LDGSTSBAR", "???1"]),
            One(SIZE, &["???0", "???1", "???2", "???3", "???4", "64", "???6", "???7"]),
        ])
        .operands(&[Address(&LOCAL_STORE)]),
    // Atomics.
    row(0x1a8, f(1) | f(4), "ATOMG", Op::Atomg, Own, [1, 1, 1, 0])
        .name(&[ATOMIC_E, OPERATION, EVICTION, TYPE, STRONG_ORDER])
        .operands(&[Target(TARGET), D, Address(&ATOMIC_ADDRESS), Register(SLOT_REGISTER)])
        .ignores(UPPER_HALF)
        .sized(atomic_sizes),
    row(0x1a9, f(1), "ATOMG", Op::AtomgSwap, Own, [1, 1, 1, 1])
        .name(&[Set(EXTENDED_ADDRESS, "E"), Always("CAS"), EVICTION, SWAP_TYPE, STRONG_ORDER])
        .operands(&[Target(TARGET), D, Address(&PLAIN), Register(SLOT_REGISTER), Register(UPPER)])
        .ignores(UPPER)
        .sized(atomic_sizes),
    row(0x18a, f(1) | f(4), "ATOM", Op::Atom, Own, [1, 1, 1, 0])
        .name(&[ATOMIC_E, OPERATION, EVICTION, TYPE, STRONG_ORDER])
        .operands(&[Target(TARGET), D, Address(&ATOMIC_ADDRESS), Register(SLOT_REGISTER)])
        .ignores(UPPER_HALF)
        .sized(atomic_sizes),
    row(0x18b, f(1), "ATOM", Op::AtomSwap, Own, [1, 1, 1, 1])
        .name(&[Set(EXTENDED_ADDRESS, "E"), SWAP, EVICTION, SWAP_TYPE, STRONG_ORDER])
        .operands(&[Target(TARGET), D, Address(&PLAIN), Register(SLOT_REGISTER), Register(UPPER)])
        .ignores(ATOMIC)
        .sized(atomic_sizes),
    row(0x18e, f(4), "RED", Op::Red, Own, [0, 1, 1, 0])
        .name(&[E, REDUCTION_OPERATION, EVICTION, TYPE, STRONG_ORDER])
        .operands(&[Address(&REDUCTION_ADDRESS), Register(SLOT_REGISTER)])
        .ignores(UPPER_HALF)
        .sized(|i, sizes| {
            Ok([sizes[0], if i.bit(EXTENDED_ADDRESS) { 2 } else { 1 }, atomic_data(i), sizes[3]])
        }),
    row(0x18c, f(1) | f(4), "ATOMS", Op::Atoms, Own, [1, 1, 1, 0])
        .name(&[SHARED_OPERATION, SHARED_TYPES])
        .operands(&[D, Address(&SHARED_STORE), Register(SLOT_REGISTER)])
        .ignores(SIZE)
        .sized(shared_sizes),
    row(0x18c, f(7), "ATOMS", Op::AtomsInc, Own, [1, 1, 0, 0])
        .name(&[
            One(
                ATOMIC,
                &[
                    "INVALID0", "INVALID1", "INVALID2", "INVALID3", "INVALID4", "INVALID5", "INVALID6",
                    "INVALID7", "INVALID8", "ARRIVE", "POPC.INC",
                ],
            ),
            Computed(&[ATOMIC, SHARED_TYPE], counter_type),
        ])
        .operands(&[D, Address(&SHARED_STORE)])
        .ignores(SIZE)
        .sized(|i, sizes| Ok([shared_data(i), sizes[1], sizes[2], sizes[3]])),
    row(0x18d, f(1), "ATOMS", Op::AtomsSwap, Own, [1, 1, 1, 1])
        .name(&[SWAP, SHARED_TYPES])
        .operands(&[D, Address(&SHARED_STORE), Register(SLOT_REGISTER), Register(UPPER)])
        .ignores(SIZE)
        .ignores(ATOMIC)
        .refuses(UNIFORM)
        .sized(shared_sizes),
    // Cache control, fences and hints.
    row(0x18f, f(4) | f(6), "CCTL", Op::Nothing, Own, [0; 4])
        .name(&[
            Set(EXTENDED_ADDRESS, "E"),
            One(CACHE, &["", "U", "C", "I", "???4", "???5", "???6", "???7"]),
            Required(
                CACHE_OPERATION,
                &[
                    "PF1", "PF2", "WB", "IV", "IVALL", "RS", "IVALLP", "WBALL", "WBALLP", "PML2", "DML2",
                    "RML2",
                ],
            ),
        ])
        .operands(&[By(&[], |p| {
            // The other operations concern all lines.
            if !matches!(p.i.bits(CACHE_OPERATION), 4 | 6 | 7 | 8) {
                p.push(p.address(&CACHE_ADDRESS));
            }
        })])
        .any(),
    named(0x191, f(5), "CCTLT"),
    named(0x1ad, f(1), "LDTRAM"),
];

fn extended(i: &Instruction, wide: bool) -> &'static str {
    match i.bit(EXTENDED_ADDRESS) {
        true => "E",
        false if i.form != 1 && i.bit(UNIFORM) && wide => "???0",
        false => "",
    }
}

/// Writes the predicate of a load unless it is 0. Its number is inverted.
fn load_condition(p: &mut Printer<'_>) {
    let bits = p.i.bits(LOAD_CONDITION);
    let not = if bits & 8 != 0 { "!" } else { "" };
    match bits & 7 {
        _ if bits == 0 => {}
        0 => p.push(format_args!("{not}PT")),
        number => p.push(format_args!("{not}P{}", 7 - number)),
    }
}

/// A register and an offset.
fn plus(register: alloc::string::String, offset: i64) -> alloc::string::String {
    if offset == 0 { register } else { register + "+" + &number::signed(offset) }
}

/// Writes the place of LDC: a register and an offset in a bank.
fn indexed_constant(p: &mut Printer<'_>) {
    let i = p.i;
    let index = if i.bit(UNIFORM) { UPPER } else { A_REGISTER };
    let offset = i.signed(BANK_OFFSET);
    let place = match i.register(index) {
        RZ => number::signed(offset),
        _ => plus(p.register(index), offset),
    };
    match i.bit(UNIFORM) {
        true => p.push(format_args!("cx[{}][{place}]", p.uniform(UNIFORM_A))),
        false => p.push(format_args!("c[{:#x}][{place}]", i.bits(BANK))),
    }
}

/// Writes the place of ULDC, which can be any byte.
fn uniform_constant(p: &mut Printer<'_>) {
    let i = p.i;
    match i.bit(UNIFORM) {
        true => p.push(format_args!("cx[{}][{:#x}]", p.uniform(UNIFORM_A), i.bits(BANK_OFFSET))),
        false => {
            p.push(format_args!("c[{:#x}][{}]", i.bits(BANK), number::signed(i.signed(BANK_OFFSET))));
        }
    }
}

/// Writes the target of LDGSTS in shared memory.
fn copy_target(p: &mut Printer<'_>) {
    let place = plus(p.register(D_REGISTER), p.i.signed(COPY_TO));
    p.push(format_args!("[{place}]"));
}

/// Returns the type of ATOMS.ARRIVE and ATOMS.POPC.INC; each has only one.
fn counter_type(i: &Instruction) -> &'static str {
    match (i.bits(ATOMIC), i.bits(SHARED_TYPE)) {
        (9, 2) => "64",
        (10, 0) => "32",
        (_, kind) => ["???0", "???1", "???2", "???3"][kind as usize],
    }
}

/// Returns the number of data registers of a load or store.
fn data(i: &Instruction) -> u8 {
    match i.bits(SIZE) {
        5 => 2,
        6 => 4,
        _ => 1,
    }
}

/// Returns the number of registers of a global or generic address.
fn address(i: &Instruction) -> u8 {
    if i.bit(EXTENDED_ADDRESS) && (i.form == 1 || i.bit(WIDE)) { 2 } else { 1 }
}

fn target_sizes(i: &Instruction, sizes: Sizes) -> Result<Sizes, Refusal> {
    Ok([data(i), sizes[1], sizes[2], sizes[3]])
}

fn load_sizes(i: &Instruction, sizes: Sizes) -> Result<Sizes, Refusal> {
    Ok([data(i), address(i), sizes[2], sizes[3]])
}

fn store_sizes(i: &Instruction, sizes: Sizes) -> Result<Sizes, Refusal> {
    Ok([sizes[0], address(i), data(i), sizes[3]])
}

fn data_sizes(i: &Instruction, sizes: Sizes) -> Result<Sizes, Refusal> {
    Ok([sizes[0], sizes[1], data(i), sizes[3]])
}

/// Returns the number of data registers of a global atomic.
fn atomic_data(i: &Instruction) -> u8 {
    if matches!(i.bits(ATOMIC_TYPE), 2 | 5 | 6) { 2 } else { 1 }
}

/// A comparing exchange has one more register of data.
fn atomic_sizes(i: &Instruction, sizes: Sizes) -> Result<Sizes, Refusal> {
    let narrow = i.form == 4 && !i.bit(ATOMIC_WIDE);
    let address = if i.bit(EXTENDED_ADDRESS) && !narrow { 2 } else { 1 };
    let data = atomic_data(i);
    Ok([data, address, data, if sizes[3] == 0 { 0 } else { data }])
}

/// Returns the number of data registers of a shared atomic.
fn shared_data(i: &Instruction) -> u8 {
    if i.bits(SHARED_TYPE) == 2 { 2 } else { 1 }
}

fn shared_sizes(i: &Instruction, sizes: Sizes) -> Result<Sizes, Refusal> {
    let data = shared_data(i);
    Ok([data, sizes[1], data, if sizes[3] == 0 { 0 } else { data }])
}
