//! Addresses of the documentation.

/// The address of a page of `docs`, as a literal: an installed program's user has no checkout. It is that of the
/// repository in the calling crate's `Cargo.toml`.
///
/// ```
/// assert!(orin_cli::page!("check").ends_with("/blob/main/docs/check.md"));
/// ```
#[macro_export]
macro_rules! page {
    ($name:literal) => {
        concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/docs/", $name, ".md")
    };
}
