//! Whole pushbuffers and a launch descriptor, word by word, and their text.

use ampere_cmd::command::{
    BlockSurface, CopyRelease, CopySide, Fill, LinearCopy, Pattern, Payload, PcasAction, SemaphoreReduction,
    SemaphoreRelease, SurfaceCopy,
};
use ampere_cmd::copy_c7b5::{self, LaunchDma, LineCount, LineLengthIn};
use ampere_cmd::dump::{self, Classes};
use ampere_cmd::gpfifo::{Entry, Segment};
use ampere_cmd::host_c76f::{MemOpCMembarType, SemExecuteReduction, WfiScope};
use ampere_cmd::pushbuffer::Header;
use ampere_cmd::qmd::{self, QmdV3_0, QmdV4_0, v3_0, v4_0};
use ampere_cmd::{Encoder, Error, Subchannel, Target, compute_c7c0};

fn encoded(write: impl FnOnce(&mut Encoder<Vec<u32>>) -> Result<(), Error>) -> Vec<u32> {
    let mut encoder = Encoder::new(Vec::new());
    write(&mut encoder).unwrap();
    encoder.into_sink()
}

fn compute_setup() -> Vec<u32> {
    encoded(|encoder| {
        encoder.set_object(Subchannel::COMPUTE, compute_c7c0::CLASS.into())?;
        encoder.shader_shared_memory_window(0x7294_0000_0000)?;
        encoder.shader_local_memory_window(0x7293_0000_0000)?;
        encoder.shader_local_memory(0x20_0000_0000)?;
        encoder.shader_local_memory_size(0x4_8000, 0xff)?;
        encoder.semaphore_release(&SemaphoreRelease {
            va: 0x12_0000_0000,
            payload: Payload::Bits64(1),
            wait_for_idle: true,
            timestamp: true,
        })?;
        encoder.non_stall_interrupt()
    })
}

#[test]
fn setting_up_compute() {
    let words = compute_setup();
    #[rustfmt::skip]
    assert_eq!(words, [
        0x2001_2000, 0xc7c0,
        0x2002_20a8, 0x7294, 0,
        0x2002_21ec, 0x7293, 0,
        0x2002_21e4, 0x20, 0,
        0x2003_20b9, 0, 0x4_8000, 0xff,
        0x2005_0017, 0, 0x12, 1, 0, 0x0310_0001,
        0x8000_0008,
    ]);
    let entry = Entry::from(Segment::new(0x14_0000_0000, words.len() as u32));
    assert_eq!(entry.encode(), Ok(0x0000_5814_0000_0000));
    insta::assert_snapshot!(dump::pushbuffer(&words, &Classes::AMPERE));
}

fn copy_with_release() -> Vec<u32> {
    let pitch = LaunchDma {
        data_transfer_type: copy_c7b5::LaunchDmaDataTransferType::NonPipelined,
        flush_enable: true,
        semaphore_type: copy_c7b5::LaunchDmaSemaphoreType::RELEASE_FOUR_WORD_SEMAPHORE,
        src_memory_layout: copy_c7b5::LaunchDmaSrcMemoryLayout::Pitch,
        dst_memory_layout: copy_c7b5::LaunchDmaDstMemoryLayout::Pitch,
        ..LaunchDma::default()
    };
    encoded(|encoder| {
        encoder.set_object(Subchannel::COPY, copy_c7b5::CLASS.into())?;
        let offsets = (
            copy_c7b5::OffsetInUpper { upper: 0x10 },
            copy_c7b5::OffsetInLower { value: 0 },
            copy_c7b5::OffsetOutUpper { upper: 0x20 },
            copy_c7b5::OffsetOutLower { value: 0 },
        );
        encoder.sequence(Subchannel::COPY, &offsets)?;
        encoder.sequence(Subchannel::COPY, &(LineLengthIn { value: 256 }, LineCount { value: 1 }))?;
        let semaphore = (
            copy_c7b5::SetSemaphoreA { upper: 0x12 },
            copy_c7b5::SetSemaphoreB { lower: 0x10 },
            copy_c7b5::SetSemaphorePayload { payload: 2 },
        );
        encoder.sequence(Subchannel::COPY, &semaphore)?;
        encoder.method(Subchannel::COPY, &pitch)
    })
}

