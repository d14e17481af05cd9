//! What a texel consists of, and what a kernel gets of it.

use super::values;

values! {
    /// Bits of the components of a texel. The first component has the lowest bits.
    Components of "COMPONENTS" {
        /// Four of 32 bits.
        R32G32B32A32 = 0x01,
        /// Four of 16 bits.
        R16G16B16A16 = 0x03,
        /// Two of 32 bits.
        R32G32 = 0x04,
        /// Four of 8 bits.
        R8G8B8A8 = 0x08,
        /// Two of 16 bits.
        R16G16 = 0x0c,
        /// One of 32 bits.
        R32 = 0x0f,
        /// Two of 8 bits.
        R8G8 = 0x18,
        /// One of 16 bits.
        R16 = 0x1b,
        /// One of 8 bits.
        R8 = 0x1d,
    }
}

impl Components {
    /// Every format of texels.
    pub const ALL: [Self; 9] = [
        Self::R32G32B32A32,
        Self::R16G16B16A16,
        Self::R32G32,
        Self::R8G8B8A8,
        Self::R16G16,
        Self::R32,
        Self::R8G8,
        Self::R16,
        Self::R8,
    ];

    /// The format of `count` components of `bits` bits; `None` if there is none.
    ///
    /// ```
    /// use ampere_cmd::texture::Components;
    ///
    /// assert_eq!(Components::of(2, 16), Some(Components::R16G16));
    /// assert_eq!(Components::of(3, 16), None);
    /// ```
    #[must_use]
    pub fn of(count: u32, bits: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.count() == count && format.component_bits() == bits)
    }

    /// Number of components.
    #[must_use]
    pub const fn count(self) -> u32 {
        match self {
            Self::R32G32B32A32 | Self::R16G16B16A16 | Self::R8G8B8A8 => 4,
            Self::R32G32 | Self::R16G16 | Self::R8G8 => 2,
            Self::R32 | Self::R16 | Self::R8 => 1,
        }
    }

    /// Bits of a component.
    #[must_use]
    pub const fn component_bits(self) -> u32 {
        match self {
            Self::R32G32B32A32 | Self::R32G32 | Self::R32 => 32,
            Self::R16G16B16A16 | Self::R16G16 | Self::R16 => 16,
            Self::R8G8B8A8 | Self::R8G8 | Self::R8 => 8,
        }
    }

    /// Bytes of a texel.
    #[must_use]
    pub const fn bytes(self) -> u32 {
        self.count() * self.component_bits() / 8
    }
}

values! {
    /// What the bits of a component mean.
    Numbers of "R_DATA_TYPE" {
        /// A signed integer, divided by the largest one.
        Snorm = 1,
        /// An unsigned integer, divided by the largest one.
        Unorm = 2,
        /// A signed integer.
        Sint = 3,
        /// An unsigned integer.
        Uint = 4,
        /// A floating-point number.
        Float = 7,
    }
}

values! {
    /// What a kernel gets as one of the four components.
    Source of "X_SOURCE" {
        /// 0.
        Zero = 0,
        /// The first component.
        R = 2,
        /// The second component.
        G = 3,
        /// The third component.
        B = 4,
        /// The fourth component.
        A = 5,
        /// The integer 1.
        OneInt = 6,
        /// 1.0.
        OneFloat = 7,
    }
}

/// The format of the texels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// Components.
    pub components: Components,
    /// What they mean.
    pub numbers: Numbers,
    /// What a kernel gets.
    pub sources: [Source; 4],
    /// Whether the first three components are sRGB, which the GPU converts to linear numbers.
    pub srgb: bool,
}

impl Format {
    /// The format whose missing components are 0.
    #[must_use]
    pub const fn new(components: Components, numbers: Numbers) -> Self {
        let sources = match components.count() {
            1 => [Source::R, Source::Zero, Source::Zero, Source::Zero],
            2 => [Source::R, Source::G, Source::Zero, Source::Zero],
            _ => [Source::R, Source::G, Source::B, Source::A],
        };
        Self { components, numbers, sources, srgb: false }
    }

    /// Whether lookups return integers.
    #[must_use]
    pub const fn is_integer(self) -> bool {
        matches!(self.numbers, Numbers::Sint | Numbers::Uint)
    }
}
