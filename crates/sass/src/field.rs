//! Bit fields of instruction words.
//!
//! Each constant is the position of one piece of information. The rows of the table name modifiers and operands with
//! these constants, and the interpreter reads the same constants, so each position is written once. One position can
//! have several names, because most modifier bits have a different meaning in each family.
//!
//! Source: bit flips of compiled instructions, read back with nvdisasm for sm_87.

/// Consecutive bits of an instruction word.
///
/// ```
/// use sass::field::Field;
///
/// let field = Field { low: 16, len: 8 };
/// assert_eq!(field.of(0x0005_0000), 5);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Lowest bit, 0 to 127.
    pub low: u8,
    /// Number of bits, 1 to 32.
    pub len: u8,
}

impl Field {
    /// Bits `low..low + len`.
    const fn new(low: u8, len: u8) -> Self {
        assert!(len >= 1 && len <= 32 && low as u32 + len as u32 <= 128);
        Self { low, len }
    }

    /// One bit.
    const fn bit(low: u8) -> Self {
        Self::new(low, 1)
    }

    /// Returns the value of the field in `word`.
    #[inline(always)]
    pub const fn of(self, word: u128) -> u32 {
        // CAST: at most 32 bits are kept.
        (word >> self.low) as u32 & (u32::MAX >> (32 - self.len as u32))
    }

    /// Returns the value of the field in `word`, sign extended.
    #[inline(always)]
    pub const fn signed(self, word: u128) -> i64 {
        let unused = 32 - self.len as u32;
        (self.of(word).cast_signed() << unused >> unused) as i64
    }

    /// Returns the mask of the field in a word.
    pub const fn mask(self) -> u128 {
        ((1 << self.len) - 1) << self.low
    }
}

// Every instruction.

/// Operation and kinds of operands.
pub const OPCODE: Field = Field::new(0, 12);
/// Kinds of operands.
pub const FORM: Field = Field::new(9, 3);
/// Guard predicate and its inversion.
pub const GUARD: Field = Field::new(12, 4);
/// Destination register.
pub const D_REGISTER: Field = Field::new(16, 8);
/// Destination register of the uniform datapath.
pub const UNIFORM_D: Field = Field::new(16, 6);
/// First source register.
pub const A_REGISTER: Field = Field::new(24, 8);
/// First source register of the uniform datapath.
pub const UNIFORM_A: Field = Field::new(24, 6);
/// The slot: an immediate, or a register or constant with its signs.
pub const SLOT: Field = Field::new(32, 32);
/// Register in the slot.
pub const SLOT_REGISTER: Field = Field::new(32, 8);
/// Uniform register in the slot.
pub const SLOT_UNIFORM: Field = Field::new(32, 6);
/// Register above the slot.
pub const UPPER: Field = Field::new(64, 8);
/// Uniform register above the slot.
pub const UPPER_UNIFORM: Field = Field::new(64, 6);
/// Byte offset of a constant.
pub const BANK_OFFSET: Field = Field::new(38, 16);
/// Bank of a constant.
pub const BANK: Field = Field::new(54, 5);
/// Absolute value of the slot.
pub const SLOT_ABSOLUTE: Field = Field::bit(62);
/// Negation of the slot.
pub const SLOT_NEGATE: Field = Field::bit(63);
/// Negation of A.
pub const A_NEGATE: Field = Field::bit(72);
/// Absolute value of A.
pub const A_ABSOLUTE: Field = Field::bit(73);
/// Absolute value of the register above the slot.
pub const UPPER_ABSOLUTE: Field = Field::bit(74);
/// Negation of the register above the slot.
pub const UPPER_NEGATE: Field = Field::bit(75);
/// First destination predicate.
pub const TARGET: Field = Field::new(81, 3);
/// Second destination predicate.
pub const TARGET_2: Field = Field::new(84, 3);
/// First source predicate and its inversion.
pub const CONDITION: Field = Field::new(87, 4);
/// Second source predicate and its inversion.
pub const CONDITION_2: Field = Field::new(77, 4);
/// Third source predicate and its inversion.
pub const CONDITION_3: Field = Field::new(68, 4);
/// Whether an operand is a uniform register, or a constant bindless.
pub const UNIFORM: Field = Field::bit(91);
/// Whether the scheduler may keep operands for the next instruction.
pub const KEEPS: Field = Field::bit(109);
/// Reuse marks of the first, the second and the third source.
pub const REUSE: [Field; 3] = [Field::bit(122), Field::bit(123), Field::bit(124)];

