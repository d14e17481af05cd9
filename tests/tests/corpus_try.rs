//! try
use tegra_hcq::{Device, DeviceKind, Program};
use tests::corpus;
#[test]
fn try_all() {
    let dir = std::env::var("CUBINS").unwrap_or("/tmp/cubins/sm_87-12.6".into());
    let only = std::env::var("ONLY").unwrap_or_default();
    let mut programs = std::collections::BTreeMap::new();
    let mut device = Device::open(DeviceKind::Sim).unwrap();
    let mut queue = device.queue().unwrap();
    let mut bad = 0;
    for case in corpus::cases() {
        if !only.is_empty() && !format!("{}:{}", case.file, case.kernel).contains(&only) { continue; }
        let program = programs.entry(case.file).or_insert_with(|| {
            Program::load(&device, &std::fs::read(format!("{dir}/{}.cubin", case.file)).unwrap()).unwrap()
        });
        let t = std::time::Instant::now();
        let result = corpus::run::run(&device, program, &mut queue, case, tests::TIMEOUT);
        let ran = t.elapsed();
        match result.and_then(|out| corpus::run::judge(case, &out, case.expected(), "the CPU")) {
            Ok(d) => println!("{}:{} ok {} equal {} ulp {} run {ran:?} ref {:?}", case.file, case.kernel, d.elements, d.equal, d.max_ulp, t.elapsed() - ran),
            Err(e) => {
                bad += 1;
                println!("{}:{} FAIL {}", case.file, case.kernel, e.to_string().chars().take(400).collect::<String>());
                if matches!(e, corpus::run::RunError::Device(_)) {
                    programs.clear();
                    device = Device::open(DeviceKind::Sim).unwrap();
                    queue = device.queue().unwrap();
                }
            }
        }
    }
    println!("{} cases, {bad} bad", corpus::cases().len());
}
