//! `cuLink*`.