// Integers and predicates.

/// Signed operands.
pub const SIGNED: Field = Field::bit(73);
/// Whether carries are added, and negations are one's complements.
pub const EXTENDED: Field = Field::bit(74);
/// A bit that nvdisasm ignores in IMAD.HI.
pub const HIGH_IGNORED: Field = Field::bit(86);
/// Comparison of integers.
pub const COMPARE: Field = Field::new(76, 3);
/// How the outcome of a comparison is combined with a predicate.
pub const COMBINE: Field = Field::new(74, 2);
/// Whether ISETP continues a comparison of the lower words.
pub const COMPARE_EXTENDED: Field = Field::bit(72);
/// Truth table of LOP3 and of PLOP3 with signs.
pub const LUT: Field = Field::new(72, 8);
/// Whether the predicate of LOP3 is combined by AND.
pub const LUT_AND: Field = Field::bit(80);
/// Truth table of PLOP3: lower, then upper bits.
pub const TRUTH_TABLE: [Field; 2] = [Field::new(64, 3), Field::new(72, 5)];
/// Truth table of the second destination of PLOP3.
pub const LUT_2: Field = Field::new(16, 8);
/// Whether the third predicate of PLOP3 is uniform.
pub const CONDITION_3_UNIFORM: Field = Field::bit(67);
/// Type of SHF.
pub const SHIFT_TYPE: Field = Field::new(73, 2);
/// Whether SHF, BMSK and SGXT use the amount modulo the width.
pub const WRAP: Field = Field::bit(75);
/// Whether SHF shifts to the right.
pub const SHIFT_RIGHT: Field = Field::bit(76);
/// Whether SHF returns the upper word.
pub const SHIFT_HIGH: Field = Field::bit(80);
/// Whether LEA sign extends A to 64 bits.
pub const LEA_SIGN_EXTENDS: Field = Field::bit(73);
/// Amount of the shift of LEA.
pub const LEA_SHIFT: Field = Field::new(75, 5);
/// Whether LEA returns the upper word.
pub const LEA_HIGH: Field = Field::bit(80);
/// Mode of PRMT.
pub const PERMUTE: Field = Field::new(72, 3);
/// Bytes of a quad that MOV writes.
pub const MOV_MASK: Field = Field::new(72, 4);
/// Whether FLO returns a shift amount.
pub const FLO_SHIFT: Field = Field::bit(74);
/// Whether VABSDIFF4 accumulates.
pub const ACCUMULATE: Field = Field::bit(75);
/// Whether IDP multiplies two elements of 16 bits.
pub const DOT_TWO: Field = Field::bit(76);
/// Which half of B the two-element IDP takes.
pub const DOT_HIGH: Field = Field::bit(77);
/// Whether B of IDP is signed.
pub const DOT_B_SIGNED: Field = Field::bit(74);
/// Half that CLMAD returns.
pub const CARRYLESS_HIGH: Field = Field::bit(77);
/// Target type of I2I: signedness, then size.
pub const I2I_TYPE: Field = Field::new(76, 2);
/// Whether the target of I2I and I2IP is signed.
pub const NARROW_SIGNED: Field = Field::bit(76);
/// Size of the target of I2I.
pub const I2I_SIZE: Field = Field::bit(77);
/// Target type of I2IP: signedness, then size.
pub const I2IP_TYPE: Field = Field::new(76, 3);
/// Size of the target of I2IP.
pub const I2IP_SIZE: Field = Field::new(77, 2);
/// Saturation of I2IP.
pub const I2IP_SATURATION: Field = Field::new(74, 2);
/// Place of the result of I2IP in the register.
pub const I2IP_PLACE: Field = Field::new(72, 2);
/// Byte of a register that P2R writes and R2P reads.
pub const PREDICATE_BYTE: Field = Field::new(76, 2);
/// Immediate of UCLEA.
pub const UCLEA_IMMEDIATE: Field = Field::new(32, 16);
/// Shift of UCLEA.
pub const UCLEA_SHIFT: Field = Field::new(73, 4);

