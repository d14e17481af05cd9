//! Edge cases: odd sizes, full rings, low memory, stale caches.

use tegra_hcq::{Buffer, Device, Error, Kernel, Pod, Queue, args};

use super::fixtures::{blocks, case, close, ensure, equal, kernel, patience};
use test_harness::{Check, Context, Suite};
use test_support::Numbers;
use test_support::process;

/// The suite.
pub static SUITE: Suite = Suite {
    name: "edge_cases",
    about: "odd sizes, full rings, short memory, stale caches",
    orin_only: false,
    tests: &[
        case!(va_boundary_40bit, "GPU addresses are below 2^40 and outside the windows"),
        case!(memory_pressure_progressive, "1 MiB to 4 GiB: succeeds, or reports the shortage"),
        case!(alloc_free_cycle_leak_check, "1,000 buffers of 1 MiB do not leak"),
        case!(dma_copy_small, "copies of 1 to 64 words"),
        case!(dma_copy_medium, "copies of 1,024 and 16,384 words"),
        case!(dma_copy_large, "copies of 1 and 16 MiB"),
        case!(zero_elements, "empty buffers"),
        case!(one_element, "42 + 1 and e^42"),
        case!(non_power_of_2_shapes, "ones + ones in odd sizes"),
        case!(non_power_of_2_matmul, "13x17 times 17x11"),
        case!(all_dtypes, "f32, f16, i32, i8 and bool"),
        case!(gpfifo_ring_wraparound, "1,200 submissions on a ring of 1,024"),
        case!(free_correctness, "50 buffers of 256 KiB are allocated and freed"),
        case!(cache_invalidation_pattern, "the GPU sees CPU writes made between launches"),
        case!(large_grid_launch, "a million elements"),
        case!(long_reads, "reads megabytes at unaligned offsets while a kernel runs"),
    ],
};

/// Launches `kernel(out, input, n)` on all elements and waits.
fn run_map<T: Pod>(
    context: &Context,
    queue: &mut Queue,
    kernel: &Kernel,
    out: &Buffer<T>,
    input: &Buffer<T>,
) -> Check {
    let count = input.len();
    // CAST: the suite's sizes are far below 2^32.
    unsafe { queue.launch(kernel, blocks(count, 256), 256, &args![out, input, count as u32]) }?;
    queue.wait(patience(context))?;
    Ok(())
}

fn va_boundary_40bit(context: &Context) -> Check {
    let device = context.device()?;
    let info = device.info();
    for megabytes in [1_usize, 4, 16, 64] {
        let buffer = device.alloc::<u8>(megabytes << 20)?;
        let (start, end) = (buffer.gpu_va(), buffer.gpu_va() + buffer.len() as u64);
        ensure(start > 0 && end <= 1 << 40, || format!("{megabytes} MiB at {start:#x}"))?;
        for window in [info.shared_window, info.local_window] {
            ensure(end <= window || start >= window + (16 << 20), || {
                format!("{megabytes} MiB at {start:#x} overlaps the window at {window:#x}")
            })?;
        }
    }
    Ok(())
}

fn memory_pressure_progressive(context: &Context) -> Check {
    let (device, mut queue) = context.device_and_queue()?;
    let increment = kernel!(device, "basics", "increment")?;
    let mut worked = Vec::new();
    for megabytes in [1_usize, 10, 100, 1024, 4096] {
        let words = (megabytes << 20) / 4;
        let mut buffer = match device.alloc::<u32>(words) {
            Ok(buffer) => buffer,
            Err(error @ Error::OutOfMemory { .. }) if megabytes > 100 => {
                context.note(format!("{megabytes} MiB: {error}"));
                break;
            }
            Err(error) => return Err(error.into()),
        };
        // Checks the ends only: a model allocates these pages from the host.
        for at in [0, words - 32] {
            buffer.slice_mut(at..at + 32)?.copy_from_slice(&[7; 32])?;
            unsafe { queue.launch(&increment, 1, 32, &args![buffer.slice(at..)?, 32_u32]) }?;
            queue.wait(patience(context))?;
            equal("end of the buffer", &buffer.slice(at..at + 32)?.to_vec()?, &[8; 32])?;
        }
        worked.push(megabytes);
        drop(buffer);
        device.trim();
    }
    context.note(format!("succeeded, in MiB: {worked:?}"));
    Ok(())
}

fn alloc_free_cycle_leak_check(context: &Context) -> Check {
    let device = context.device()?;
    let cycle = || -> Check {
        drop(device.alloc::<u8>(1 << 20)?);
        // The allocator would otherwise reuse the same memory.
        device.trim();
        Ok(())
    };
    for _ in 0..10 {
        cycle()?;
    }
    let before = process::resources();
    for _ in 0..1000 {
        cycle()?;
    }
    Ok(process::within(before, 50)?)
}

fn copies_of(context: &Context, sizes: &[usize]) -> Check {
    let (device, mut queue) = context.device_and_queue()?;
    for &words in sizes {
        let data = Numbers::new(words as u64).vec_f32(words);
        let source = device.alloc_from(&data)?;
        let mut target = device.alloc_zeroed::<f32>(words)?;
        queue.copy(&source, &mut target)?;
        queue.wait(patience(context))?;
        equal(&format!("{words} words"), &target.to_vec()?, &data)?;
    }
    Ok(())
}

