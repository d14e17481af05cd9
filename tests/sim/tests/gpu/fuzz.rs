//! The GPU keeps serving other channels while one channel executes arbitrary words.

use ampere_cmd::gpfifo::{Entry, Segment};
use ampere_cmd::pushbuffer::{Header, Mode};
use ampere_cmd::{CLASSES, Subchannel};
use proptest::prelude::*;

use crate::rig::{Rig, SEMAPHORES, release};

/// Method words with an effect: a real method of one of the three classes with arbitrary data.
fn method() -> impl Strategy<Value = Vec<u32>> {
    let engines = [(0u8, "AMPERE_CHANNEL_GPFIFO_B"), (1, "AMPERE_COMPUTE_B"), (4, "AMPERE_DMA_COPY_B")];
    let addresses: Vec<(u8, u32)> = engines
        .into_iter()
        .flat_map(|(subchannel, name)| {
            let class = CLASSES.iter().find(|class| class.name == name).unwrap();
            class.methods.iter().map(move |method| (subchannel, method.address))
        })
        .collect();
    let data = prop_oneof![Just(0u32), 0u32..64, Just(SEMAPHORES as u32), any::<u32>()];
    (prop::sample::select(addresses), prop::collection::vec(data, 1..6)).prop_map(
        |((index, address), data)| {
            let subchannel = Subchannel::new(index).unwrap();
            let count = data.len() as u32;
            let mode = if count == 1 { Mode::Incrementing } else { Mode::NonIncrementing };
            let mut words = vec![Header::Methods { mode, subchannel, address, count }.encode().unwrap()];
            words.extend(data);
            words
        },
    )
}

fn words() -> impl Strategy<Value = Vec<u32>> {
    let piece = prop_oneof![4 => method(), 1 => prop::collection::vec(any::<u32>(), 1..4)];
    prop::collection::vec(piece, 1..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn no_pushbuffer_stops_the_gpu(words in words(), entry in any::<u64>()) {
        let rig = Rig::new();
        let (mut wild, mut tame) = (rig.channel(1, 8), rig.channel(2, 8));
        let va = wild.place(&words);
        wild.entry(Entry::from(Segment::new(va, words.len() as u32)).encode().unwrap());
        wild.entry(entry);
        wild.ring_doorbell();
        tame.commands(|encoder| encoder.semaphore_release(&release(SEMAPHORES + 0x8000, 1)).unwrap());
        rig.wait_for(0x8000, 1);
        rig.gpu.stop_channels(&[1, 2]);
    }
}