#[test]
fn copying_with_a_release() {
    let words = copy_with_release();
    #[rustfmt::skip]
    assert_eq!(words, [
        0x2001_8000, 0xc7b5,
        0x2004_8100, 0x10, 0, 0x20, 0,
        0x2002_8106, 0x100, 1,
        0x2003_8090, 0x12, 0x10, 2,
        0x2001_80c0, 0x196,
    ]);
    let entry = Entry::from(Segment::new(0x14_0000_1000, words.len() as u32));
    assert_eq!(entry.encode(), Ok(0x0000_4014_0000_1000));
    let immediate = encoded(|encoder| encoder.immediate(Subchannel::COPY, 0x300, 0x196));
    assert_eq!(immediate, [0x8196_80c0]);
    insta::assert_snapshot!(dump::pushbuffer(&words, &Classes::AMPERE));
}

#[test]
fn copying_lines() {
    let copy = SurfaceCopy {
        source: CopySide::Pitch { va: 0x10_0000_0000, pitch: 512 },
        destination: CopySide::Pitch { va: 0x20_0000_0000, pitch: 1024 },
        line_bytes: 320,
        lines: 64,
    };
    let words = encoded(|encoder| encoder.surface_copy(&copy));
    assert_eq!(words, [0x2008_8100, 0x10, 0, 0x20, 0, 0x200, 0x400, 0x140, 0x40, 0x2001_80c0, 0x382]);
    let blocks = |va, x| {
        CopySide::Blocks(BlockSurface { va, block_height_log2: 4, width: 1920, height: 1080, x, y: 7 })
    };
    let sizes = [0x1040, 1920, 1080, 1, 0];
    let words =
        encoded(|encoder| encoder.surface_copy(&SurfaceCopy { source: blocks(0x10_0000_0000, 64), ..copy }));
    assert_eq!(words[..9], [0x2008_8100, 0x10, 0, 0x20, 0, 0, 0x400, 0x140, 0x40]);
    assert_eq!(words[9..15], [&[0x2005_81ca], &sizes[..]].concat());
    assert_eq!(words[15..], [0x2002_81d1, 64, 7, 0x2001_80c0, 0x302]);
    let words = encoded(|encoder| {
        encoder.surface_copy(&SurfaceCopy { destination: blocks(0x20_0000_0000, 65), ..copy })
    });
    assert_eq!(words[9..15], [&[0x2005_81c3], &sizes[..]].concat());
    assert_eq!(words[15..], [0x2002_81d3, 65, 7, 0x2001_80c0, 0x282]);
    let words = encoded(|encoder| {
        encoder.surface_copy(&SurfaceCopy { source: blocks(0, 0), destination: blocks(0, 0), ..copy })
    });
    assert_eq!((words.len(), words[28]), (29, 0x202));
}

#[test]
fn filling() {
    let fill = |pattern| {
        encoded(|encoder| encoder.fill(&Fill { destination: 0x20_0000_0000, pattern, count: 1024 }))
    };
    let rest = [0x2002_8102, 0x20, 0, 0x2001_8106, 0x400, 0x2001_80c0, 0x582];
    let words = fill(Pattern::Bits32(0xdead_beef));
    assert_eq!(words[..3], [0x2002_81c1, 0xdead_beef, 0x0003_0005]);
    assert_eq!(words[3..], rest);
    let words = fill(Pattern::Bits8(0xab));
    assert_eq!(words[..3], [0x2002_81c1, 0xab, 5]);
    assert_eq!(words[3..], rest);
    let words = fill(Pattern::Bits16(0xabcd));
    assert_eq!(words[..3], [0x2002_81c1, 0xabcd, 0x0001_0005]);
    assert_eq!(words[3..], rest);
    let words = fill(Pattern::Bits64(0x1122_3344_5566_7788));
    assert_eq!(words[..4], [0x2003_81c0, 0x5566_7788, 0x1122_3344, 0x0103_0054]);
    assert_eq!(words[4..], rest);
}

#[test]
fn uploading_inline() {
    let data = [0x1111_1111, 0x2222_2222, 0x3333_3333, 0x4444_4444];
    let words = encoded(|encoder| encoder.inline_upload(0x20_0000_0000, &data));
    assert_eq!(words[..7], [0x2004_2060, 0x10, 1, 0x20, 0, 0xa005_206c, 0x11]);
    assert_eq!(words[7..], data);
}

