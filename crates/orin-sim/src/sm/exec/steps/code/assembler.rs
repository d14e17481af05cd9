//! Encoding of the few x86-64 instructions that blocks consist of.
//!
//! Source: Intel's Software Developer's Manual, volume 2: 2.1.5 (ModR/M), 2.3.5 (VEX), the pages of the instructions.

/// A general register.
#[derive(Clone, Copy, Debug)]
pub(super) struct Register(u8);

pub(super) const RAX: Register = Register(0);
pub(super) const RCX: Register = Register(1);
pub(super) const RDX: Register = Register(2);
pub(super) const RSI: Register = Register(6);
pub(super) const RDI: Register = Register(7);
pub(super) const R8: Register = Register(8);
pub(super) const R9: Register = Register(9);
pub(super) const R10: Register = Register(10);
pub(super) const R11: Register = Register(11);

/// A vector register of 256 bits.
pub(super) type Vector = u8;

/// An operand in a register or in memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Place {
    /// A vector register, or the number of a general one.
    Register(u8),
    /// At a base register plus an index register, shifted to the left, plus a displacement.
    Memory { base: u8, index: Option<(u8, u8)>, displacement: i32 },
    /// A vector of equal words.
    Splat(u32),
    /// A vector for VPSHUFB: the numbers of bytes in each word.
    Bytes(u32),
}

impl Register {
    pub(super) fn number(self) -> u8 {
        self.0
    }
}

impl Place {
    pub(super) fn at(base: Register, displacement: usize) -> Self {
        // CAST: displacements are offsets in a frame, a bank or the registers of a warp.
        Self::Memory { base: base.0, index: None, displacement: displacement as i32 }
    }

    pub(super) fn indexed(base: Register, index: Register, shift: u8, displacement: usize) -> Self {
        // CAST: as above.
        Self::Memory { base: base.0, index: Some((index.0, shift)), displacement: displacement as i32 }
    }
}

/// With the implied prefix of an instruction: it is one for 128 bits.
pub(super) const NARROW: u8 = 0x80;

/// A vector instruction: opcode map, implied prefix and opcode.
#[derive(Clone, Copy, Debug)]
pub(super) struct Opcode(pub(super) u8, pub(super) u8, pub(super) u8);

/// Machine code, followed by the vectors that it refers to.
#[derive(Debug, Default)]
pub(super) struct Assembler {
    code: Vec<u8>,
    constants: Vec<[u32; 8]>,
    /// Displacements of constants: where, the index of the constant, and the address that it is relative to.
    references: Vec<(usize, usize, usize)>,
}

/// A jump without a target: the address after it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Jump(usize);

/// A condition of the last comparison.
#[derive(Clone, Copy, Debug)]
pub(super) enum Condition {
    Below = 2,
    Equal = 4,
    Different = 5,
}

/// A place in the code.
#[derive(Clone, Copy, Debug)]
pub(super) struct Label(usize);

impl Assembler {
    /// Emits a vector instruction with a destination, a source register and a further source.
    pub(super) fn vector(&mut self, opcode: Opcode, to: Vector, a: Vector, b: Place) {
        self.vex(opcode, to, a, b, None);
    }

    /// As [`Assembler::vector`], with an immediate byte.
    pub(super) fn vector_with(&mut self, opcode: Opcode, to: Vector, a: Vector, b: Place, immediate: u8) {
        self.vex(opcode, to, a, b, Some(immediate));
    }

    fn vex(&mut self, opcode: Opcode, reg: u8, second: u8, rm: Place, immediate: Option<u8>) {
        let Opcode(map, prefix, opcode) = opcode;
        let [_, x, b] = extensions(0, rm);
        // The extensions and the second register are inverted.
        self.code.extend([
            0xc4,
            (reg >> 3 ^ 1) << 7 | (x ^ 1) << 6 | (b ^ 1) << 5 | map,
            (second ^ 15) << 3 | if prefix & NARROW == 0 { 4 } else { 0 } | prefix & 3,
            opcode,
        ]);
        self.modrm(reg, rm, immediate.into_iter().len());
        self.code.extend(immediate);
    }

    /// Emits an instruction with a general register and an operand; `wide` for 64 bits.
    pub(super) fn general(&mut self, opcode: &[u8], reg: Register, rm: Place, wide: bool) {
        self.general_with(opcode, reg.0, rm, wide, None);
    }

