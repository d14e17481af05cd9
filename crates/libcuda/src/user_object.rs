//! User objects: data of the program that lives as long as the graphs that use it.

use core::ffi::c_void;
use std::sync::Arc;

use orin_cuda_core::{Failure, Result, UserObject, driver};

use crate::abi::{Handle, Out};
use crate::call::api;
use crate::stream::{HostFunction, graph_of, host_function};

fn user_object_of(handle: Handle) -> Result<Arc<UserObject>> {
    driver()?.objects.get::<UserObject>(handle)
}

/// A number of references; as CUDA's, at most `INT_MAX`.
fn references(count: u32) -> Result<u64> {
    let valid = (1..=i32::MAX.cast_unsigned()).contains(&count);
    if valid { Ok(count.into()) } else { Err(Failure::invalid(format!("{count} references"))) }
}

api! {
    create(place: Out<Handle>, data: *mut c_void, destroy: Option<HostFunction>, count: u32, flags: u32)
    [cuUserObjectCreate Legacy] {
        let place = place.need("the place for the user object")?;
        // CU_USER_OBJECT_NO_DESTRUCTOR_SYNC
        if flags != 1 {
            return Err(Failure::invalid(format!("flags {flags} of a user object; they are 1")));
        }
        let destroy = host_function(destroy, data)?.call;
        place.set(UserObject::create(references(count)?, destroy)?.handle());
        Ok(())
    }

    retain(object: Handle, count: u32) [cuUserObjectRetain Legacy] {
        user_object_of(object)?.retain(references(count)?)
    }

    release(object: Handle, count: u32) [cuUserObjectRelease Legacy] {
        user_object_of(object)?.release(references(count)?)
    }

    retain_in_graph(graph: Handle, object: Handle, count: u32, flags: u32) [cuGraphRetainUserObject Legacy] {
        let (graph, object, count) = (graph_of(graph)?, user_object_of(object)?, references(count)?);
        // CU_GRAPH_USER_OBJECT_MOVE: the graph gets references that the program has.
        match flags {
            0 => object.retain(count)?,
            1 => {}
            _ => return Err(Failure::invalid(format!("flags {flags}"))),
        }
        graph.users.lock().add(object, count);
        Ok(())
    }

    release_in_graph(graph: Handle, object: Handle, count: u32) [cuGraphReleaseUserObject Legacy] {
        let (graph, object, count) = (graph_of(graph)?, user_object_of(object)?, references(count)?);
        graph.users.lock().remove(&object, count)?;
        object.release(count)
    }
}