fn dma_copy_small(context: &Context) -> Check {
    copies_of(context, &[1, 4, 16, 64])
}

fn dma_copy_medium(context: &Context) -> Check {
    copies_of(context, &[1024, 16_384])
}

fn dma_copy_large(context: &Context) -> Check {
    copies_of(context, &[(1 << 20) / 4, (16 << 20) / 4])
}

fn zero_elements(context: &Context) -> Check {
    let (device, mut queue) = context.device_and_queue()?;
    let plus_one = kernel!(device, "suites", "plus_one_f32")?;
    let (source, mut target) = (device.alloc::<f32>(0)?, device.alloc::<f32>(0)?);
    queue.copy(&source, &mut target)?;
    unsafe { queue.launch(&plus_one, 1, 32, &args![&target, &source, 0_u32]) }?;
    queue.wait(patience(context))?;
    equal("empty buffer", &target.to_vec()?, &[])?;
    ensure(target.view()?.is_empty(), || "an empty view has elements".to_owned())
}

fn one_element(context: &Context) -> Check {
    let (device, mut queue) = context.device_and_queue()?;
    let (input, out) = (device.alloc_from(&[42.0_f32])?, device.alloc_zeroed::<f32>(1)?);
    run_map(context, &mut queue, &kernel!(device, "suites", "plus_one_f32")?, &out, &input)?;
    close("42 + 1", &out.to_vec()?, &[43.0], 1e-6)?;
    run_map(context, &mut queue, &kernel!(device, "suites", "exp_f32")?, &out, &input)?;
    close("e^42", &out.to_vec()?, &[42.0_f32.exp()], 1e-5)
}

fn add_ones(
    context: &Context,
    device: &Device,
    count: usize,
) -> Result<Vec<f32>, Box<dyn std::error::Error + Send + Sync>> {
    let mut queue = device.queue()?;
    let add = kernel!(device, "vector_add", "vector_add")?;
    let ones = device.alloc_from(&vec![1.0_f32; count])?;
    let sum = device.alloc_zeroed::<f32>(count)?;
    unsafe { queue.launch(&add, blocks(count, 256), 256, &args![&ones, &ones, &sum, count as u32]) }?;
    queue.wait(patience(context))?;
    Ok(sum.to_vec()?)
}

fn non_power_of_2_shapes(context: &Context) -> Check {
    let device = context.device()?;
    for count in [7, 13 * 17, 127 * 127, 1023, 4097] {
        equal(&format!("{count} elements"), &add_ones(context, device, count)?, &vec![2.0; count])?;
    }
    Ok(())
}

fn non_power_of_2_matmul(context: &Context) -> Check {
    const M: usize = 13;
    const K: usize = 17;
    const N: usize = 11;
    let (device, mut queue) = context.device_and_queue()?;
    let matmul = kernel!(device, "matmul", "matmul_tiled")?;
    let mut numbers = Numbers::new(5);
    let (a, b) = (numbers.vec_f32(M * K), numbers.vec_f32(K * N));
    let out = device.alloc_zeroed::<f32>(M * N)?;
    let arguments = (device.alloc_from(&a)?, device.alloc_from(&b)?);
    unsafe {
        queue.launch(
            &matmul,
            (N.div_ceil(16) as u32, M.div_ceil(16) as u32),
            (16, 16),
            &args![&arguments.0, &arguments.1, &out, M as u32, N as u32, K as u32],
        )
    }?;
    queue.wait(patience(context))?;
    let wanted: Vec<f32> =
        (0..M * N).map(|i| (0..K).map(|k| a[i / N * K + k] * b[k * N + i % N]).sum()).collect();
    close("the product", &out.to_vec()?, &wanted, 1e-4)
}

fn all_dtypes(context: &Context) -> Check {
    let (device, mut queue) = context.device_and_queue()?;
    let (f32_in, f32_out) = (device.alloc_from(&[1.5_f32, -2.25, 0.0])?, device.alloc_zeroed::<f32>(3)?);
    run_map(context, &mut queue, &kernel!(device, "suites", "plus_one_f32")?, &f32_out, &f32_in)?;
    equal("f32", &f32_out.to_vec()?, &[2.5, -1.25, 1.0])?;
    // As bits: 1.5, -2.25, 0 and 2.5, -1.25, 1.
    let f16_in = device.alloc_from(&[0x3e00_u16, 0xc080, 0])?;
    let f16_out = device.alloc_zeroed::<u16>(3)?;
    run_map(context, &mut queue, &kernel!(device, "suites", "plus_one_f16")?, &f16_out, &f16_in)?;
    equal("f16", &f16_out.to_vec()?, &[0x4100, 0xbd00, 0x3c00])?;
    let (i32_in, i32_out) = (device.alloc_from(&[i32::MAX, -1, 7])?, device.alloc_zeroed::<i32>(3)?);
    run_map(context, &mut queue, &kernel!(device, "suites", "plus_one_i32")?, &i32_out, &i32_in)?;
    equal("i32", &i32_out.to_vec()?, &[i32::MIN, 0, 8])?;
    let (i8_in, i8_out) = (device.alloc_from(&[i8::MAX, -1, 7])?, device.alloc_zeroed::<i8>(3)?);
    run_map(context, &mut queue, &kernel!(device, "suites", "plus_one_i8")?, &i8_out, &i8_in)?;
    equal("i8", &i8_out.to_vec()?, &[i8::MIN, 0, 8])?;
    let (bool_in, bool_out) = (device.alloc_from(&[0_u8, 1, 1, 0])?, device.alloc_zeroed::<u8>(4)?);
    run_map(context, &mut queue, &kernel!(device, "suites", "not_bool")?, &bool_out, &bool_in)?;
    equal("bool", &bool_out.to_vec()?, &[1, 0, 0, 1])
}