#[test]
fn barriers_and_reductions() {
    let words = encoded(|encoder| {
        encoder.wait_for_idle(WfiScope::CURRENT_VEID)?;
        encoder.memory_barrier(MemOpCMembarType::SysMembar)
    });
    assert_eq!(words, [0x8000_001e, 0x2004_000a, 0, 0, 0, 0x2800_0000]);
    let add = SemaphoreReduction {
        va: 0x1000,
        payload: Payload::Bits32(5),
        operation: SemExecuteReduction::Iadd,
        signed: false,
        wait_for_idle: false,
    };
    let words = encoded(|encoder| encoder.semaphore_reduction(&add));
    assert_eq!(words, [0x2005_0017, 0x1000, 0, 5, 0, 0xa800_0006]);
}

fn launch_descriptor() -> QmdV3_0 {
    let mut qmd = QmdV3_0::new();
    let program = 0x12_0000_0080u64;
    let buffer = 0x15_0000_0000u64;
    let release = 0x12_0000_0020u64;
    let shared = 1024;
    let mut set = |field, value: u64| qmd.set(field, value).unwrap();
    set(v3_0::QMD_MAJOR_VERSION, 3);
    set(v3_0::QMD_GROUP_ID, 0x3f);
    set(v3_0::SM_GLOBAL_CACHING_ENABLE, 1);
    set(v3_0::INVALIDATE_TEXTURE_HEADER_CACHE, v3_0::INVALIDATE_TEXTURE_HEADER_CACHE_TRUE);
    set(v3_0::INVALIDATE_TEXTURE_SAMPLER_CACHE, 1);
    set(v3_0::INVALIDATE_TEXTURE_DATA_CACHE, 1);
    set(v3_0::INVALIDATE_SHADER_DATA_CACHE, 1);
    set(v3_0::API_VISIBLE_CALL_LIMIT, v3_0::API_VISIBLE_CALL_LIMIT_NO_CHECK);
    set(v3_0::SAMPLER_INDEX, v3_0::SAMPLER_INDEX_VIA_HEADER_INDEX);
    set(v3_0::CWD_MEMBAR_TYPE, v3_0::CWD_MEMBAR_TYPE_L1_SYSMEMBAR);
    set(v3_0::CTA_RASTER_WIDTH, 4);
    set(v3_0::CTA_RASTER_HEIGHT, 2);
    set(v3_0::CTA_RASTER_DEPTH, 1);
    set(v3_0::CTA_THREAD_DIMENSION0, 64);
    set(v3_0::CTA_THREAD_DIMENSION1, 1);
    set(v3_0::CTA_THREAD_DIMENSION2, 1);
    set(v3_0::REGISTER_COUNT_V, 32);
    set(v3_0::BARRIER_COUNT, 1);
    set(v3_0::SHARED_MEMORY_SIZE, shared);
    let config = |kib| u64::from(qmd::shared_memory_config(kib).unwrap());
    set(v3_0::MIN_SM_CONFIG_SHARED_MEM_SIZE, config(8));
    set(v3_0::TARGET_SM_CONFIG_SHARED_MEM_SIZE, config(32));
    set(v3_0::MAX_SM_CONFIG_SHARED_MEM_SIZE, config(164));
    set(v3_0::SHADER_LOCAL_MEMORY_HIGH_SIZE, 0x240);
    set(v3_0::PROGRAM_ADDRESS_LOWER, program & 0xffff_ffff);
    set(v3_0::PROGRAM_ADDRESS_UPPER, program >> 32);
    set(v3_0::PROGRAM_PREFETCH_ADDR_LOWER_SHIFTED, program >> 8 & 0xffff_ffff);
    set(v3_0::PROGRAM_PREFETCH_ADDR_UPPER_SHIFTED, program >> 40);
    set(v3_0::PROGRAM_PREFETCH_SIZE, 4);
    set(v3_0::SASS_VERSION, 0x87);
    set(v3_0::CONSTANT_BUFFER_VALID.at(0).unwrap(), 1);
    set(v3_0::CONSTANT_BUFFER_INVALIDATE.at(0).unwrap(), 1);
    set(v3_0::CONSTANT_BUFFER_ADDR_LOWER.at(0).unwrap(), buffer & 0xffff_ffff);
    set(v3_0::CONSTANT_BUFFER_ADDR_UPPER.at(0).unwrap(), buffer >> 32);
    set(v3_0::CONSTANT_BUFFER_SIZE_SHIFTED4.at(0).unwrap(), 0x170 >> 4);
    set(v3_0::RELEASE0_ENABLE, 1);
    set(v3_0::RELEASE0_ADDRESS_LOWER, release & 0xffff_ffff);
    set(v3_0::RELEASE0_ADDRESS_UPPER, release >> 32);
    set(v3_0::RELEASE0_MEMBAR_TYPE, v3_0::RELEASE0_MEMBAR_TYPE_FE_SYSMEMBAR);
    set(v3_0::RELEASE0_PAYLOAD64B, 1);
    set(v3_0::RELEASE0_PAYLOAD_LOWER, 3);
    qmd
}