// Exchange between the lanes of a warp.

/// Condition of VOTE.
pub const VOTE: Field = Field::new(72, 2);
/// Whether MATCH compares 64 bits.
pub const MATCH_WIDE: Field = Field::bit(73);
/// Whether MATCH returns the lanes with an equal value.
pub const MATCH_ANY: Field = Field::bit(79);
/// Operation of REDUX.
pub const REDUX: Field = Field::new(78, 3);
/// Whether R2UR combines lanes by OR.
pub const R2UR_OR: Field = Field::bit(84);
/// Shape of MOVM.
pub const MOVM_SHAPE: Field = Field::new(78, 2);
/// Mode of SHFL.
pub const SHUFFLE: Field = Field::new(58, 2);
/// Immediate lane of SHFL.
pub const SHUFFLE_LANE: Field = Field::new(53, 5);
/// Immediate mask of SHFL.
pub const SHUFFLE_MASK: Field = Field::new(40, 13);

// Floating point.

/// Whether denormals are flushed to zero.
pub const FTZ: Field = Field::bit(80);
/// Whether denormals are flushed and a zero factor makes zero.
pub const FMZ: Field = Field::bit(76);
/// Rounding mode.
pub const ROUND: Field = Field::new(78, 2);
/// Whether the result is clamped to 0 to 1.
pub const SATURATE: Field = Field::bit(77);
/// [`SATURATE`], [`ROUND`] and [`FTZ`]: 0 for plain arithmetic.
pub const ARITHMETIC: Field = Field::new(77, 4);
/// Power of two that FMUL multiplies with.
pub const SCALE: Field = Field::new(84, 3);
/// Whether FSWZADD drops lanes that are not there.
pub const SWIZZLE_NDV: Field = Field::bit(77);
/// Signs of the lanes of FSWZADD.
pub const SWIZZLE: [Field; 4] = [Field::new(38, 2), Field::new(36, 2), Field::new(34, 2), Field::new(32, 2)];
/// Comparison of floating-point numbers.
pub const FLOAT_COMPARE: Field = Field::new(76, 4);
/// Whether a minimum or maximum keeps a NaN.
pub const KEEP_NAN: Field = Field::bit(81);
/// Whether a minimum or maximum combines the signs of its operands.
pub const XOR_SIGN: Field = Field::bit(82);
/// Function of MUFU.
pub const FUNCTION: Field = Field::new(74, 4);
/// Whether MUFU works on half precision.
pub const FUNCTION_HALF: Field = Field::bit(73);
/// Half or byte of the slot that a conversion or MUFU reads.
pub const SLOT_PART: Field = Field::new(60, 2);

// Half precision.

