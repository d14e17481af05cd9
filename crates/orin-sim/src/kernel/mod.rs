//! The kernel half: device nodes, ioctls, objects, log.
