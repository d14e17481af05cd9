//! Executes the worked examples of the command encoding, word for word.

use crate::rig::{Rig, SEMAPHORES, release};

/// Set-up of a compute channel, followed by a release of 1.
#[rustfmt::skip]
const SET_UP: [u32; 22] = [
    0x2001_2000, 0x0000_c7c0,
    0x2002_20a8, 0x0000_7294, 0x0000_0000,
    0x2002_21ec, 0x0000_7293, 0x0000_0000,
    0x2002_21e4, 0x0000_0020, 0x0000_0000,
    0x2003_20b9, 0x0000_0000, 0x0004_8000, 0x0000_00ff,
    0x2005_0017, 0x0000_0000, 0x0000_0012, 0x0000_0001, 0x0000_0000, 0x0310_0001,
    0x8000_0008,
];

/// Copy of 256 bytes, followed by a four-word release of 2.
#[rustfmt::skip]
const COPY: [u32; 16] = [
    0x2001_8000, 0x0000_c7b5,
    0x2004_8100, 0x0000_0010, 0x0000_0000, 0x0000_0020, 0x0000_0000,
    0x2002_8106, 0x0000_0100, 0x0000_0001,
    0x2003_8090, 0x0000_0012, 0x0000_0010, 0x0000_0002,
    0x2001_80c0, 0x0000_0196,
];

/// Copy of 64 lines of 320 bytes with pitches 512 and 1024.
#[rustfmt::skip]
const PITCH_COPY: [u32; 11] = [
    0x2008_8100, 0x10, 0, 0x20, 0, 0x200, 0x400, 0x140, 0x40,
    0x2001_80c0, 0x382,
];

/// Fill of 1024 words with deadbeef.
#[rustfmt::skip]
const FILL: [u32; 10] = [
    0x2002_81c1, 0xdead_beef, 0x0003_0005,
    0x2002_8102, 0x20, 0,
    0x2001_8106, 0x400,
    0x2001_80c0, 0x582,
];

/// Inline upload of 16 bytes.
#[rustfmt::skip]
const UPLOAD: [u32; 11] = [
    0x2004_2060, 0x10, 1, 0x20, 0,
    0xa005_206c, 0x11, 0x1111_1111, 0x2222_2222, 0x3333_3333, 0x4444_4444,
];

#[test]
fn set_up_releases_and_interrupts() {
    let rig = Rig::new();
    let mut ring = rig.channel(511, 1024);
    ring.submit(&SET_UP);
    rig.wait_for(0, 1);
    assert_ne!(rig.time(0), 0);
    rig.wait_interrupts(1);
}

#[test]
fn a_copy_of_256_bytes() {
    let rig = Rig::new();
    rig.map(0x10_0000_0000, 0x1000);
    rig.map(0x20_0000_0000, 0x1000);
    let data: Vec<u8> = (0..=255).collect();
    rig.write(0x10_0000_0000, &data);
    let mut ring = rig.channel(510, 1024);
    ring.submit(&COPY);
    rig.wait_for(0x10, 2);
    assert_eq!(rig.read(0x20_0000_0000, 256), data);
    assert_ne!(rig.time(0x10), 0);
    // The same launch as immediate data.
    rig.write(0x20_0000_0000, &[0; 256]);
    rig.semaphores.store(0x10, 0);
    ring.submit(&[0x8196_80c0]);
    rig.wait_for(0x10, 2);
    assert_eq!(rig.read(0x20_0000_0000, 256), data);
}

#[test]
fn a_pitch_copy_and_a_fill() {
    let rig = Rig::new();
    rig.map(0x10_0000_0000, 0x1_0000);
    rig.map(0x20_0000_0000, 0x2_0000);
    let data: Vec<u8> = (0..0x1_0000u32).map(|index| (index % 251) as u8).collect();
    rig.write(0x10_0000_0000, &data);
    let mut ring = rig.channel(510, 1024);
    ring.submit(&PITCH_COPY);
    ring.commands(|encoder| encoder.semaphore_release(&release(SEMAPHORES, 1)).unwrap());
    rig.wait_for(0, 1);
    let copied = rig.read(0x20_0000_0000, 0x2_0000);
    for line in 0..64 {
        assert_eq!(copied[line * 0x400..][..0x140], data[line * 0x200..][..0x140], "line {line}");
    }
    ring.submit(&FILL);
    ring.commands(|encoder| encoder.semaphore_release(&release(SEMAPHORES, 2)).unwrap());
    rig.wait_for(0, 2);
    assert!(rig.words(0x20_0000_0000, 0x400).iter().all(|&word| word == 0xdead_beef));
    assert_eq!(rig.read(0x20_0000_1000, 16), copied[0x1000..0x1010]);
}

#[test]
fn an_inline_upload_of_16_bytes() {
    let rig = Rig::new();
    rig.map(0x20_0000_0000, 0x1000);
    let mut ring = rig.channel(511, 1024);
    ring.submit(&UPLOAD);
    ring.commands(|encoder| encoder.semaphore_release(&release(SEMAPHORES, 1)).unwrap());
    rig.wait_for(0, 1);
    assert_eq!(rig.words(0x20_0000_0000, 5), [0x1111_1111, 0x2222_2222, 0x3333_3333, 0x4444_4444, 0]);
}

/// Nonzero words of the launch descriptor: 4x2x1 CTAs of 64 threads at 0x1200000080, release of 3 with time to
/// 0x1200000020.
const QMD: [(usize, u32); 20] = [
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

#[test]
fn a_launch_with_a_release() {
    let rig = Rig::new();
    let cubin = cubin::Cubin::parse(include_bytes!("../../../../kernels/basics.cubin")).unwrap();
    let kernel = cubin.kernel("empty").unwrap();
    let code = kernel.code_offset as usize;
    let program = 0x12_0000_0080;
    rig.write(program, &cubin.image_at(0x40_0000_0000).unwrap()[code..][..kernel.code_bytes as usize]);
    rig.map(0x15_0000_0000, 0x1000);
    rig.map(0x20_0000_0000, 0x4_8000 * 4);
    for (index, word) in QMD {
        rig.write(0x15_0000_0200 + index as u64 * 4, &word.to_le_bytes());
    }
    let mut ring = rig.channel(511, 1024);
    ring.submit(&SET_UP);
    rig.wait_for(0, 1);
    let launch: [&[u32]; 2] = [
        &[0x2001_25a6, 0x0000_1011, 0x2001_20ad, 0x1500_0002, 0x2001_20b0, 0x0000_0009],
        // The same with immediates and the action that copies the descriptor.
        &[0x9011_25a6, 0x2001_20ad, 0x1500_0002, 0x8003_20b0],
    ];
    for words in launch {
        rig.semaphores.store(0x20, 0);
        ring.submit(words);
        rig.wait_for(0x20, 3);
        assert_eq!(rig.semaphores.load(0x24), 0);
        assert!(rig.time(0x20) > rig.time(0));
    }
}
