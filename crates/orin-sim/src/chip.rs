//! The modelled chip: ga10b, SM 8.7.

/// Its row of the chip table.
pub(crate) use gpu_hal::chip::SM_8_7 as CHIP;
