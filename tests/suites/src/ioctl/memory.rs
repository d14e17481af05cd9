//! Buffers as CPU and GPU see them.

use std::time::Instant;

use nvmap::{Access, CacheMode};

use super::support::{Rig, is_user_range};
use test_harness::{Check, Context};

const MIB: u64 = 1 << 20;

pub(super) fn map_buffer(context: &Context) -> Check {
    let rig = Rig::new(context)?;
    let memory = rig.memory(4096, CacheMode::InnerCacheable, "test")?;
    context.note(format!("GPU address {}", memory.mapping.va()));
    assert!(is_user_range(memory.mapping.va(), memory.mapping.len()), "{}", memory.mapping.va());
    Ok(())
}

pub(super) fn read_write(context: &Context) -> Check {
    let nvmap = context.nvmap()?;
    let buffer = nvmap.buffer(4096).cache(CacheMode::WriteCombined).label("test").allocate()?;
    let check = |written: &[u8]| -> Check {
        let mut seen = vec![0; written.len()];
        buffer.copy_from_slice(0, written)?;
        buffer.copy_to_slice(0, &mut seen)?;
        match seen.iter().zip(written).position(|(seen, written)| seen != written) {
            Some(at) => Err(format!("byte {at} is {:#x}, expected {:#x}", seen[at], written[at]).into()),
            None => Ok(()),
        }
    };
    check(&(0..4096_u32).map(|at| at.to_le_bytes()[0]).collect::<Vec<_>>())?;
    check(&(0..1024_u32).step_by(4).flat_map(|at| (0xdead_beef ^ at).to_le_bytes()).collect::<Vec<_>>())?;
    check(&[0xaa; 4096])?;
    check(&[0; 4096])
}

pub(super) fn coherence(context: &Context) -> Check {
    let nvmap = context.nvmap()?;
    let dma_buf = nvmap.buffer(8192).cache(CacheMode::WriteCombined).label("test").allocate_unmapped()?;
    let (one, two) = (dma_buf.map(0, 8192, Access::ReadWrite)?, dma_buf.map(0, 8192, Access::ReadWrite)?);
    assert_ne!(one.pointer(), two.pointer(), "two mappings");
    let (first, second) = (one.view::<u32>(0, 2048)?, two.view::<u32>(0, 2048)?);
    first.set(0, 0xcafe_babe);
    assert_eq!(second.get(0), 0xcafe_babe, "the second mapping sees the first's store");
    second.set(1, 0x1234_5678);
    assert_eq!(first.get(1), 0x1234_5678, "the first mapping sees the second's store");

    let (first, second) = (one.view::<u8>(0, 8192)?, two.view::<u8>(0, 8192)?);
    for at in 0..256 {
        let (writer, byte) = if at % 2 == 0 { (&first, 0xaa) } else { (&second, 0x55) };
        writer.set(at, byte);
    }
    for at in 0..256 {
        let byte = if at % 2 == 0 { 0xaa } else { 0x55 };
        assert_eq!((first.get(at), second.get(at)), (byte, byte), "byte {at}");
    }
    for (at, byte) in (4094..=4098).zip([1, 2, 3, 4, 5]) {
        first.set(at, byte);
        assert_eq!(second.get(at), byte, "byte {at}, across the page boundary");
    }

    let written: Vec<u8> = (0..64).map(|at| at * 3 + 1).collect();
    let mut seen = vec![0; 64];
    dma_buf.write(1024, &written)?;
    dma_buf.read(1024, &mut seen)?;
    assert_eq!(seen, written, "READ returns what WRITE stored");
    assert_eq!(second.sub(1024, 64)?.to_vec(), written, "the mapping shows what WRITE stored");
    Ok(())
}

pub(super) fn sizes(context: &Context) -> Check {
    let rig = Rig::new(context)?;
    for bytes in [4096, 64 << 10, MIB, 16 * MIB, 64 * MIB] {
        let start = Instant::now();
        let memory = rig.memory(bytes, CacheMode::InnerCacheable, "test")?;
        let time = start.elapsed();
        let (va, size) = (memory.mapping.va(), memory.buffer.size());
        context.note(format!("{} KiB at {va} in {:.3} ms", bytes >> 10, time.as_secs_f64() * 1e3));
        assert!(size as u64 >= bytes && is_user_range(va, memory.mapping.len()), "{size} bytes at {va}");
        let last = usize::try_from(bytes)? - 4;
        let mut places = vec![0, 4096.min(last), last / 8 * 4, last];
        places.dedup();
        for at in &places {
            memory.buffer.write_u32(*at, 0xface_feed ^ u32::try_from(*at)?);
        }
        for at in &places {
            let (seen, written) = (memory.buffer.read_u32(*at), 0xface_feed ^ u32::try_from(*at)?);
            assert_eq!(seen, written, "word at {at} of {bytes}");
        }
    }
    Ok(())
}

pub(super) fn cache_modes(context: &Context) -> Check {
    let rig = Rig::new(context)?;
    for mode in
        [CacheMode::WriteCombined, CacheMode::Cacheable, CacheMode::InnerCacheable, CacheMode::Uncached]
    {
        let memory = rig.memory(MIB, mode, "test")?;
        let written: Vec<u32> = (0..memory.buffer.size() as u32 / 4).map(|at| at ^ 0x5a5a_0000).collect();
        let mut seen = vec![0; written.len()];
        let start = Instant::now();
        memory.buffer.copy_from_slice(0, &written)?;
        let write = start.elapsed();
        let start = Instant::now();
        memory.buffer.copy_to_slice(0, &mut seen)?;
        let read = start.elapsed();
        assert!(seen == written, "{mode:?}: the contents differ");
        let speed = |time: std::time::Duration| memory.buffer.size() as f64 / 1e6 / time.as_secs_f64();
        context.note(format!("{mode:?}: write {:.0} MB/s, read {:.0} MB/s", speed(write), speed(read)));
    }
    Ok(())
}