#[test]
fn describing_a_launch() {
    let qmd = launch_descriptor();
    let words: Vec<(usize, u32)> =
        qmd.as_words().iter().copied().enumerate().filter(|(_, word)| *word != 0).collect();
    let expected = [
        (4, 0x0000_007f),
        (5, 0x3c00_0000),
        (8, 0x1200_0000),
        (11, 0x4401_0000),
        (12, 0x0000_0004),
        (13, 0x0000_0002),
        (14, 0x0000_0001),
        (17, 0x540c_0400),
        (18, 0x0040_0030),
        (19, 0x0001_0001),
        (20, 0x0012_2001),
        (23, 0x0800_0000),
        (24, 0x0000_0020),
        (25, 0x2088_0012),
        (26, 0x0000_0003),
        (33, 0x00bc_0015),
        (48, 0x0000_0080),
        (49, 0x0000_0012),
        (50, 0x0000_0240),
        (51, 0x8700_0800),
    ];
    assert_eq!(words, expected);
    insta::assert_snapshot!(dump::qmd(qmd.as_words()).unwrap());
}

#[test]
fn launching() {
    let words = encoded(|encoder| {
        encoder.invalidate_shader_caches_no_wfi()?;
        encoder.launch(0x15_0000_0200, PcasAction::PrefetchSchedule)
    });
    assert_eq!(words, [0x2001_25a6, 0x1011, 0x2001_20ad, 0x1500_0002, 0x2001_20b0, 9]);
    let short = encoded(|encoder| {
        encoder.immediate(Subchannel::COMPUTE, 0x1698, 0x1011)?;
        encoder.methods(Subchannel::COMPUTE, 0x2b4, &[0x1500_0002])?;
        encoder.immediate(Subchannel::COMPUTE, 0x2c0, PcasAction::InvalidateCopySchedule.bits())
    });
    assert_eq!(short, [0x9011_25a6, 0x2001_20ad, 0x1500_0002, 0x8003_20b0]);
    insta::assert_snapshot!(dump::pushbuffer(&[words, short].concat(), &Classes::AMPERE));
}

#[test]
fn text_of_everything_else() {
    let mut words = encoded(|encoder| {
        encoder.header(Header::Nop)?;
        encoder.set_object(Subchannel::INLINE_TO_MEMORY, compute_c7c0::CLASS.into())?;
        encoder.increment_once(Subchannel::INLINE_TO_MEMORY, 0x1b0, &[0x11, 1, 2])?;
        encoder.non_incrementing(Subchannel::HOST, 0x8, &[0, 0])?;
        encoder.methods(Subchannel::THREE_D, 0x100, &[7])?;
        encoder.methods(Subchannel::COMPUTE, 0x320, &[1, 2])?;
        encoder.methods(Subchannel::HOST, 0x28, &[1, 0, 1, 0x2800_0000])?;
        encoder.methods(Subchannel::HOST, 0x78, &[0xff])?;
        encoder.header(Header::SetSubdeviceMask(2))?;
        encoder.methods(Subchannel::HOST, 0x20, &[0])?;
        encoder.header(Header::StoreSubdeviceMask(1))?;
        encoder.header(Header::UseSubdeviceMask)
    });
    words.extend([0xc000_0000, 0xe000_0000, 0xffff_ffff]);
    insta::assert_snapshot!(dump::pushbuffer(&words, &Classes::AMPERE));
}

