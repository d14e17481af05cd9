//! Units of an SM with a published throughput, and how long an instruction occupies them.
//!
//! Rates are those of compute capability 8.6 in the CUDA C++ Programming Guide ("Arithmetic Instructions"), whose table
//! has no column for 8.7; microbenchmarks of an Orin agree for FP32, integers and FP64. Nsight Compute's Kernel
//! Profiling Guide ("Pipelines") says which instructions share a unit. An instruction for which neither says enough
//! occupies an issue slot only, and of two published rates the higher one is used: a bound stays a bound.

use sass::Op;
use serde::{Deserialize, Serialize};

/// Declares [`Port`]: one row for each, with its name and a sentence about it.
macro_rules! ports {
    ($($port:ident $name:literal $text:literal;)*) => {
        /// A unit of an SM.
        ///
        /// ```
        /// use orin_sim::kernel_profile::Port;
        ///
        /// assert_eq!(Port::LoadStore.name(), "load/store");
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[non_exhaustive]
        pub enum Port {
            $(
                #[doc = $text]
                #[serde(rename = $name)]
                $port,
            )*
        }

        impl Port {
            /// All units.
            pub const ALL: &'static [Self] = &[$(Self::$port),*];

            /// The name in reports and in JSON.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$port => $name,)*
                }
            }
        }
    };
}

ports! {
    Issue "issue slots" "Four schedulers issue an instruction each per clock.";
    Fma "FMA" "FP32 sums and products: 128 results per clock.";
    Multiply "integer multiply" "IMAD and dot products, on half of the FMA unit: 64 results.";
    Alu "ALU" "Integer sums, shifts, logic, comparisons and selections: 64 results.";
    Special "special functions" "Reciprocals, roots, logarithms, sines: 16 results.";
    Bits "bit counts" "POPC and FLO: 16 results.";
    Convert "conversions" "Conversions between integers and floating point: 64 results.";
    Double "FP64" "Double-precision sums and products: 2 results.";
    Tensor "tensor cores" "Products of matrices: 2,048 of 8-bit integers, 1,024 of 16-bit floating point.";
    Shuffle "shuffles" "Exchange between lanes: 32 results.";
    Vote "votes" "Votes of a warp: 64 results.";
    Reduce "reductions" "Reductions over a warp: 16 results.";
    LoadStore "load/store" "One request per clock; 128 bytes of L1 or of the banks of shared memory per clock.";
}

/// What an execution by a warp occupies, besides an issue slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// The unit; [`Port::Issue`] if no other one is known.
    pub port: Port,
    /// Quarters of a clock during which the unit of one SM is occupied; 0 for [`Port::LoadStore`], where it depends on
    /// the addresses.
    pub quarters: u64,
}

impl Cost {
    /// The cost of the instruction `word`.
    pub fn of(word: u128) -> Self {
        let Ok(instruction) = sass::decode(word) else { return Self::results(Port::Issue, 128) };
        match instruction.op {
            Op::Fadd | Op::Fmul | Op::Ffma => Self::results(Port::Fma, 128),
            Op::Imad | Op::ImadWide | Op::ImadHi | Op::Idp => Self::results(Port::Multiply, 64),
            Op::Iadd3
            | Op::Lop3
            | Op::Shf
            | Op::Lea
            | Op::Imnmx
            | Op::Iabs
            | Op::Isetp
            | Op::Prmt
            | Op::Sel
            | Op::Fmnmx
            | Op::Fsel
            | Op::Fset
            | Op::Fsetp => Self::results(Port::Alu, 64),
            Op::Mufu => Self::results(Port::Special, 16),
            Op::Popc | Op::Flo => Self::results(Port::Bits, 16),
            Op::I2f | Op::F2i => Self::results(Port::Convert, 64),
            Op::Dadd | Op::Dmul | Op::Dfma => Self::results(Port::Double, 2),
            Op::Shfl => Self::results(Port::Shuffle, 32),
            Op::Vote => Self::results(Port::Vote, 64),
            Op::Redux => Self::results(Port::Reduce, 16),
            // 170 TOPS of 8-bit integers with a sparse A on 16 SMs at 1.3 GHz (technical brief of the AGX Orin): 2,048
            // dense products per SM and clock. Each other type has as many bits per clock, as in the A100's white
            // paper: B's 8 columns of 128 bits per register, times the rows of A.
            Op::Hmma | Op::Imma | Op::Bmma => instruction.fragment().map_or_else(
                || Self::results(Port::Issue, 128),
                |matrices| {
                    let dense = u64::from(matrices.rows) * u64::from(matrices.b) / 4;
                    let quarters = if instruction.is_sparse() { dense / 2 } else { dense };
                    Self { port: Port::Tensor, quarters }
                },
            ),
            op if super::class::access_of_op(op).is_some() => Self { port: Port::LoadStore, quarters: 0 },
            _ => Self::results(Port::Issue, 128),
        }
    }

    /// The cost of a warp's 32 results at a rate of `per_clock`.
    fn results(port: Port, per_clock: u64) -> Self {
        Self { port, quarters: 4 * 32 / per_clock }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instructions_occupy_their_unit() {
        let cost = |word| {
            let Cost { port, quarters } = Cost::of(word);
            (port, quarters)
        };
        // EXIT; MOV-like IMAD; not an instruction.
        assert_eq!(cost(0x000f_ea00_0380_0000_0000_0000_0000_794d), (Port::Issue, 1));
        assert_eq!(cost(0x0000_0000_078e_02ff_0000_0003_0000_7224), (Port::Multiply, 2));
        assert_eq!(cost(!0), (Port::Issue, 1));
        assert_eq!(Cost::results(Port::Double, 2).quarters, 64);
    }
}
