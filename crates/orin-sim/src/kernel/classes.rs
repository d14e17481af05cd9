//! Classes that ALLOC_OBJ_CTX accepts.

use crate::chip::CHIP;

/// Graphics classes of ga10b and of earlier chips (`hal/class/class_*.c`).
const GRAPHICS_CLASSES: [u32; 5] = [0xc797, 0xc597, 0xc397, 0xc097, 0xb197];
/// Compute classes of the same chips.
const COMPUTE_CLASSES: [u32; 5] = [CHIP.classes.value.compute.number, 0xc5c0, 0xc3c0, 0xc0c0, 0xb1c0];
/// All other classes that are accepted.
const OTHER_CLASSES: [u32; 14] = [
    0xc637, // Ampere.
    CHIP.classes.value.copy.number,
    CHIP.classes.value.channel.number,
    0xc46f,
    0xc5b5, // Turing.
    0xc3b5,
    0xc36f, // Volta.
    0xc0b5,
    0xc06f, // Pascal.
    0xa0b5,
    0xa140,
    0xb0b5,
    0xb06f,
    0x902d, // Maxwell and before.
];

/// Returns whether a class is a 3D graphics class.
pub(super) fn is_graphics(class: u32) -> bool {
    GRAPHICS_CLASSES.contains(&class)
}

/// Returns whether a class is a compute class.
pub(super) fn is_compute(class: u32) -> bool {
    COMPUTE_CLASSES.contains(&class)
}

/// Returns whether a class is accepted, but neither graphics nor compute.
pub(super) fn is_other(class: u32) -> bool {
    OTHER_CLASSES.contains(&class)
}
