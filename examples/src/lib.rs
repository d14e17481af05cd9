//! Example programs: see the files beside this folder.
