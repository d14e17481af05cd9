//! Encoding allocates nothing, and neither does taking words apart.

use ampere_cmd::command::{Fill, LinearCopy, Pattern, Payload, PcasAction, SemaphoreRelease};
use ampere_cmd::gpfifo::{Entry, Segment};
use ampere_cmd::pushbuffer::{Mode, Packer};
use ampere_cmd::qmd::{QmdV3_0, QmdV4_0, v3_0, v4_0};
use ampere_cmd::{Encoder, Error, MethodStream, SliceSink, Subchannel};
use test_support::allocations;

#[global_allocator]
static ALLOCATOR: allocations::Counting = allocations::Counting;

/// One launch with its descriptor, one copy, one fill, a semaphore, a ring entry: the words written.
fn encode(words: &mut [u32]) -> Result<usize, Error> {
    let mut qmd = QmdV3_0::new();
    qmd.set(v3_0::QMD_MAJOR_VERSION, 3_u32)?;
    qmd.set(v3_0::CTA_RASTER_WIDTH, 4_u32)?;
    qmd.set_address(v3_0::PROGRAM_ADDRESS_LOWER, v3_0::PROGRAM_ADDRESS_UPPER, 0x14_0000_0000)?;
    qmd.set_shifted(v3_0::CONSTANT_BUFFER_SIZE_SHIFTED4.at(0)?, 0x180_u32)?;
    let mut hopper = QmdV4_0::new();
    hopper.set(v4_0::QMD_MAJOR_VERSION, 4_u32)?;
    assert!(hopper.set(v4_0::QMD_MAJOR_VERSION, 16_u32).is_err());

    let mut encoder = Encoder::new(SliceSink::new(words));
    encoder.invalidate_shader_caches_no_wfi()?;
    encoder.launch(0x15_0000_0200, PcasAction::InvalidateCopySchedule)?;
    assert!(encoder.launch(0x15_0000_0201, PcasAction::InvalidateCopySchedule).is_err());
    encoder.linear_copy(&LinearCopy { source: 0x10_0000, destination: 0x20_0000, bytes: 256 })?;
    encoder.fill(&Fill { destination: 0x30_0000, pattern: Pattern::Bits32(7), count: 64 })?;
    encoder.semaphore_release(&SemaphoreRelease {
        va: 0x12_0000_0000,
        payload: Payload::Bits64(7),
        wait_for_idle: true,
        timestamp: true,
    })?;
    encoder.non_stall_interrupt()?;
    let len = encoder.sink().len();
    let mut packer = Packer::new(&mut words[len..]);
    packer.data(Mode::Incrementing, Subchannel::COPY, 0x400, &[1, 2 << 20, 3, 4])?;
    let len = len + packer.len();
    // CAST: fewer than the slice has.
    let entry = Entry::from(Segment::new(0x14_0000_0000, len as u32)).encode()?;
    Entry::decode(entry)?;
    Ok(len)
}

#[test]
fn neither_way_allocates() {
    let mut words = [0; 64];
    let (len, allocated) = allocations::during(|| encode(&mut words));
    assert_eq!((len, allocated), (Ok(37), 0));
    let (writes, allocated) = allocations::during(|| {
        let mut stream = MethodStream::new();
        words[..37].iter().filter(|word| matches!(stream.push(**word), Ok(Some(_)))).count()
    });
    assert_eq!(allocated, 0);
    assert!(writes > 20, "{writes}");
    let (_, allocated) = allocations::during(|| std::hint::black_box(vec![0_u8; 1]));
    assert_eq!(allocated, 1, "the allocator counts");
}