#[test]
fn text_of_ring_entries() {
    let text = |entry| Entry::decode(entry).unwrap().to_string();
    assert_eq!(text(0x0000_5814_0000_0000), "segment 0x1400000000, 22 words");
    assert_eq!(text(0x8000_1aff_ffa0_1001), "segment 0xffffa01000, 6 words, subroutine, conditional, sync");
    assert_eq!(text(0x8000_0002_0000_00ff), "control GpCrc(ff), sync");
}

#[test]
fn text_of_hopper() {
    let mut qmd = QmdV4_0::new();
    qmd.set(v4_0::QMD_MAJOR_VERSION, 4u32).unwrap();
    qmd.set(v4_0::QMD_TYPE, v4_0::QMD_TYPE_GRID_CTA).unwrap();
    qmd.set(v4_0::GRID_WIDTH, 7u32).unwrap();
    qmd.set(v4_0::CONSTANT_BUFFER_VALID.at(7).unwrap(), true).unwrap();
    let mut words = qmd.as_words().to_vec();
    words[33] |= 0xffff_0000;
    insta::assert_snapshot!(dump::qmd(&words).unwrap());
    // A length that does not go with the version.
    assert_eq!(dump::qmd(&words[..64]), None);
    assert_eq!(dump::qmd(&[0; 64]), None);

    let mut encoder = Encoder::for_target(Vec::new(), Target::Hopper);
    let release =
        SemaphoreRelease { va: 1 << 56, payload: Payload::Bits64(1), wait_for_idle: false, timestamp: false };
    encoder.semaphore_release(&release).unwrap();
    encoder.non_stall_interrupt().unwrap();
    insta::assert_snapshot!(dump::pushbuffer(&encoder.into_sink(), &Classes::HOPPER));
}

fn misaligned<T>(what: &'static str, va: u64, alignment: u64) -> Result<T, Error> {
    Err(Error::Misaligned { what, va, alignment })
}

fn too_high<T>(what: &'static str, va: u64, bits: u32) -> Result<T, Error> {
    Err(Error::AddressTooHigh { what, va, bits })
}

#[test]
fn a_release_returns_the_position_of_its_payload() {
    let mut encoder = Encoder::new(Vec::new());
    for value in [0x1122_3344_5566_7788_u64, u64::MAX, 0] {
        let before = encoder.sink().len();
        let release = SemaphoreRelease {
            va: 0x12_0000_0000,
            payload: Payload::Bits64(value),
            wait_for_idle: true,
            timestamp: true,
        };
        let at = encoder.semaphore_release(&release).unwrap();
        let words = encoder.sink();
        assert!((before..words.len() - 1).contains(&at));
        assert_eq!(u64::from(words[at]) | u64::from(words[at + 1]) << 32, value);
    }
}

