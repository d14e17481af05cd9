//! Parameters of the kernels: structs and codes that the host writes and the GPU reads.
//!
//! Each table below defines a Rust type, asserts the offset of every field, and writes the CUDA header that the sources
//! in `kernels` include, with the same assertions. After a change:
//! `UPDATE_HEADER=1 cargo test -p orin-infer headers`, then `cargo xtask kernels`.

mod gemm;
#[cfg(test)]
mod header;
mod llm;

pub(crate) use gemm::*;
pub(crate) use llm::*;

/// Defines structs, and with `$table` the declarations for the CUDA header. The CUDA type of a field is given as text
/// where it is not the Rust type's own.
macro_rules! gpu_structs {
    ($table:ident: $(
        $(#[doc = $doc:literal])+
        struct $name:ident, $size:literal bytes {
            $($(#[doc = $field_doc:literal])* $offset:literal => $field:ident: $type:ty $(as $cuda:literal)?;)+
        }
    )+) => {
        $(
            $(#[doc = $doc])+
            #[derive(Clone, Copy, Debug, Default, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
            #[repr(C)]
            pub(crate) struct $name {
                $($(#[doc = $field_doc])* pub(crate) $field: $type,)+
            }

            const _: () = {
                assert!(size_of::<$name>() == $size);
                $(assert!(core::mem::offset_of!($name, $field) == $offset);)+
            };
        )+

        #[cfg(test)]
        pub(super) const $table: &[super::header::Struct] = &[$(super::header::Struct {
            name: stringify!($name),
            doc: &[$($doc),+],
            size: $size,
            fields: &[$(super::header::Field {
                name: stringify!($field),
                doc: &[$($field_doc),*],
                offset: $offset,
                rust: stringify!($type),
                cuda: &[$($cuda)?],
            }),+],
        }),+];
    };
}
use gpu_structs;

/// Defines enums of codes, and the macros of the CUDA headers with the same values.
macro_rules! gpu_codes {
    ($(
        $(#[doc = $doc:literal])+
        enum $name:ident { $($(#[doc = $code_doc:literal])* $macro:literal => $code:ident = $value:literal;)+ }
    )+) => {
        $(
            $(#[doc = $doc])+
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            #[repr(u32)]
            pub(crate) enum $name {
                $($(#[doc = $code_doc])* $code = $value,)+
            }
        )+

        #[cfg(test)]
        const CODES: &[header::Codes] = &[$(header::Codes {
            doc: &[$($doc),+],
            codes: &[$(($macro, $value, &[$($code_doc),*])),+],
        }),+];
    };
}

gpu_codes! {
    /// How a vector becomes the input of a product.
    enum Prologue {
        "BEFORE_RMS_NORM" => RmsNorm = 0;
        "BEFORE_LAYER_NORM" => LayerNorm = 1;
        "BEFORE_NOTHING" => Nothing = 2;
        /// The product before has rounded it (`packed_output`).
        "BEFORE_PACKED" => Packed = 3;
    }

    /// What a product does with the sum of a row.
    enum Epilogue {
        "AFTER_STORE" => Store = 0;
        /// output[r] = other[r] + row r
        "AFTER_ADD" => Add = 1;
        /// output[r] = activation(row 2r) * row (2r + 1)
        "AFTER_PAIR" => Pair = 2;
        /// output[r] = activation(row r)
        "AFTER_ACTIVATE" => Activate = 3;
        /// output[r] = activation(other[r]) * row r
        "AFTER_GATE" => Gate = 4;
        /// output[r] = row r, and the largest sum of each block to `best`. Only for products of one vector.
        "AFTER_LOGITS" => Logits = 5;
    }

    /// The activation of a feed-forward network.
    enum ActivationCode {
        "ACTIVATION_SILU" => Silu = 0;
        "ACTIVATION_GELU" => Gelu = 1;
        /// With limits of gate and up. Only of experts.
        "ACTIVATION_CLAMPED_SILU" => ClampedSilu = 2;
    }

    /// The form of a product's vector: rounded, in units of 8 columns, as it is.
    enum HiddenForm {
        "HIDDEN_ROUNDED" => Rounded = 0;
        "HIDDEN_UNITS" => Units = 1;
        "HIDDEN_PLAIN" => Plain = 2;
    }

    /// Which columns of a head are rotated together.
    enum Rotation {
        "ROTATE_NOTHING" => Nothing = 0;
        /// 2 i and 2 i + 1.
        "ROTATE_NEIGHBOURS" => Neighbours = 1;
        /// i and i + half of the rotated columns.
        "ROTATE_HALVES" => Halves = 2;
    }
}
