//! Tests of the parser on files of the toolkits, and on damaged ones.
//!
//! One program: linking one is faster than linking many.

mod fatbin;
mod hostile;
mod matrix;
mod real;
