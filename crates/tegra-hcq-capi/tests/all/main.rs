//! Tests of the C library.

mod header;
