//! `printf`, `assert`, `malloc` and `free` in kernels.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

use gpu_log::Kind;
use tegra_hcq::{Device, FaultKind, OutputStream, args};

use super::fixtures::{case, ensure, equal, kernel, named, patience, reported};
use super::survivor::Survivor;
use test_harness::{Check, Context, Suite};

/// The suite.
pub static SUITE: Suite = Suite {
    name: "device_calls",
    about: "printf, assert, malloc and free in kernels",
    orin_only: false,
    tests: &[
        case!(types, "printf converts all types as C does, and returns the number of arguments"),
        case!(order, "printf of several blocks: each thread's lines are complete and in order"),
        case!(overflow, "printf without room in the buffer returns -1, and the rest is printed"),
        case!(assertion, "a failed assert names expression, place and thread").expecting(Kind::Sm),
        case!(churn, "blocks of malloc are aligned and do not overlap while 1,024 threads allocate and free"),
        case!(exhaust, "malloc returns null when the heap is full; what is freed twice is free once"),
    ],
};

/// The output of the device from now on, in pieces.
fn listen(device: &Device) -> Receiver<(OutputStream, Vec<u8>)> {
    let (send, receive) = channel();
    device.on_output(move |stream, text| {
        // A later test listens elsewhere.
        let _ = send.send((stream, text.to_vec()));
    });
    receive
}

/// What was printed to a stream so far.
fn printed(output: &Receiver<(OutputStream, Vec<u8>)>, stream: OutputStream) -> String {
    let pieces = output.try_iter().filter(|(from, _)| *from == stream).flat_map(|(_, text)| text);
    String::from_utf8_lossy(&pieces.collect::<Vec<u8>>()).into_owned()
}

/// The lines of `print_types`, as C prints them.
const TYPES: [&str; 11] = [
    "plain 100%",
    "-1 2147483647 4294967295 beef BEEF 10 z|",
    "-1 -9223372036854775807 18446744073709551615 123456789abcdef 5",
    "-7 200 fff9",
    "0.100000 3.14  3.142e+04|0.0001    |1E-10 0x1p+0",
    "   42|42   |00042|+42| 42|0xff|     7|7     |2.000",
    "text|   right|left    |pre|local",
    "1 a string of more than eight bytes 2 c 3.500000",
    "0x1234abcd (null) (nil)",
    "inf -inf 0.000000",
    "01234567890123456789012345678901 %d",
];
/// What its calls return.
const COUNTS: [i32; TYPES.len()] = [0, 7, 5, 3, 6, 12, 5, 5, 3, 3, 32];

fn types(context: &Context) -> Check {
    let device = context.device()?;
    let output = listen(device);
    let code = kernel!(device, "device_calls", "print_types")?;
    let counts = device.alloc_zeroed::<i32>(TYPES.len())?;
    let mut queue = device.queue()?;
    unsafe { queue.launch(&code, 1, 1, &args![&counts]) }?;
    queue.submit()?.wait(patience(context))?;
    let text = printed(&output, OutputStream::Out);
    equal("the lines", &text.lines().collect::<Vec<_>>(), &TYPES)?;
    equal("the results", &counts.to_vec()?, &COUNTS)
}

/// Runs `print_many`. Returns its output and its results.
fn print_many(
    context: &Context,
    (blocks, threads): (u32, u32),
    times: i32,
) -> Result<(String, Vec<i32>, String), Box<dyn std::error::Error + Send + Sync>> {
    let device = context.device()?;
    let output = listen(device);
    let code = kernel!(device, "device_calls", "print_many")?;
    let results = device.alloc_zeroed::<i32>((blocks * threads) as usize)?;
    let mut queue = device.queue()?;
    unsafe { queue.launch(&code, blocks, threads, &args![times as u32, &results]) }?;
    queue.submit()?.wait(patience(context))?;
    let all: Vec<_> = output.try_iter().collect();
    let of = |stream| {
        let pieces =
            all.iter().filter(|(from, _)| *from == stream).flat_map(|(_, text)| text.iter().copied());
        String::from_utf8_lossy(&pieces.collect::<Vec<u8>>()).into_owned()
    };
    Ok((of(OutputStream::Out), results.to_vec()?, of(OutputStream::Err)))
}

/// Checks that the lines of each thread are complete and in order. Returns their number by thread.
fn lines_by_thread(text: &str, threads: usize) -> Result<Vec<i32>, String> {
    let mut next = vec![0; threads];
    for line in text.lines() {
        let bad = || format!("unexpected line {line:?}");
        let mut words = line.split(' ');
        let mut number = || words.next()?.parse::<usize>().ok();
        let (thread, turn) = number().zip(number()).ok_or_else(bad)?;
        let parity = if turn % 2 == 1 { "odd" } else { "even" };
        let expected = next.get_mut(thread).filter(|next| **next == turn as i32).ok_or_else(bad)?;
        if words.next() != Some(parity) || words.next().is_some() {
            return Err(bad());
        }
        *expected += 1;
    }
    Ok(next)
}

