//! dbg
use tegra_hcq::{Device, DeviceKind, Program};
use tests::corpus;
#[test]
fn dbg() {
    let device = Device::open(DeviceKind::Sim).unwrap();
    let mut queue = device.queue().unwrap();
    let case = corpus::cases().iter().find(|c| c.kernel == "load_matrices").unwrap();
    let program = Program::load(&device, &std::fs::read("/tmp/cubins/sm_87-12.6/tensor.cubin").unwrap()).unwrap();
    let out = corpus::run::run(&device, &program, &mut queue, case, tests::TIMEOUT).unwrap();
    let corpus::case::Argument::Input(data) = &case.arguments[0] else { panic!() };
    let halves: Vec<u16> = data.values::<u32>().iter().flat_map(|w| [*w as u16, (*w >> 16) as u16]).collect();
    for (name, words) in [("got", out[0].values::<u32>()), ("want", case.expected()[0].values::<u32>())] {
        for at in 128..192 {
            let find = |h: u16| halves.iter().position(|x| *x == h).map(|p| (p / 8, p % 8));
            println!("{name} {at} {:?} {:?}", find(words[at] as u16), find((words[at] >> 16) as u16));
        }
    }
}
