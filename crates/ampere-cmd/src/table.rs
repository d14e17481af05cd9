//! The macros that expand a generated table into types, encoder, decoder and description.
//!
//! `class!` takes one engine class:
//!
//! ```text
//! class 0xc76f "AMPERE_CHANNEL_GPFIFO_B" "clc76f.h" partial false;
//! enums {
//!     TYPE "FIELD" "METHOD" { Variant "NAME" = value, ...; CONST "NAME" = Variant, }
//! }
//! methods {
//!     Type "NAME" offset count count-is-exact stride {
//!         field "NAME" hi lo: type ["VALUE NAME" = value] when "condition";
//!     }
//! }
//! ```
//!
//! and `qmd!` one version of the launch descriptor.
//!
//! The enums are not `#[non_exhaustive]`: the values of a hardware class do not change, every value without a name is
//! `Unknown`, and a GPU model relies on the compiler to find values that it does not handle.

macro_rules! class {
    (
        class $number:literal $class_name:literal $header:literal partial $partial:literal;
        enums { $(
            $enum:ident $enum_field:literal $enum_method:literal {
                $($variant:ident $variant_name:literal = $variant_value:literal,)+
                $(; $($alias:ident $alias_name:literal = $alias_target:ident,)+)?
            }
        )* }
        methods { $(
            $method:ident $method_name:literal $address:literal $count:literal $exact:literal $stride:literal { $(
                $field:ident $field_name:literal $hi:literal $lo:literal:
                    $type:ident $([$($value_name:literal = $value:literal),+])? $(when $when:literal)?;
            )+ }
        )* }
    ) => {
        use $crate::method::{Class, FieldInfo, FieldValue, Method, MethodInfo, pack};
        use $crate::error::FieldError;

        #[doc = concat!("Number of class `", $class_name, "` (`", $header, "`).")]
        pub const CLASS: u16 = $number;

        #[doc = concat!("All methods of class `", $class_name, "` (`", $header, "`).")]
        pub static CLASS_TABLE: Class = Class {
            number: CLASS,
            name: $class_name,
            header: $header,
            partial: $partial,
            methods: METHODS,
        };

        // A constant, not a static: the typed methods refer to its elements.
        const METHODS: &[MethodInfo] = &$crate::table::sorted!([$(*<$method as Method>::INFO),*], address);

        $(
            #[doc = concat!("Values of field `", $enum_field, "` of method `", $enum_method, "` (`", $header, "`).")]
            #[derive(Clone, Copy, Debug, PartialEq, Eq)]
            pub enum $enum {
                $(
                    #[doc = concat!("`", $variant_name, "` = ", $variant_value, ".")]
                    $variant,
                )+
                /// A value not named by the header.
                Unknown(u32),
            }

            $(impl $enum {
                $(
                    #[doc = concat!("`", $alias_name, "`, an alias of the same value.")]
                    pub const $alias: Self = Self::$alias_target;
                )+
            })?

            impl FieldValue for $enum {
                const VALUES: &'static [(&'static str, u32)] =
                    &[$(($variant_name, $variant_value),)+ $($(($alias_name, Self::$alias_target.bits()),)+)?];
                fn from_bits(bits: u32) -> Self {
                    match bits {
                        $($variant_value => Self::$variant,)+
                        other => Self::Unknown(other),
                    }
                }
                fn to_bits(self) -> u32 {
                    self.bits()
                }
            }

            impl $enum {
                /// The bits of the field, at bit 0.
                #[must_use]
                pub const fn bits(self) -> u32 {
                    match self {
                        $(Self::$variant => $variant_value,)+
                        Self::Unknown(bits) => bits,
                    }
                }
            }

            impl Default for $enum {
                fn default() -> Self {
                    Self::from_bits(0)
                }
            }
        )*

        $(
            #[doc = concat!("Method `", $method_name, "`, byte offset `", stringify!($address), "` (`", $header, "`).")]
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
            pub struct $method {
                $(
                    #[doc = concat!("`", $field_name, "`, bits ", $hi, ":", $lo, "." $(, " Only when ", $when, ".")?)]
                    pub $field: $type,
                )+
            }

            impl Method for $method {
                const INFO: &'static MethodInfo = &MethodInfo {
                    name: $method_name,
                    address: $address,
                    count: $count,
                    count_is_exact: $exact,
                    stride: $stride,
                    fields: &[$(FieldInfo {
                        name: $field_name,
                        hi: $hi,
                        lo: $lo,
                        values: $crate::table::class!(@values $type $([$(($value_name, $value)),+])?),
                        when: $crate::table::class!(@when $($when)?),
                    },)+],
                };
                const CLASS: u16 = $number;

                #[inline]
                fn encode(&self) -> Result<u32, FieldError> {
                    pack::<Self, _>([$(self.$field.to_bits()),+])
                }

                #[inline]
                fn decode(word: u32) -> Self {
                    let mut fields = Self::INFO.fields.iter().map(|field| field.get(word));
                    Self { $($field: FieldValue::from_bits(fields.next().unwrap_or_default())),+ }
                }
            }
        )*

        #[cfg(test)]
        mod tests {
            use super::*;
            use $crate::method::tests::{check_class, refuses_too_wide, round_trips};

            #[test]
            fn table_is_sound() {
                check_class(&CLASS_TABLE);
            }

            #[test]
            fn every_method_survives_a_round_trip() {
                $(round_trips::<$method>();)*
            }

            #[test]
            fn every_field_refuses_what_it_cannot_hold() {
                $($(
                    refuses_too_wide::<$method, $type>($field_name, |method, value| method.$field = value);
                )+)*
            }
        }
    };
    (@values $type:ident [$($pair:expr),+]) => { &[$($pair),+] };
    (@values $type:ident) => { <$type as FieldValue>::VALUES };
    (@when $when:literal) => { Some($when) };
    (@when) => { None };
}

