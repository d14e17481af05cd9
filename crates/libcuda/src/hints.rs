//! Hints about managed memory: advice, prefetches, and questions about both.

use core::ffi::{c_int, c_void};

use orin_cuda_core::context::current;
use orin_cuda_core::hints::{Location, Topic};
use orin_cuda_core::{Context, Failure, Result, driver};

use crate::abi::{Address, Handle, In, Ordinal, Out};
use crate::call::{Order, api};
use crate::memory::known;
use crate::stream::stream_of;

/// CU_DEVICE_CPU.
const CPU: Ordinal = -1;
/// CU_DEVICE_INVALID.
const NO_DEVICE: Ordinal = -2;
/// CU_MEM_LOCATION_TYPE_DEVICE, _HOST, _HOST_NUMA_CURRENT.
const DEVICE: u32 = 1;
const HOST: u32 = 2;
const NEAREST_NODE: u32 = 4;

/// The place that a device's number means.
fn of_device(device: Ordinal) -> Location {
    if device == CPU { (HOST, 0) } else { (DEVICE, device) }
}

/// The place in a `CUmemLocation`, which is passed in a register.
fn of_word(word: u64) -> Location {
    // CAST: the halves.
    (word as u32, (word >> 32) as i32)
}

/// Refuses places that do not exist.
fn check(location: Location) -> Result<Location> {
    match location {
        (DEVICE, device) => driver()?.gpu(device).map(drop)?,
        (HOST..=NEAREST_NODE, _) => {}
        (kind, id) => return Err(Failure::invalid(format!("location {id} of type {kind}"))),
    }
    Ok(location)
}

/// Refuses ranges that are not inside managed memory.
fn check_range(context: &Context, address: Address, bytes: usize) -> Result<()> {
    let found = known(context, address)?;
    let fits = found.offset(address).checked_add(bytes as u64).is_some_and(|end| end <= found.bytes as u64);
    if !found.is_managed() || bytes == 0 || !fits {
        return Err(Failure::invalid(format!("{bytes} bytes at {address:#x} are no managed memory")));
    }
    Ok(())
}

fn advise(address: Address, bytes: usize, advice: u32, location: Location) -> Result<()> {
    let context = current()?;
    // CU_MEM_ADVISE_SET_READ_MOSTLY and its opposite, of the preferred location, of devices that access.
    let (topic, value) = match advice {
        1 => (Topic::ReadMostly, Some((DEVICE, 0))),
        2 => (Topic::ReadMostly, None),
        3 => (Topic::Preferred, Some(check(location)?)),
        4 => (Topic::Preferred, None),
        5 | 6 => {
            let (kind, id) = check(location)?;
            let device = if kind == DEVICE { id } else { CPU };
            (Topic::AccessedBy(device), (advice == 5).then_some((kind, id)))
        }
        _ => return Err(Failure::invalid(format!("there is no advice {advice}"))),
    };
    check_range(&context, address, bytes)?;
    context.gpu.memory.hints.set(address, bytes, topic, value);
    Ok(())
}

fn prefetch(order: Order, address: Address, bytes: usize, location: Location, stream: Handle) -> Result<()> {
    let (context, _) = stream_of(order, stream)?;
    check_range(&context, address, bytes)?;
    // Memory is coherent and does not move.
    context.gpu.memory.hints.set(address, bytes, Topic::Prefetch, Some(check(location)?));
    Ok(())
}

/// Where ranges are prefetched to: places, for each the first range that it is for, and their number.
type Targets = (In<u64>, In<usize>, usize);

/// Prefetches ranges, or only drops their contents, which may stay as well.
fn batch(
    order: Order,
    addresses: In<Address>,
    sizes: In<usize>,
    count: usize,
    targets: Option<Targets>,
    flags: u64,
    stream: Handle,
) -> Result<()> {
    let (context, _) = stream_of(order, stream)?;
    if flags != 0 || count == 0 {
        return Err(Failure::invalid(format!("flags {flags:#x} of a batch of {count} ranges")));
    }
    let ranges = addresses.each(count, "the addresses").zip(sizes.each(count, "the sizes"));
    let (mut known, mut used, mut target) = (Vec::new(), 0, None);
    for (at, (address, bytes)) in ranges.enumerate() {
        let (address, bytes) = (address?, bytes?);
        check_range(&context, address, bytes)?;
        let Some((places, starts, places_count)) = targets else { continue };
        if used < places_count && starts.at(used).read("the starts of places")? == at {
            target = Some(check(of_word(places.at(used).read("the places")?))?);
            used += 1;
        }
        known.push((address, bytes, target));
    }
    if targets.is_some_and(|(.., places_count)| used == 0 || used != places_count || known[0].2.is_none()) {
        return Err(Failure::invalid("the first range has no place, or a place no range"));
    }
    for (address, bytes, target) in known {
        context.gpu.memory.hints.set(address, bytes, Topic::Prefetch, target);
    }
    Ok(())
}