/// Halves of A.
pub const A_HALVES: Field = Field::new(74, 2);
/// Halves of the slot.
pub const SLOT_HALVES: Field = Field::new(60, 2);
/// Whether one half of the slot is negated on its own.
pub const SLOT_HALF_NEGATE: Field = Field::bit(86);
/// Halves of the register above the slot.
pub const UPPER_HALVES: Field = Field::new(81, 2);
/// Absolute value of the register above the slot, of HFMA2.
pub const UPPER_HALF_ABSOLUTE: Field = Field::bit(83);
/// Negation of the register above the slot, of HFMA2.
pub const UPPER_HALF_NEGATE: Field = Field::bit(84);
/// Whether the result has single precision.
pub const HALF_TO_SINGLE: Field = Field::bit(78);
/// Whether HFMA2 replaces negative results by 0.
pub const RELU: Field = Field::bit(79);
/// Whether operands are bfloat16.
pub const BFLOAT16: Field = Field::bit(85);
/// Whether operands of HSET2 and HSETP2 are bfloat16.
pub const COMPARE_BFLOAT16: Field = Field::bit(65);
/// Combination with a predicate, of HSET2 and HSETP2.
pub const HALF_COMBINE: Field = Field::new(69, 2);
/// Whether HSET2 writes 1.0 for true.
pub const HALF_SET_ONE: Field = Field::bit(71);
/// Whether HSETP2 joins both halves by AND.
pub const HALF_AND: Field = Field::bit(71);

// Conversions.

/// Size of the floating-point target, or of the integer target of F2I: logarithm of its bytes.
pub const TO_SIZE: Field = Field::new(75, 2);
/// Size of the source: logarithm of its bytes.
pub const FROM_SIZE: Field = Field::new(84, 2);
/// Whether the target of F2I is signed.
pub const TO_SIGNED: Field = Field::bit(72);
/// Whether the source of I2F and I2FP is signed.
pub const FROM_SIGNED: Field = Field::bit(74);
/// Whether F2I converts a NaN to 0.
pub const NAN_TO_ZERO: Field = Field::bit(77);
/// Target of I2FP.
pub const I2FP_TYPE: Field = Field::new(75, 3);
/// Whether the target of F2F is bfloat16.
pub const F2F_BFLOAT16: Field = Field::bit(77);
/// Whether F2FP saturates to the largest finite number.
pub const F2FP_FINITE: Field = Field::bit(77);
/// Whether F2FP and F2IP replace negative results by 0.
pub const PACK_RELU: Field = Field::bit(75);
/// Whether F2FP packs bfloat16.
pub const F2FP_BFLOAT16: Field = Field::bit(76);
/// A bit with which the type of F2FP is invalid.
pub const F2FP_INVALID: Field = Field::bit(86);
/// Whether F2FP converts one number and merges it with C.
pub const F2FP_MERGE: Field = Field::bit(78);
/// Whether F2FP has all three sources.
pub const F2FP_THREE: Field = Field::bit(81);
/// Rounding mode of F2FP.
pub const F2FP_ROUND: Field = Field::new(79, 3);
/// The bits of [`F2FP_ROUND`] that the interpreter supports.
pub const F2FP_ROUND_LOW: Field = Field::new(79, 2);
/// Target type of F2IP.
pub const F2IP_TYPE: Field = Field::new(76, 2);
/// Whether the target of F2IP is signed.
pub const F2IP_SIGNED: Field = Field::bit(76);
/// Whether F2IP converts a NaN to 0.
pub const F2IP_NAN_TO_ZERO: Field = Field::bit(74);
/// Whether F2IP writes the upper half.
pub const F2IP_UPPER: Field = Field::bit(72);

// Memory.

