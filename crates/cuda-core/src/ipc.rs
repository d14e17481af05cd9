//! Memory and events of other processes.
//!
//! A handle names a process and one of its objects. Whoever opens it asks that process for a file of the object's
//! memory, over a Unix socket with an abstract name. A thread of the process answers from its first handle on: only
//! processes of the same user, and only for objects that it has made a handle of and that still exist.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::MemfdFlags;
use tegra_hcq::Device;

use crate::code::{Code, Failure, Result};
use crate::context::Context;
use crate::driver::{Gpu, driver};
use crate::event::Event;
use crate::exports::{Export as _, Place, Server, What, refused};
use crate::memory::{Allocation, Kind, Opened};
use crate::pool::{Home, Pool, Sharing};

pub use crate::exports::{Handle, Name};

/// A handle of the device memory that contains an address.
///
/// # Errors
///
/// [`Code::InvalidValue`] for other memory; [`Code::NotSupported`] if the driver has no file of it.
pub fn export_memory(context: &Context, address: u64) -> Result<Handle> {
    let found = context.gpu.memory.find(address).filter(|found| found.kind == Kind::Device);
    let found =
        found.ok_or_else(|| Failure::invalid(format!("{address:#x} is in no memory of cuMemAlloc")))?;
    // Refused here, not when another process opens it.
    found.place()?;
    let name = Server::get()?.export(What::Memory, found.id, Arc::<Allocation>::downgrade(&found));
    Ok(name.write(What::Memory, &context.gpu.name))
}

/// A handle of an event that was created for other processes.
///
/// # Errors
///
/// [`Code::InvalidHandle`] for other events.
pub fn export_event(context: &Context, event: &Arc<Event>) -> Result<Handle> {
    event.place()?;
    let name = Server::get()?.export(What::Event, event.handle(), Arc::<Event>::downgrade(event));
    Ok(name.write(What::Event, &context.gpu.name))
}

/// A file that names a pool whose memory other processes may import.
///
/// # Errors
///
/// [`Code::InvalidValue`] for other pools.
pub fn export_pool(pool: &Pool) -> Result<OwnedFd> {
    if pool.sharing != Sharing::Exported {
        return Err(Failure::invalid("the pool was not created for other processes"));
    }
    let server = Server::get()?;
    let name = Name { process: server.process, nonce: server.nonce, id: pool.handle() };
    let file = rustix::fs::memfd_create("cuda-pool", MemfdFlags::CLOEXEC).map_err(refused("memfd_create"))?;
    let bytes: Vec<_> =
        name.write(What::Pool, &pool.gpu.name).into_iter().flat_map(u64::to_le_bytes).collect();
    rustix::io::pwrite(&file, &bytes, 0).map_err(refused("pwrite"))?;
    Ok(file)
}

/// The pool of another process that a file of [`export_pool`] names.
///
/// # Errors
///
/// [`Code::InvalidValue`] if the file names none; otherwise as [`open_memory`].
pub fn import_pool(file: &OwnedFd) -> Result<Arc<Pool>> {
    let mut bytes = [0; size_of::<Handle>()];
    if rustix::io::pread(file, &mut bytes, 0) != Ok(bytes.len()) {
        return Err(Failure::invalid("the file names no pool"));
    }
    let word = |at: usize| u64::from_le_bytes(core::array::from_fn(|byte| bytes[8 * at + byte]));
    let handle = core::array::from_fn(word);
    let of = |gpu: &Gpu| Ok((Home::device(gpu), Name::read(&handle, What::Pool, &gpu.name)?));
    let [first, others @ ..] = &*driver()?.gpus else { return Err(Code::NoDevice.into()) };
    let found = others.iter().fold(of(first), |found, gpu| found.or_else(|_: Failure| of(gpu)));
    let (home, name) = found?;
    Pool::create(home, Sharing::Imported(name))
}

/// A handle of memory of a pool that was created for other processes, for [`import_pointer`].
///
/// # Errors
///
/// [`Code::InvalidValue`] for other memory; [`Code::NotSupported`] if the driver has no file of it.
pub fn export_pointer(address: u64) -> Result<Handle> {
    let driver = driver()?;
    let shared = driver.gpus.iter().find_map(|gpu| {
        let found = gpu.memory.find(address)?;
        let pool = driver.objects.get::<Pool>(found.pool).ok()?;
        (pool.sharing == Sharing::Exported).then_some((gpu, found))
    });
    let (gpu, found) = shared.ok_or_else(|| {
        Failure::invalid(format!("{address:#x} is in no memory of a pool for other processes"))
    })?;
    found.place()?;
    let name = Server::get()?.export(What::Memory, found.id, Arc::<Allocation>::downgrade(&found));
    Ok(name.write(What::Memory, &gpu.name))
}