#[test]
fn addresses_and_lengths_that_no_field_holds_are_refused() {
    let mut encoder = Encoder::new(Vec::new());
    let release = |va, payload, timestamp| SemaphoreRelease { va, payload, wait_for_idle: false, timestamp };
    let (short, long) = (Payload::Bits32(1), Payload::Bits64(1));
    assert_eq!(encoder.semaphore_release(&release(2, short, false)), misaligned("semaphore", 2, 4));
    assert_eq!(encoder.semaphore_release(&release(4, long, false)), misaligned("semaphore", 4, 8));
    assert_eq!(encoder.semaphore_release(&release(8, long, true)), misaligned("semaphore", 8, 16));
    assert_eq!(
        encoder.semaphore_release(&release(1 << 40, short, false)),
        too_high("semaphore", 1 << 40, 40)
    );
    let launch = |encoder: &mut Encoder<Vec<u32>>, va| encoder.launch(va, PcasAction::Schedule);
    assert_eq!(launch(&mut encoder, 0x80), misaligned("launch descriptor", 0x80, 256));
    assert_eq!(launch(&mut encoder, 1 << 40), too_high("launch descriptor", 1 << 40, 40));
    assert_eq!(encoder.shader_local_memory_window(1 << 49), too_high("local-memory window", 1 << 49, 49));
    assert_eq!(encoder.shader_shared_memory_window(1 << 49), too_high("shared-memory window", 1 << 49, 49));
    assert_eq!(encoder.shader_local_memory(1 << 49), too_high("local memory", 1 << 49, 49));
    assert!(encoder.shader_local_memory_size(1 << 40, 1).is_err());
    assert!(encoder.shader_local_memory_size(1, 512).is_err());
    assert!(encoder.set_object(Subchannel::COMPUTE, 0x1_0000).is_err());
    let copy = |source, destination, bytes| LinearCopy { source, destination, bytes };
    assert!(encoder.linear_copy(&copy(0, 0x1000, 0)).is_err());
    let last = (1 << 49) - 1;
    assert_eq!(encoder.linear_copy(&copy(last, 0, 2)), too_high("copy source", last, 49));
    assert_eq!(encoder.linear_copy(&copy(0, last, 2)), too_high("copy destination", last, 49));
    let pitch = |pitch| CopySide::Pitch { va: 0, pitch };
    let lines =
        SurfaceCopy { source: pitch(u32::MAX), destination: pitch(16), line_bytes: 16, lines: u32::MAX };
    assert_eq!(encoder.surface_copy(&lines), too_high("copy source", 0, 49));
    assert!(encoder.surface_copy(&SurfaceCopy { lines: 0, ..lines }).is_err());
    let surface = BlockSurface { va: 512, block_height_log2: 5, width: 100, height: 50, x: 84, y: 30 };
    let mut from = |surface| {
        let source = CopySide::Blocks(surface);
        encoder.surface_copy(&SurfaceCopy { source, lines: 20, ..lines })
    };
    assert_eq!(from(BlockSurface { va: 256, ..surface }), misaligned("copy source", 256, 512));
    assert_eq!(from(BlockSurface { va: last - 511, ..surface }), too_high("copy source", last - 511, 49));
    for leaves in [
        BlockSurface { x: 85, ..surface },
        BlockSurface { y: 31, ..surface },
        BlockSurface { x: 101, ..surface },
        BlockSurface { y: u32::MAX, ..surface },
        BlockSurface { block_height_log2: 6, ..surface },
    ] {
        assert!(matches!(from(leaves), Err(Error::Length { .. })), "{leaves:?}");
    }
    let fill = Fill { destination: 2, pattern: Pattern::Bits32(0), count: 1 };
    assert_eq!(encoder.fill(&fill), misaligned("fill", 2, 4));
    assert!(encoder.fill(&Fill { destination: 0, count: 0, ..fill }).is_err());
    let copied = |va, timestamp| CopyRelease { va, payload: 1, timestamp };
    assert_eq!(encoder.copy_release(&copied(8, true)), misaligned("copy semaphore", 8, 16));
    assert_eq!(encoder.copy_release(&copied(2, false)), misaligned("copy semaphore", 2, 4));
    assert!(encoder.inline_upload(0x1000, &[]).is_err());
    assert!(encoder.inline_upload(0x1000, &[0; 8191]).is_err());
    assert_eq!(encoder.inline_upload(2, &[0]), misaligned("inline upload", 2, 4));
    let reduction = |payload, operation, signed| SemaphoreReduction {
        va: 0,
        payload,
        operation,
        signed,
        wait_for_idle: false,
    };
    for refused in [
        reduction(long, SemExecuteReduction::Inc, false),
        reduction(short, SemExecuteReduction::Dec, true),
        reduction(long, SemExecuteReduction::Iadd, true),
        reduction(short, SemExecuteReduction::Unknown(9), false),
    ] {
        assert!(matches!(encoder.semaphore_reduction(&refused), Err(Error::Semaphore { .. })), "{refused:?}");
    }
    assert!(encoder.into_sink().is_empty());
}

#[test]
fn a_command_that_does_not_fit_leaves_nothing_behind() {
    let copy = LinearCopy { source: 0, destination: 0, bytes: (1 << 31) + 1 };
    for room in 0..18 {
        let mut words = vec![0; room];
        let mut encoder = Encoder::new(ampere_cmd::SliceSink::new(&mut words));
        assert!(matches!(encoder.linear_copy(&copy), Err(Error::Full(_))));
        assert!(encoder.sink().is_empty());
        let upload = encoder.inline_upload(0, &[0; 12]);
        assert!(matches!(upload, Err(Error::Full(_))));
        assert!(encoder.sink().is_empty());
    }
}
