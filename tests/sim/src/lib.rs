//! Tests of `orin-sim` are a package of their own: without the optimisation that the interpreter needs, their
//! compilation takes a third of the time.