/// Opens memory of a pool of another process. It belongs to no context. [`free_imported`] closes it.
///
/// # Errors
///
/// [`Code::InvalidValue`] if the memory is not of the pool's process; otherwise as [`open_memory`].
pub fn import_pointer(pool: &Pool, handle: &Handle) -> Result<Arc<Allocation>> {
    let name = Name::read(handle, What::Memory, &pool.gpu.name)?;
    match pool.sharing {
        Sharing::Imported(Name { process, nonce, .. }) if (process, nonce) == (name.process, name.nonce) => {
            open(pool.gpu, &pool.gpu.device()?, 0, handle, pool.handle())
        }
        _ => Err(Failure::invalid("the memory is of another process than the pool")),
    }
}

/// Closes memory of a pool of another process; `None` if none begins at the address.
///
/// # Errors
///
/// As [`close_memory`].
pub fn free_imported(context: &Context, address: u64) -> Option<Result<()>> {
    let found = context.gpu.memory.find(address)?;
    let is_pooled = found.kind == Kind::Imported && found.pool != 0 && found.base == address;
    is_pooled.then(|| close(context, address, true))
}

/// Opens memory of another process; once more, if the context has opened it already.
///
/// # Errors
///
/// [`Code::InvalidHandle`] if the handle is none of memory; [`Code::InvalidContext`] if this process has made it, or
/// opened it in another context; [`Code::PeerAccessUnsupported`] for memory of another GPU; [`Code::MapFailed`] if the
/// process has ended or freed the memory, or belongs to another user.
pub fn open_memory(context: &Context, handle: &Handle) -> Result<Arc<Allocation>> {
    open(context.gpu, &context.device, context.handle, handle, 0)
}

/// Opens memory of another process for a context, of a pool if there is one.
fn open(gpu: &Gpu, device: &Device, context: u64, handle: &Handle, pool: u64) -> Result<Arc<Allocation>> {
    let name = Name::read(handle, What::Memory, &gpu.name)?;
    let memory = &gpu.memory;
    let mut opened = memory.imports.0.lock();
    if let Some(opened) = opened.iter_mut().find(|opened| opened.name == name) {
        if opened.allocation.context != context {
            return Err(Failure::new(Code::InvalidContext, "another context has opened the memory"));
        }
        opened.times += 1;
        return Ok(Arc::clone(&opened.allocation));
    }
    let Place { file, offset, bytes } = name.fetch(What::Memory)?;
    let end = offset.checked_add(bytes).ok_or(Code::MapFailed)?;
    let buffer = device.import_file::<u8>(&file, offset..end);
    let buffer = buffer.map_err(|error| Failure::new(Code::MapFailed, error.to_string()))?;
    let allocation = memory.enter_imported(context, buffer, pool);
    opened.push(Opened { name, allocation: Arc::clone(&allocation), times: 1 });
    Ok(allocation)
}

/// Closes memory of another process, after the work of the context. The last of as many calls as have opened it ends
/// the mapping.
///
/// # Errors
///
/// [`Code::InvalidValue`] if no such memory begins at the address; the fault of the context's work.
pub fn close_memory(context: &Context, address: u64) -> Result<()> {
    close(context, address, false)
}

fn close(context: &Context, address: u64, pooled: bool) -> Result<()> {
    let mut opened = context.gpu.memory.imports.0.lock();
    let is_meant = |allocation: &Allocation| allocation.base == address && (allocation.pool != 0) == pooled;
    let at = opened.iter().position(|opened| is_meant(&opened.allocation));
    let at =
        at.ok_or_else(|| Failure::invalid(format!("no memory of another process begins at {address:#x}")))?;
    opened[at].times -= 1;
    if opened[at].times > 0 {
        return Ok(());
    }
    let closed = opened.swap_remove(at);
    drop(opened);
    let ended = context.settle();
    context.gpu.memory.leave(&closed.allocation);
    ended
}

/// Opens an event of another process.
///
/// # Errors
///
/// As [`open_memory`].
pub fn open_event(context: &Context, handle: &Handle) -> Result<Arc<Event>> {
    driver()?;
    let place = Name::read(handle, What::Event, &context.gpu.name)?.fetch(What::Event)?;
    Event::open(context, place.file)
}
