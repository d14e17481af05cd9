//! Tests of `infer` are a package of their own, which is compiled without the optimisation that its arithmetic needs.
