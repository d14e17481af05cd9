//! Tests of the C library, through the functions that C programs call.

mod examples;
mod graphs;
mod handles;
mod header;
mod launches;
mod logs;
mod products;
mod programs;
mod support;
mod threads;
