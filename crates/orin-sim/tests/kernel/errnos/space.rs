//! Rows of address spaces.

use nvgpu_sys::Errno;
use nvgpu_sys::address_space::{self as space, AllocSpaceFlags, MapBufferFlags};
use nvgpu_sys::nvmap::{self, CreateHandle};

use super::{CLOSED, Outcome, UNKNOWN, foreign, foreign_number, read_only_page, send, send_at};
use crate::support::*;

pub(crate) fn space_node(condition: &str) -> Outcome {
    let bench = Bench::new();
    let space = bench.space();
    Ok(match condition {
        "type is not A" => send(&space, 0xc008_4705, &mut [0; 8]),
        "nr 0 or above 14" => {
            assert_eq!(send(&space, 0xc008_4100, &mut [0; 8]), Err(Errno::INVAL));
            send(&space, 0xc008_410f, &mut [0; 8])
        }
        "size above 40" => send(&space, 0xc029_4107, &mut [0; 41]),
        "nr 4, 9 or 10" => {
            assert_eq!(send(&space, 0xc008_4104, &mut [0; 8]), Err(Errno::NOTTY));
            assert_eq!(send(&space, 0xc020_4109, &mut [0; 32]), Err(Errno::NOTTY));
            send(&space, 0xc028_410a, &mut [0; 40])
        }
        "copy-out fails" => send_at(&space, space::code::UNMAP_BUFFER, read_only_page().expose_provenance()),
        _ => return Err(UNKNOWN),
    })
}

pub(crate) fn space_requests(ioctl: &str, condition: &str) -> Outcome {
    let bench = Bench::new();
    let space = bench.space();
    let fixed = AllocSpaceFlags::FIXED_OFFSET.bits();
    let page_size = |page_size| {
        let mut args = space::AllocSpace { pages: 1, page_size, ..Default::default() };
        space::ALLOC_SPACE.send(&space, &mut args)
    };
    let batch = |num_unmaps, num_maps| {
        let mut args =
            space::MapBufferBatch { unmaps: 8, maps: 8, num_unmaps, num_maps, ..Default::default() };
        // SAFETY: the software kernel checks every address before it uses it.
        unsafe { space::MAP_BUFFER_BATCH.send_pointing(&space, &mut args) }
    };
    let modify = |map_address, buffer_offset| {
        let mut args = space::MappingModify {
            compr_kind: space::KIND_INVALID,
            buffer_offset,
            buffer_size: 4096,
            map_address,
            ..Default::default()
        };
        space::MAPPING_MODIFY.send(&space, &mut args)
    };
    let reserved = |result: Result<u64, Errno>| result.map(|_| 0);
    Ok(match (ioctl, condition) {
        (_, "page_size 65536") => page_size(65_536),
        (_, "page_size 8192") => page_size(8192),
        (_, "pages 0") => reserved(reserve(&space, 0, 0, 0)),
        (_, "FIXED at an unaligned address") => reserved(reserve(&space, 1, fixed, LOGGED_START + 1)),
        (_, "FIXED below va_range_start") => reserved(reserve(&space, 1, fixed, LOGGED_START - 4096)),
        (_, "FIXED beyond va_range_end") => reserved(reserve(&space, 1, fixed, LOGGED_END)),
        (_, "larger than any free block") => reserved(reserve(&space, (1 << 27) + 1, 0, 0)),
        ("NVGPU_AS_IOCTL_ALLOC_SPACE", "unknown flag bits") => reserved(reserve(&space, 1, 0xfff0, 0)),
        ("NVGPU_AS_IOCTL_FREE_SPACE", "address not in any area") => {
            space::FREE_SPACE.send(&space, &mut space::FreeSpace { offset: 7, ..Default::default() })
        }
        ("NVGPU_AS_IOCTL_UNMAP_BUFFER", "unknown VA") => {
            space::UNMAP_BUFFER.send(&space, &mut space::UnmapBuffer { offset: 0x1234_5000 })
        }
        ("NVGPU_AS_IOCTL_UNMAP_BUFFER", "VA inside but not at start of a mapping (no effect)") => {
            let va = map(&space, &bench.buffer(8192)).unwrap();
            let result = space::UNMAP_BUFFER.send(&space, &mut space::UnmapBuffer { offset: va + 4096 });
            assert_eq!(bench.orin.live().gpu_mappings, 1);
            result
        }
        ("NVGPU_AS_IOCTL_GET_VA_REGIONS", "buf_addr unwritable") => {
            let mut args = space::GetVaRegions { buf_addr: 8, buf_size: 24, reserved: 0 };
            // SAFETY: the software kernel checks every address before it uses it.
            unsafe { space::GET_VA_REGIONS.send_pointing(&space, &mut args) }
        }
        (_, "num_maps 257") => batch(0, 257),
        (_, "num_unmaps 257") => batch(257, 0),
        (_, "unreadable array") => {
            assert_eq!(batch(1, 0), Err(Errno::FAULT));
            batch(0, 1)
        }
        (_, "no mapping at map_address") => modify(0x1000, 0),
        (_, "buffer_offset not page aligned") => {
            let va = map(&space, &bench.buffer(8192)).unwrap();
            assert_eq!(modify(va, 4096), Ok(0));
            modify(va, 8)
        }
        ("NVGPU_AS_IOCTL_REMAP", condition) => {
            let sparse = AllocSpaceFlags::SPARSE.bits();
            let page = reserve(&space, 16, sparse, 0).unwrap() / 4096;
            let buffer = bench.buffer(8192);
            let good = space::RemapOp {
                flags: space::RemapFlags::PAGESIZE_4K.bits(),
                compr_kind: space::KIND_INVALID,
                mem_handle: raw(&buffer),
                virt_offset_in_pages: page,
                num_pages: 2,
                ..Default::default()
            };
            let remap = |mut op: space::RemapOp| {
                let mut args = space::Remap { num_ops: 1, ..Default::default() };
                args.ops = core::ptr::from_mut(&mut op).expose_provenance() as u64;
                // SAFETY: the address is that of one live operation.
                let result = unsafe { space::REMAP.send_pointing(&space, &mut args) };
                assert_eq!(args.num_ops, u32::from(result.is_ok()));
                result
            };
            assert_eq!(remap(good), Ok(0));
            match condition {
                "num_ops 0" | "ops unreadable" => {
                    let num_ops = u32::from(condition != "num_ops 0");
                    let mut args = space::Remap { ops: 8, num_ops, padding: 0 };
                    // SAFETY: the software kernel checks every address before it uses it.
                    unsafe { space::REMAP.send_pointing(&space, &mut args) }
                }
                "no page size flag" => remap(space::RemapOp { flags: 0, ..good }),
                "num_pages 0" => remap(space::RemapOp { num_pages: 0, ..good }),
                "target not inside a SPARSE area" => {
                    let plain = reserve(&space, 16, 0, 0).unwrap() / 4096;
                    remap(space::RemapOp { virt_offset_in_pages: plain, ..good })
                }
                _ => return Err(UNKNOWN),
            }
        }
        _ => return Err(UNKNOWN),
    })
}

