//! The library as a C program uses it, on the software Orin.

use cuda as _;

mod client;
mod graph;
mod hints;
mod hostile;
mod ipc;
mod launch;
mod mapped;
mod pool;
mod support;
mod sweep;
mod table;
mod texture;
mod words;
