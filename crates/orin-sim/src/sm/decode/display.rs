//! Text of decoded instructions.