    /// As [`Assembler::general`], with an immediate byte. `reg` may be a part of the opcode.
    pub(super) fn general_with(
        &mut self,
        opcode: &[u8],
        reg: u8,
        rm: Place,
        wide: bool,
        immediate: Option<u8>,
    ) {
        let [r, x, b] = extensions(reg, rm);
        self.code.push(0x40 | u8::from(wide) << 3 | r << 2 | x << 1 | b);
        self.code.extend(opcode);
        self.modrm(reg, rm, immediate.into_iter().len());
        self.code.extend(immediate);
    }

    fn modrm(&mut self, reg: u8, rm: Place, after: usize) {
        let reg = (reg & 7) << 3;
        match rm {
            Place::Register(number) => self.code.push(0xc0 | reg | number & 7),
            Place::Memory { base, index, displacement } => {
                let short = i8::try_from(displacement);
                let mode = if short.is_ok() { 0x40 } else { 0x80 };
                match index {
                    None => self.code.push(mode | reg | base & 7),
                    Some((index, shift)) => {
                        self.code.extend([mode | reg | 4, shift << 6 | (index & 7) << 3 | base & 7]);
                    }
                }
                match short {
                    // CAST: two's complement.
                    Ok(short) => self.code.push(short as u8),
                    Err(_) => self.code.extend(displacement.to_le_bytes()),
                }
            }
            Place::Splat(_) | Place::Bytes(_) => {
                let constant = match rm {
                    // The instruction counts bytes from the start of each group of four lanes.
                    Place::Bytes(numbers) => {
                        core::array::from_fn(|lane| numbers + 0x0404_0404 * (lane as u32 & 3))
                    }
                    Place::Splat(value) => [value; 8],
                    _ => unreachable!("no constant"),
                };
                let known = self.constants.iter().position(|known| *known == constant);
                let index = known.unwrap_or(self.constants.len());
                if known.is_none() {
                    self.constants.push(constant);
                }
                self.code.push(reg | 5);
                self.references.push((self.code.len(), index, self.code.len() + 4 + after));
                self.code.extend([0; 4]);
            }
        }
    }

    /// Emits bytes.
    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.code.extend(bytes);
    }

    /// Aligns the start of a function. Returns its offset.
    pub(super) fn align(&mut self) -> usize {
        self.code.resize(self.code.len().next_multiple_of(16), 0xcc);
        self.code.len()
    }

    /// Returns the current place.
    pub(super) fn here(&self) -> Label {
        Label(self.code.len())
    }

    /// Jumps back to a label unless the last result was zero.
    pub(super) fn jump_if_not_zero(&mut self, to: Label) {
        self.code.extend([0x0f, 0x85]);
        // CAST: code is short.
        let distance = to.0 as i32 - (self.code.len() as i32 + 4);
        self.code.extend(distance.to_le_bytes());
    }

    /// Jumps forward on a condition.
    pub(super) fn jump_if(&mut self, condition: Condition) -> Jump {
        // CAST: 4 bits.
        self.code.extend([0x0f, 0x80 | condition as u8, 0, 0, 0, 0]);
        Jump(self.code.len())
    }

    /// Makes a jump lead here.
    pub(super) fn land(&mut self, Jump(from): Jump) {
        // CAST: code is short.
        let distance = (self.code.len() - from) as i32;
        self.code[from - 4..from].copy_from_slice(&distance.to_le_bytes());
    }

    /// Returns the code with its vectors, whose start is aligned to their size.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.code.resize(self.code.len().next_multiple_of(32), 0xcc);
        for (at, index, from) in self.references {
            // CAST: code is short.
            let distance = (self.code.len() + 32 * index) as i32 - from as i32;
            self.code[at..at + 4].copy_from_slice(&distance.to_le_bytes());
        }
        self.code.extend(self.constants.iter().flatten().flat_map(|word| word.to_le_bytes()));
        self.code
    }
}

/// The upper bits of the numbers of registers: of `reg`, of the index, and of the base or register of the operand.
fn extensions(reg: u8, rm: Place) -> [u8; 3] {
    match rm {
        Place::Register(number) => [reg >> 3 & 1, 0, number >> 3],
        Place::Memory { base, index, .. } => {
            [reg >> 3 & 1, index.map_or(0, |(index, _)| index >> 3), base >> 3]
        }
        Place::Splat(_) | Place::Bytes(_) => [reg >> 3 & 1, 0, 0],
    }
}

impl From<Register> for Place {
    fn from(register: Register) -> Self {
        Self::Register(register.0)
    }
}
