//! Benchmarks: see the `benches` folder beside this file.
