//! Programs that call `printf`, `assert` and `malloc`: when their output arrives, and what the checks of the software
//! Orin say. What the functions do is tested by the suite `device_calls`.

use std::sync::mpsc::{Receiver, channel};

use tegra_hcq::check::{self, Kind, Tools};
use tegra_hcq::{Device, Program, args};
use test_support::{Bench, TIMEOUT, cubin};

/// The pieces of output of a device from now on.
fn listen(device: &Device) -> Receiver<String> {
    let (send, receive) = channel();
    device.on_output(move |_, text| {
        let _ = send.send(String::from_utf8_lossy(text).into_owned());
    });
    receive
}

#[test]
fn output_arrives_at_every_kind_of_wait() {
    let mut bench = Bench::new("device_calls");
    let output = listen(&bench.device);
    // A queue that was open before the program was loaded, and one that was not.
    let mut later = bench.device.queue().unwrap();
    let kernel = bench.program.kernel("print_many").unwrap();
    let results = bench.device.alloc_zeroed::<i32>(1).unwrap();
    let line = ["0 0 even\n"];
    let print = |queue: &mut tegra_hcq::Queue| {
        unsafe { queue.launch(&kernel, 1, 1, &args![1_u32, &results]) }.unwrap();
        queue.submit().unwrap()
    };
    for queue in [&mut bench.queue, &mut later] {
        print(queue).wait(TIMEOUT).unwrap();
        assert_eq!(output.try_iter().collect::<Vec<_>>(), line);
        print(queue);
        results.to_vec().unwrap();
        assert_eq!(output.try_iter().collect::<Vec<_>>(), line, "a wait of a buffer");
    }
    print(&mut later);
    drop((bench, later, kernel, results));
    assert_eq!(output.try_iter().collect::<Vec<_>>(), line, "the end of the device");
}

#[test]
fn the_checks_find_nothing_in_the_run_time() {
    check::clean_of(Tools::KERNELS | Tools::WARPCHECK, |device| {
        let program = Program::load(device, &cubin("device_calls"))?;
        let output = listen(device);
        device.set_printf_bytes(1 << 14)?;
        let results = device.alloc_zeroed::<u32>(96)?;
        let mut queue = device.queue()?;
        let many = program.kernel("print_many")?;
        // Three times, so that the ring begins anew.
        for _ in 0..3 {
            unsafe { queue.launch(&many, 3, 32, &args![2_u32, &results]) }?;
            queue.wait(TIMEOUT)?;
        }
        assert_eq!(output.try_iter().count(), 3 * 192);
        let errors = device.alloc_zeroed::<u32>(3)?;
        unsafe { queue.launch(&program.kernel("churn")?, 2, 64, &args![4_u32, 3000_u32, &errors]) }?;
        queue.wait(TIMEOUT)?;
        assert_eq!(errors.to_vec()?, [0; 3]);
        let (blocks, count) = (device.alloc_zeroed::<u64>(1)?, device.alloc_zeroed::<u32>(1)?);
        device.set_kernel_heap_bytes(1 << 16)?;
        unsafe { queue.launch(&program.kernel("exhaust")?, 1, 1, &args![1000_u64, &blocks, &count]) }?;
        unsafe { queue.launch(&program.kernel("release")?, 1, 1, &args![&blocks]) }?;
        queue.wait(TIMEOUT)?;
        assert_eq!(count.to_vec()?, [64]);
        Ok(())
    });
}

/// Errors of the caller are found in the functions.
#[test]
fn the_checks_find_bad_strings() {
    let device = check::open(Tools::MEMCHECK).unwrap();
    let program = Program::load(&device, &cubin("device_calls")).unwrap();
    let output = listen(&device);
    let text = device.alloc_from(b"no zero at the end of this text!").unwrap();
    let mut queue = device.queue().unwrap();
    unsafe { queue.launch(&program.kernel("print_text").unwrap(), 1, 1, &args![&text]) }.unwrap();
    queue.wait(TIMEOUT).unwrap();
    let findings = check::findings(&device);
    assert!(!findings.is_empty() && findings.iter().all(|finding| finding.kind == Kind::OutOfBounds));
    assert!(output.try_recv().unwrap().starts_with("no zero at the end of this text!"));
}

#[test]
fn a_program_that_calls_something_else_is_refused() {
    let device = Bench::new("basics").device;
    let mut file = cubin("device_calls");
    let at = file.windows(8).position(|bytes| bytes == b"vprintf\0").unwrap();
    file[at] = b'w';
    let text = Program::load(&device, &file).unwrap_err().to_string();
    assert!(text.contains("unresolved symbol `wprintf`"), "{text}");
}