/// Answers a question about a range with numbers of 32 bits.
fn answer(
    context: &Context,
    data: Out<c_int>,
    room: usize,
    attribute: u32,
    address: Address,
    bytes: usize,
) -> Result<()> {
    let data = data.need("the place for the attribute")?;
    let of = |topic| context.gpu.memory.hints.get(address, bytes, topic);
    let device = |location: Option<Location>| match location {
        Some((DEVICE, device)) => device,
        Some(_) => CPU,
        None => NO_DEVICE,
    };
    // CAST: one of four.
    let kind = |location: Option<Location>| location.map_or(0, |(kind, _)| kind as c_int);
    let number = |location: Option<Location>| location.map_or(0, |(_, number)| number);
    let size = size_of::<c_int>();
    let fits = if attribute == 3 { room > 0 && room.is_multiple_of(size) } else { room == size };
    if !(1..=8).contains(&attribute) || !fits {
        return Err(Failure::invalid(format!("attribute {attribute} of a range in {room} bytes")));
    }
    data.set(match attribute {
        1 => of(Topic::ReadMostly).is_some().into(),
        2 => device(of(Topic::Preferred)),
        3 => {
            // CAST: a machine has few GPUs.
            let devices = (0..driver()?.gpus.len() as Ordinal).chain([CPU]);
            let mut named = devices.filter(|device| of(Topic::AccessedBy(*device)).is_some());
            (0..room / size).for_each(|index| data.at(index).set(named.next().unwrap_or(NO_DEVICE)));
            return Ok(());
        }
        4 => device(of(Topic::Prefetch)),
        5 => kind(of(Topic::Preferred)),
        6 => number(of(Topic::Preferred)),
        7 => kind(of(Topic::Prefetch)),
        _ => number(of(Topic::Prefetch)),
    });
    Ok(())
}

api! {
    advise_1(address: Address, bytes: usize, advice: u32, device: Ordinal) [cuMemAdvise Legacy] {
        advise(address, bytes, advice, of_device(device))
    }

    advise_2(address: Address, bytes: usize, advice: u32, location: u64) [cuMemAdvise_v2 Legacy] {
        advise(address, bytes, advice, of_word(location))
    }

    prefetch_1(order @ address: Address, bytes: usize, device: Ordinal, stream: Handle)
    [cuMemPrefetchAsync Legacy] [cuMemPrefetchAsync_ptsz PerThread] {
        prefetch(order, address, bytes, of_device(device), stream)
    }

    prefetch_2(order @ address: Address, bytes: usize, location: u64, flags: u32, stream: Handle)
    [cuMemPrefetchAsync_v2 Legacy] [cuMemPrefetchAsync_v2_ptsz PerThread] {
        if flags != 0 {
            return Err(Failure::invalid(format!("flags {flags:#x} of a prefetch")));
        }
        prefetch(order, address, bytes, of_word(location), stream)
    }

    prefetch_batch(
        order @ addresses: In<Address>,
        sizes: In<usize>,
        count: usize,
        places: In<u64>,
        starts: In<usize>,
        places_count: usize,
        flags: u64,
        stream: Handle,
    ) [cuMemPrefetchBatchAsync Legacy] [cuMemPrefetchBatchAsync_ptsz PerThread]
    [cuMemDiscardAndPrefetchBatchAsync Legacy] [cuMemDiscardAndPrefetchBatchAsync_ptsz PerThread] {
        batch(order, addresses, sizes, count, Some((places, starts, places_count)), flags, stream)
    }

    discard_batch(order @ addresses: In<Address>, sizes: In<usize>, count: usize, flags: u64, stream: Handle)
    [cuMemDiscardBatchAsync Legacy] [cuMemDiscardBatchAsync_ptsz PerThread] {
        batch(order, addresses, sizes, count, None, flags, stream)
    }

    range_attribute(data: Out<c_int>, room: usize, attribute: u32, address: Address, bytes: usize)
    [cuMemRangeGetAttribute Legacy] {
        data.need("the place for the attribute")?;
        let context = current()?;
        check_range(&context, address, bytes)?;
        answer(&context, data, room, attribute, address, bytes)
    }

    range_attributes(
        places: In<*mut c_void>,
        rooms: In<usize>,
        attributes: In<u32>,
        count: usize,
        address: Address,
        bytes: usize,
    ) [cuMemRangeGetAttributes Legacy] {
        if count == 0 {
            return Err(Failure::invalid("no attributes"));
        }
        let context = current()?;
        check_range(&context, address, bytes)?;
        let (places, rooms) = (places.each(count, "the places"), rooms.each(count, "the sizes"));
        for ((place, room), attribute) in places.zip(rooms).zip(attributes.each(count, "the attributes")) {
            answer(&context, Out::of(place?.cast()), room?, attribute?, address, bytes)?;
        }
        Ok(())
    }
}