/// Size and signedness of the data.
pub const SIZE: Field = Field::new(73, 3);
/// Eviction priority.
pub const EVICT: Field = Field::new(84, 3);
/// Prefetch into the L2 cache.
pub const PREFETCH: Field = Field::new(68, 2);
/// Memory order and scope.
pub const ORDER: Field = Field::new(77, 4);
/// Whether the address has 64 bits.
pub const EXTENDED_ADDRESS: Field = Field::bit(72);
/// Byte offset of an address, signed.
pub const OFFSET: Field = Field::new(40, 24);
/// Byte offset of an address without other operands in the slot, signed.
pub const LONG_OFFSET: Field = Field::new(32, 32);
/// Whether the register next to a uniform register has 64 bits.
pub const WIDE: Field = Field::bit(90);
/// [`WIDE`] of atomics that return a value.
pub const ATOMIC_WIDE: Field = Field::bit(70);
/// Whether the uniform register of a load or store is a descriptor.
pub const DESCRIPTOR: Field = Field::bit(76);
/// Whether the uniform register of an atomic is a descriptor.
pub const ATOMIC_DESCRIPTOR: Field = Field::bit(71);
/// Whether nvdisasm prints a descriptor as such.
pub const DESCRIPTOR_SHOWN: Field = Field::bit(101);
/// Predicate of a load: its number inverted, then its inversion.
pub const LOAD_CONDITION: Field = Field::new(64, 4);
/// Scale of the register of a shared-memory address: 0 for 1, else 2 << n.
pub const STRIDE: Field = Field::new(78, 2);
/// How LDC combines register and bank.
pub const LDC_MODE: Field = Field::new(78, 2);
/// Offset of ULDC from a pointer.
pub const POINTER_OFFSET: Field = Field::new(38, 32);
/// Matrices that LDSM loads: logarithm of their number.
pub const LDSM_COUNT: Field = Field::new(72, 2);
/// Shape of the matrices of LDSM.
pub const LDSM_SHAPE: Field = Field::new(78, 2);
/// Whether LDGSTS keeps the data in the L1 cache.
pub const COPY_CACHES: Field = Field::bit(81);
/// Prefetch of LDGSTS.
pub const COPY_PREFETCH: Field = Field::new(71, 2);
/// Whether LDGSTS zero-fills the bytes that it does not copy.
pub const COPY_FILL: Field = Field::bit(82);
/// Byte offset of the source of LDGSTS, signed.
pub const COPY_FROM: Field = Field::new(32, 12);
/// Byte offset of the target of LDGSTS, signed.
pub const COPY_TO: Field = Field::new(44, 20);
/// Address space queried by QSPC.
pub const SPACE: Field = Field::new(73, 2);
/// Kind of ARRIVES.
pub const ARRIVE_KIND: Field = Field::bit(72);
/// Operation of an atomic with a result.
pub const ATOMIC: Field = Field::new(87, 4);
/// Operation of RED.
pub const REDUCTION: Field = Field::new(87, 3);
/// Type of an atomic.
pub const ATOMIC_TYPE: Field = Field::new(73, 4);
/// Type of an atomic in shared memory.
pub const SHARED_TYPE: Field = Field::new(73, 2);
/// Whether a comparing exchange is CAST.
pub const CAST: Field = Field::bit(87);
/// Whether CAST spins.
pub const CAST_SPIN: Field = Field::bit(88);
/// Operation of CCTL.
pub const CACHE_OPERATION: Field = Field::new(87, 4);
/// Cache of CCTL.
pub const CACHE: Field = Field::new(78, 3);
/// All bits above the slot that do not belong to the scheduler.
pub const UPPER_HALF: Field = Field::new(64, 28);

// Tensor cores.

