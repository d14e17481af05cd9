//! What the project's own programs share: the folder and the crates of the workspace.

pub mod workspace;