pub(crate) fn map_buffer(condition: &str) -> Outcome {
    let bench = Bench::new();
    let space = bench.space();
    let buffer = bench.buffer(16384);
    let area = reserve(&space, 16, 0, 0).unwrap();
    let plain = map_args(&buffer);
    let fixed =
        space::MapBufferEx { flags: MapBufferFlags::FIXED_OFFSET.bits(), offset: area, ..map_args(&buffer) };
    let file = foreign();
    let unallocated = bench.export(bench.create(4096));
    let (mut args, calls) = match condition {
        "dmabuf_fd not open" => (space::MapBufferEx { dmabuf_fd: CLOSED, ..plain }, 1),
        "dmabuf_fd not a dma-buf" => {
            let number = u32::try_from(foreign_number(&file)).unwrap();
            (space::MapBufferEx { dmabuf_fd: number, ..plain }, 1)
        }
        "not FIXED and offset nonzero" => (space::MapBufferEx { offset: 4096, ..plain }, 1),
        "not FIXED and mapping_size nonzero" => (space::MapBufferEx { mapping_size: 4096, ..plain }, 1),
        "FIXED and mapping_size above buffer size" => {
            (space::MapBufferEx { mapping_size: 16385, ..fixed }, 1)
        }
        "FIXED and buffer_offset + mapping_size above buffer size" => {
            (space::MapBufferEx { mapping_size: 8192, buffer_offset: 12288, ..fixed }, 1)
        }
        "access field 3" => (space::MapBufferEx { flags: 3 << space::ACCESS_SHIFT, ..plain }, 1),
        "TEGRA_RAW flag (bit 12)" => (space::MapBufferEx { flags: 1 << 12, ..plain }, 1),
        "flag bit 8 (old DIRECT_KIND_CTRL)" => (space::MapBufferEx { flags: 1 << 8, ..plain }, 1),
        "MAPPABLE_COMPBITS flag (warning only)" => (space::MapBufferEx { flags: 1 << 6, ..plain }, 1),
        "buffer without memory (nvmap ALLOC not done)" => {
            (space::MapBufferEx { dmabuf_fd: raw(&unallocated), ..plain }, 1)
        }
        "READ_WRITE access on a read-only dma-buf" => {
            let mut from = CreateHandle { size_or_fd: raw(&buffer), handle: 0 };
            nvmap::FROM_FD.send(&bench.nvmap, &mut from).unwrap();
            let mut twin = nvmap::DuplicateHandle {
                handle: from.handle,
                access_flags: nvmap::HandleFlags::READ_ONLY.bits(),
                dup_handle: 0,
            };
            nvmap::DUP_HANDLE.send(&bench.nvmap, &mut twin).unwrap();
            let twin = bench.export(twin.dup_handle);
            let mut args = space::MapBufferEx {
                dmabuf_fd: raw(&twin),
                flags: space::ACCESS_READ_WRITE << space::ACCESS_SHIFT,
                ..plain
            };
            return Ok(space::MAP_BUFFER_EX.send(&space, &mut args));
        }
        "FIXED, buffer_offset nonzero, mapping_size 0" => {
            (space::MapBufferEx { buffer_offset: 4096, ..fixed }, 1)
        }
        "FIXED address outside every ALLOC_SPACE area" => {
            (space::MapBufferEx { offset: area + 0x10_0000, ..fixed }, 1)
        }
        "FIXED mapping runs past the end of its area" => {
            (space::MapBufferEx { offset: area + 13 * 4096, ..fixed }, 1)
        }
        "FIXED same VA, same buffer, kind and flags: reused" => (fixed, 2),
        "both kinds -1" => (space::MapBufferEx { incompr_kind: space::KIND_INVALID, ..plain }, 1),
        "FIXED with buffer_offset not 4 KiB aligned" => {
            (space::MapBufferEx { buffer_offset: 8, mapping_size: 4096, ..fixed }, 1)
        }
        "page_size any value (ignored)" => (space::MapBufferEx { page_size: 12345, ..plain }, 1),
        _ => return Err(UNKNOWN),
    };
    let echoed = args.page_size;
    let mut result = Ok(0);
    for _ in 0..calls {
        result = space::MAP_BUFFER_EX.send(&space, &mut args);
    }
    assert_eq!(args.page_size, echoed);
    assert_eq!(bench.orin.live().gpu_mappings, usize::from(result.is_ok()));
    Ok(result)
}
