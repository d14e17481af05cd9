//! The rows of the chip table that the software Orin can take on: it executes the code of all chips of SM 8.x.

use std::sync::Arc;
use std::time::Duration;

use gpu_hal::chip;
use orin_sim::SoftwareOrin;
use tegra_hcq::{Device, DeviceKind, Error, Program, args};

/// Opens a software Orin that reports another SM version.
fn open(major: u32, minor: u32) -> Result<Device, Error> {
    let mut config = test_support::config();
    config.characteristics.sm_arch_sm_version = major << 8 | minor;
    Device::open_through(Arc::new(SoftwareOrin::new(config).unwrap()), DeviceKind::Sim)
}

#[test]
fn a_generation_that_the_chip_table_does_not_contain_is_refused() {
    for (major, minor) in [(7, 5), (8, 8), (10, 0), (11, 0)] {
        let error = open(major, minor).unwrap_err();
        assert!(matches!(error, Error::UnknownChip { major: a, minor: b } if (a, b) == (major, minor)));
        let text = error.to_string();
        assert!(text.contains(&format!("SM version {major}.{minor}")), "{text}");
        assert!(text.ends_with("supported are 8.0, 8.6, 8.7, 8.9, 9.0"), "{text}");
    }
}

#[test]
fn kernels_run_with_the_row_of_each_chip_of_sm_8() {
    let cubins: [((u32, u32), &[u8]); 2] = [
        ((8, 0), include_bytes!("../../cubin/tests/data/tiny.sm_80.cubin")),
        ((8, 7), include_bytes!("../../cubin/tests/data/tiny.cubin")),
    ];
    for (sm, cubin) in cubins {
        let device = open(sm.0, sm.1).unwrap();
        let program = Program::load(&device, cubin).unwrap();
        let name = program.kernel_names().next().unwrap().to_owned();
        let kernel = program.kernel(&name).unwrap();
        let attributes = kernel.attributes();
        let shared = chip::of(sm).unwrap().shared;
        assert_eq!(attributes.binary_version, sm);
        assert_eq!(attributes.max_dynamic_shared_bytes, shared.largest() - shared.reserved);
        let data = device.alloc_from(&[1_u32; 64]).unwrap();
        let mut queue = device.queue().unwrap();
        unsafe { queue.launch(&kernel, 1, 32, &args![&data, 7_u32]) }.unwrap();
        queue.submit().unwrap().wait(Duration::from_secs(60)).unwrap();
        assert_eq!(data.to_vec().unwrap()[..33], [[7; 32].as_slice(), &[1]].concat());
    }
}