/// Whether A of HMMA is sparse.
pub const HMMA_SPARSE: Field = Field::bit(73);
/// Lower bit of the shape of HMMA and IMMA.
pub const MMA_SHAPE_LOW: Field = Field::bit(75);
/// Upper bit of the shape of HMMA.
pub const HMMA_SHAPE_HIGH: Field = Field::bit(78);
/// Whether HMMA accumulates in single precision.
pub const HMMA_SINGLE: Field = Field::bit(76);
/// A bit that nvdisasm ignores in HMMA.
pub const HMMA_IGNORED: Field = Field::bit(77);
/// Type of A and B of HMMA.
pub const HMMA_TYPE: Field = Field::new(82, 2);
/// Whether A of IMMA is sparse.
pub const IMMA_SPARSE: Field = Field::bit(72);
/// Upper bits of the shape of IMMA.
pub const IMMA_SHAPE_HIGH: Field = Field::new(85, 2);
/// Signedness of A of IMMA.
pub const IMMA_A_TYPE: Field = Field::new(76, 2);
/// Whether A of IMMA is signed.
pub const IMMA_A_SIGNED: Field = Field::bit(76);
/// Whether A of IMMA has 4 bits.
pub const IMMA_A_SMALL: Field = Field::bit(83);
/// Signedness of B of IMMA.
pub const IMMA_B_TYPE: Field = Field::new(78, 2);
/// Whether B of IMMA is signed.
pub const IMMA_B_SIGNED: Field = Field::bit(78);
/// Whether B of IMMA has 4 bits.
pub const IMMA_B_SMALL: Field = Field::bit(84);
/// Whether IMMA saturates.
pub const IMMA_SATURATE: Field = Field::bit(82);
/// Whether A of IMMA and BMMA is not in rows.
pub const A_NOT_IN_ROWS: Field = Field::bit(73);
/// Whether B of IMMA and BMMA is in columns.
pub const B_IN_COLUMNS: Field = Field::bit(74);
/// Shape of BMMA.
pub const BMMA_SHAPE: Field = Field::new(75, 2);
/// Operation of BMMA.
pub const BMMA_OPERATION: Field = Field::new(77, 2);
/// [`BMMA_OPERATION`] and the bit after it.
pub const BMMA_OPERATION_LONG: Field = Field::new(77, 3);
/// Whether BMMA counts bits.
pub const BMMA_COUNTS: Field = Field::bit(80);
/// Shape of DMMA.
pub const DMMA_SHAPE: Field = Field::bit(76);
/// Uniform predicate that skips the product: number inverted, then its inversion.
pub const SKIP: Field = Field::new(87, 4);
/// Register with the places of the elements of a sparse matrix.
pub const METADATA: Field = Field::new(40, 8);
/// Part of [`METADATA`] that is used.
pub const METADATA_SELECTOR: Field = Field::new(48, 2);

// Control flow.

