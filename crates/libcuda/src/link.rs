//! Linking: several images become one cubin.

use core::ffi::{c_char, c_void};
use std::sync::Arc;

use orin_cuda_core::context::current;
use orin_cuda_core::{Code, Failure, Kind, Link, Result, driver};

use crate::abi::{Handle, In, Out, Text};
use crate::call::api;
use crate::jit::Jit;
use crate::module::file;

/// A link in progress, and where its logs go.
struct Job {
    link: Link,
    jit: Jit,
    handle: Handle,
}

impl Kind for Job {}

fn job_of(handle: Handle) -> Result<Arc<Job>> {
    driver()?.objects.get::<Job>(handle)
}

/// The number of CU_JIT_INPUT_NVVM: intermediate code, which is deprecated.
const NVVM: u32 = 5;

fn add(link: Handle, kind: u32, name: &str, data: impl FnOnce() -> Result<Vec<u8>>) -> Result<()> {
    let job = job_of(link)?;
    match kind {
        0..NVVM => {
            job.link.add(name.to_owned(), data()?);
            Ok(())
        }
        NVVM => Err(Failure::new(Code::NotSupported, "link-time optimisation")),
        _ => Err(Failure::invalid(format!("there is no kind of input {kind}"))),
    }
}

api! {
    create(count: u32, options: In<u32>, values: Out<*mut c_void>, place: Out<Handle>)
    [cuLinkCreate Legacy] [cuLinkCreate_v2 Legacy] {
        let place = place.need("the place for the link")?;
        let jit = Jit::read(count, options, values)?;
        current()?;
        let link = Link::new(jit.options.clone());
        place.set(driver()?.objects.insert(|handle| Ok(Job { link, jit, handle }))?.handle);
        Ok(())
    }

    add_data(
        link: Handle, kind: u32, data: In<u8>, size: usize, name: *const c_char,
        count: u32, options: In<u32>, values: Out<*mut c_void>,
    ) [cuLinkAddData Legacy] [cuLinkAddData_v2 Legacy] {
        Jit::read(count, options, values)?;
        let name = Text::of(name).unwrap_or("data");
        add(link, kind, name, || data.list(size, "the data"))
    }

    add_file(
        link: Handle, kind: u32, path: Text,
        count: u32, options: In<u32>, values: Out<*mut c_void>,
    ) [cuLinkAddFile Legacy] [cuLinkAddFile_v2 Legacy] {
        Jit::read(count, options, values)?;
        add(link, kind, path.get("the path")?, || file(path))
    }

    complete(link: Handle, cubin: Out<*const c_void>, size: Out<usize>) [cuLinkComplete Legacy] {
        let (cubin, size) = (cubin.need("the place for the cubin")?, size.need("the place for the size")?);
        let job = job_of(link)?;
        let result = job.link.complete(&*current()?);
        job.jit.report(result.as_ref().map(|(_, compiled)| compiled));
        let (bytes, _) = result?;
        cubin.set(bytes.as_ptr().cast());
        size.set(bytes.len());
        Ok(())
    }

    destroy(link: Handle) [cuLinkDestroy Legacy] {
        driver()?.objects.remove::<Job>(link).map(drop)
    }
}