fn order(context: &Context) -> Check {
    // The second and third time, the ring begins anew.
    for _ in 0..3 {
        let (text, results, _) = print_many(context, (6, 64), 20)?;
        equal("the results", &results, &[20; 384])?;
        equal("the lines", &lines_by_thread(&text, 384)?, &[20; 384])?;
    }
    Ok(())
}

fn overflow(context: &Context) -> Check {
    const TIMES: i32 = 10;
    // The buffer may become smaller while a program uses it.
    let device = context.device()?;
    let before = device.printf_bytes();
    device.set_printf_bytes(60_000)?;
    let (text, results, notes) = print_many(context, (2, 128), TIMES)?;
    let printed = lines_by_thread(&text, 256);
    let accepted: i32 = results.iter().sum();
    // A thread whose call fails may succeed later, so its numbers have gaps.
    ensure(text.lines().count() as i32 == accepted, || format!("{accepted} accepted: {printed:?}"))?;
    // A record has 64 bytes.
    ensure(accepted == 65536 / 64, || format!("{accepted} lines were accepted"))?;
    let lost = 256 * TIMES - accepted;
    let note = format!("{lost} calls of printf or assert did not fit the buffer of 65536 bytes\n");
    ensure(notes == note, || format!("{notes:?}, not {note:?}"))?;
    // The buffer is empty again.
    let (_, results, notes) = print_many(context, (1, 32), 3)?;
    equal("the results", &results, &[3; 32])?;
    ensure(notes.is_empty(), || notes.clone())?;
    Ok(device.set_printf_bytes(before)?)
}

fn assertion(context: &Context) -> Check {
    let mut survivor = Survivor::new(context)?;
    let device = survivor.device;
    let output = listen(device);
    let code = kernel!(device, "device_calls", "assert_all")?;
    let out = device.alloc::<u32>(256)?;
    // No thread fails.
    let mut queue = device.queue()?;
    unsafe { queue.launch(&code, 4, 64, &args![u32::MAX, &out]) }?;
    queue.submit()?.wait(patience(context))?;
    equal("the threads", &out.to_vec()?, &(0..256).collect::<Vec<u32>>())?;
    survivor.work()?;
    unsafe { queue.launch(&code, 4, 64, &args![197_u32, &out]) }?;
    let fault: Arc<_> = reported(&queue.submit()?, patience(context))?;
    named(&fault, FaultKind::Assert, "assert_all")?;
    let text = printed(&output, OutputStream::Err);
    let expected = "device_calls.cu:45: void assert_all(int, int *): block: [3,0,0], thread: [5,0,0] Assertion \
                    `thread != wrong` failed.";
    ensure(text == format!("{expected}\n"), || format!("{text:?}, not {expected:?}"))?;
    ensure(fault.to_string().contains(expected), || fault.to_string())?;
    drop(queue);
    device.recover()?;
    survivor.work()
}

fn churn(context: &Context) -> Check {
    let device = context.device()?;
    let code = kernel!(device, "device_calls", "churn")?;
    let errors = device.alloc_zeroed::<u32>(3)?;
    let mut queue = device.queue()?;
    for most in [16_u32, 100, 3000, 9000] {
        let threads = if most == 9000 { 64 } else { 256 };
        unsafe { queue.launch(&code, 4, threads, &args![10_u32, most, &errors]) }?;
        queue.submit()?.wait(patience(context))?;
        equal("damaged, misaligned and refused blocks", &errors.to_vec()?, &[0; 3])?;
    }
    Ok(())
}

fn exhaust(context: &Context) -> Check {
    let device = context.device()?;
    let (exhaust, release) =
        (kernel!(device, "device_calls", "exhaust")?, kernel!(device, "device_calls", "release")?);
    let (blocks, count) = (device.alloc_zeroed::<u64>(1)?, device.alloc_zeroed::<u32>(1)?);
    let mut queue = device.queue()?;
    let before = device.kernel_heap_bytes();
    device.set_kernel_heap_bytes(1 << 20)?;
    // Pieces of a page, whole pages, and all of the heap at once; the heap is whole again after each.
    for (bytes, fit) in
        [(2000_u64, 512_u32), (5000, 128), (1 << 20, 1), (1 << 40, 0), (1 << 17, 8), (2048, 512)]
    {
        unsafe { queue.launch(&exhaust, 1, 1, &args![bytes, &blocks, &count]) }?;
        queue.submit()?.wait(patience(context))?;
        equal("blocks", &count.to_vec()?, &[fit])?;
        // Memory stays valid from kernel to kernel, and the heap until it is free.
        let refused = device.set_kernel_heap_bytes(before);
        ensure(refused.is_err() == (fit > 0), || format!("{bytes} bytes in use: {refused:?}"))?;
        device.set_kernel_heap_bytes(1 << 20)?;
        unsafe { queue.launch(&release, 1, 1, &args![&blocks]) }?;
        queue.submit()?.wait(patience(context))?;
    }
    Ok(device.set_kernel_heap_bytes(before)?)
}