/// Special register.
pub const SPECIAL: Field = Field::new(72, 8);
/// Whether CS2R reads 64 bits.
pub const SPECIAL_WIDE: Field = Field::bit(80);
/// How a branch changes the depth of calls.
pub const DEPTH: Field = Field::new(85, 2);
/// Whether CALL and RET leave the depth of calls alone.
pub const DEPTH_KEPT: Field = Field::bit(86);
/// Condition of a branch on all lanes.
pub const BRANCH_KIND: Field = Field::new(32, 2);
/// Uniform predicate of a branch.
pub const BRANCH_CONDITION: Field = Field::new(24, 4);
/// Whether the uniform register of a branch is inverted.
pub const BRANCH_COMPLEMENT: Field = Field::bit(30);
/// Lower bits of the target of a branch, in units of 4 bytes.
pub const BRANCH_LOW: Field = Field::new(34, 24);
/// Upper bits of the target of a branch, signed.
pub const BRANCH_HIGH: Field = Field::new(58, 24);
/// Whether RET is absolute.
pub const RET_ABSOLUTE: Field = Field::bit(85);
/// Kind of EXIT.
pub const EXIT_KIND: Field = Field::new(84, 2);
/// Whether EXIT ignores the handler.
pub const EXIT_NO_HANDLER: Field = Field::bit(86);
/// Convergence barrier.
pub const BARRIER: Field = Field::new(16, 4);
/// Byte offset of the end that BSSY names.
pub const BSSY_TARGET: Field = Field::new(32, 32);
/// Whether WARPSYNC is exclusive.
pub const EXCLUSIVE: Field = Field::bit(86);
/// Whether NANOSLEEP sleeps for a random time.
pub const SLEEP_RANDOM: Field = Field::bit(86);
/// Whether NANOSLEEP concerns the warp.
pub const SLEEP_WARP: Field = Field::bit(85);
/// Whether NANOSLEEP clears the timer.
pub const SLEEP_CLEAR: Field = Field::bit(83);
/// State of the warp that BMOV reads or writes.
pub const STATE: Field = Field::new(24, 6);
/// Second state of BMOV.
pub const STATE_2: Field = Field::new(16, 4);
/// Whether BMOV clears its source.
pub const STATE_CLEAR: Field = Field::bit(84);
/// Whether BMOV works on quads.
pub const STATE_QUADS: Field = Field::bit(84);
/// Lower bits of a source of 49 bits.
pub const LONG_LOW: Field = Field::new(32, 32);
/// Upper bits of a source of 49 bits.
pub const LONG_HIGH: Field = Field::new(64, 17);
/// Half of the counter that RPCMOV moves.
pub const COUNTER_HIGH: Field = Field::bit(31);
/// Kind of BPT.
pub const TRAP: Field = Field::new(84, 3);
/// Code of BPT.
pub const TRAP_CODE: Field = Field::new(34, 3);
/// Mode of BAR.
pub const BAR_MODE: Field = Field::new(77, 3);
/// Reduction of BAR.RED.
pub const BAR_REDUCTION: Field = Field::new(74, 2);
/// A bit that nvdisasm ignores in BAR.
pub const BAR_IGNORED: Field = Field::bit(76);
/// Whether BAR defers blocking.
pub const BAR_DEFERS: Field = Field::bit(80);
/// Number of the barrier, immediate.
pub const BAR_NUMBER: Field = Field::new(54, 4);
/// Number of threads, immediate.
pub const BAR_THREADS: Field = Field::new(42, 12);
/// Source of B2R.
pub const B2R_KIND: Field = Field::new(78, 2);
/// Order of MEMBAR.
pub const FENCE_ORDER: Field = Field::new(79, 2);
/// Scope of MEMBAR.
pub const FENCE_SCOPE: Field = Field::new(76, 3);
/// Whether DEPBAR waits for a counter.
pub const DEPENDS_ON_COUNT: Field = Field::bit(47);
/// Scoreboard of DEPBAR.
pub const SCOREBOARD: Field = Field::new(44, 3);
/// Count that DEPBAR waits for.
pub const SCOREBOARD_COUNT: Field = Field::new(38, 6);
/// Scoreboards that DEPBAR waits for.
pub const SCOREBOARDS: Field = Field::new(32, 6);
/// Events of PMTRIG.
pub const EVENTS: Field = Field::new(32, 16);

// Textures and surfaces.

/// Whether a texture access uses scores.
pub const SCORES: Field = Field::bit(60);
/// Whether the handle is bindless.
pub const BINDLESS: Field = Field::bit(59);
/// Precision of a texture access.
pub const TEXTURE_PRECISION: Field = Field::new(79, 2);
/// Level of detail of a texture access.
pub const TEXTURE_LEVEL: Field = Field::new(87, 3);
/// Component that TLD4 gathers.
pub const TEXTURE_COMPONENT: Field = Field::new(87, 2);
/// Whether TXD clamps the level.
pub const TEXTURE_CLAMP: Field = Field::bit(87);
/// Whether a texture access has offsets.
pub const TEXTURE_OFFSET: Field = Field::bit(76);
/// Modifiers of a texture access, by operation.
pub const TEXTURE_FLAGS: [Field; 2] = [Field::bit(77), Field::bit(78)];
/// Whether no scoreboard is used.
pub const TEXTURE_NO_DEPENDENCY: Field = Field::bit(90);
/// Dimensions of a texture or surface.
pub const DIMENSIONS: Field = Field::new(61, 3);
/// Components that are returned.
pub const COMPONENTS: Field = Field::new(72, 4);
/// Property queried by TXQ.
pub const QUERY: Field = Field::new(62, 2);
/// Offset of a handle in a constant bank.
pub const HANDLE_OFFSET: Field = Field::new(40, 14);
/// Whether a surface access is in bytes.
pub const SURFACE_BYTES: Field = Field::bit(72);
/// Effect of a surface access out of bounds.
pub const SURFACE_TRAP: Field = Field::new(59, 2);