macro_rules! qmd {
    (
        qmd $qmd:literal $major:literal $minor:literal $header:literal $words:literal words;
        fields { $(
            $field:ident $field_name:literal $hi:literal $lo:literal
                $($single:ident)? $([$count:literal by $stride:literal])?
                { $($value:ident $value_name:literal = $value_bits:literal,)* }
        )+ }
    ) => {
        use $crate::qmd::{Field, FieldArray, FieldInfo, Version};

        #[doc = concat!("Layout `", $qmd, "` of the launch descriptor (`", $header, "`).")]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct Layout;

        impl Version for Layout {
            type Words = [u32; $words];
            const ZERO: Self::Words = [0; $words];
            const NAME: &'static str = $qmd;
            const MAJOR: u32 = $major;
            const MINOR: u32 = $minor;
            const FIELDS: &'static [FieldInfo] = FIELDS;
            const NAMED: &'static [u32] = &$crate::qmd::named_bits::<$words>(FIELDS);
        }

        const FIELDS: &[FieldInfo] = &$crate::table::sorted!([$($field.info()),+], lo);

        $(
            #[doc = concat!(
                "`", $field_name, "`, bits ", $hi, ":", $lo
                $(, " plus ", $stride, " per element, ", $count, " elements")?, " (`", $header, "`)."
            )]
            pub const $field: $crate::table::qmd!(@type $($stride)?) = $crate::table::qmd!(
                @new $field_name $hi $lo &[$(($value_name, $value_bits)),*]; $($count $stride)?
            );
            $(
                #[doc = concat!("Value `", $value_name, "` of field `", $field_name, "` (`", $header, "`).")]
                pub const $value: u64 = $value_bits;
            )*
        )+
    };
    (@type $stride:literal) => { FieldArray<Layout> };
    (@type) => { Field<Layout> };
    (@new $name:literal $hi:literal $lo:literal $values:expr; $count:literal $stride:literal) => {
        FieldArray::new($name, $hi, $lo, $count, $stride, $values)
    };
    (@new $name:literal $hi:literal $lo:literal $values:expr;) => { Field::new($name, $hi, $lo, $values) };
}

/// The items in ascending order of a field. What classes have in common comes first in their lists.
macro_rules! sorted {
    ($items:expr, $key:ident) => {{
        let mut items = $items;
        let mut end = 1;
        while end < items.len() {
            let mut at = end;
            while at > 0 && items[at - 1].$key > items[at].$key {
                items.swap(at - 1, at);
                at -= 1;
            }
            end += 1;
        }
        items
    }};
}

pub(crate) use {class, qmd, sorted};