fn gpfifo_ring_wraparound(context: &Context) -> Check {
    let (device, mut queue) = context.device_and_queue()?;
    let increment = kernel!(device, "basics", "increment")?;
    let data = device.alloc_zeroed::<u32>(1)?;
    for _ in 0..1200 {
        unsafe { queue.launch(&increment, 1, 1, &args![&data, 1_u32]) }?;
        queue.submit()?;
    }
    queue.wait(patience(context))?;
    equal("the counter", &data.to_vec()?, &[1200])
}

fn free_correctness(context: &Context) -> Check {
    let (device, mut queue) = context.device_and_queue()?;
    let fill = kernel!(device, "basics", "fill_u32")?;
    let before = process::resources();
    let words = (256 << 10) / 4;
    let mut buffers = Vec::new();
    for value in 0..50_u32 {
        let buffer = device.alloc::<u32>(words)?;
        unsafe { queue.launch(&fill, blocks(words, 256), 256, &args![&buffer, value, words as u32]) }?;
        queue.submit()?;
        // Drops every other buffer while the GPU still fills it.
        if value % 2 == 0 {
            buffers.push((value, buffer));
        }
    }
    queue.wait(patience(context))?;
    for (value, buffer) in &buffers {
        let got = buffer.to_vec()?;
        ensure(got.iter().all(|word| word == value), || format!("buffer {value} was overwritten"))?;
    }
    drop(buffers);
    device.trim();
    Ok(process::within(before, 100)?)
}

fn cache_invalidation_pattern(context: &Context) -> Check {
    let (device, mut queue) = context.device_and_queue()?;
    let add = kernel!(device, "vector_add", "vector_add")?;
    let mut a = device.alloc::<f32>(4)?;
    let mut b = device.alloc::<f32>(4)?;
    let sum = device.alloc_zeroed::<f32>(4)?;
    for (left, right, wanted) in [
        ([1.0_f32, 2.0, 3.0, 4.0], [10.0_f32, 20.0, 30.0, 40.0], [11.0_f32, 22.0, 33.0, 44.0]),
        ([100.0, 200.0, 100.0, 200.0], [400.0, 1000.0, 2000.0, 3008.0], [500.0, 1200.0, 2100.0, 3208.0]),
        ([6.0, 7.0, 8.0, 9.0], [100.0, 200.0, 300.0, 400.0], [106.0, 207.0, 308.0, 409.0]),
    ] {
        a.view()?.copy_from_slice(&left);
        b.copy_from_slice(&right)?;
        unsafe { queue.launch(&add, 1, 4, &args![&a, &b, &sum, 4_u32]) }?;
        queue.wait(patience(context))?;
        equal("the sum", &sum.to_vec()?, &wanted)?;
    }
    Ok(())
}

fn large_grid_launch(context: &Context) -> Check {
    let sum = add_ones(context, context.device()?, 1_000_000)?;
    ensure(sum.len() == 1_000_000 && sum.iter().all(|value| (value - 2.0).abs() < 1e-6), || {
        "a sum is not 2".to_owned()
    })
}

fn long_reads(context: &Context) -> Check {
    let (device, mut queue) = context.device_and_queue()?;
    let data: Vec<u8> = Numbers::new(3).vec_u32(1 << 20).iter().flat_map(|word| word.to_le_bytes()).collect();
    let buffer = device.alloc_from(&data)?;
    let out = device.alloc_zeroed::<u32>(32)?;
    // About half a second on an H200; longer on a smaller GPU.
    let rounds = if context.is_model() { 1000 } else { 100_000_000_u32 };
    unsafe { queue.launch(&kernel!(device, "basics", "spin")?, 1, 32, &args![&out, rounds]) }?;
    let running = queue.submit()?;
    for range in [0..data.len(), 1..3 << 20, 4095..8192, (1 << 20) - 3..(2 << 20) + 1] {
        let read = buffer.slice(range.clone())?.to_vec()?;
        ensure(read == data[range.clone()], || format!("bytes {range:?} differ"))?;
    }
    ensure(context.is_model() || !running.is_done(), || "the read waited for the running kernel".to_owned())?;
    running.wait(patience(context))?;
    Ok(())
}
