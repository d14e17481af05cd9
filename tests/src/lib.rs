//! Whole-stack test suites: see the `tests` folder beside this file.
