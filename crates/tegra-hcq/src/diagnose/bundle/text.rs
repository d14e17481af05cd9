//! The text files of a bundle. Each begins with a description of its contents.

use core::fmt::Write as _;

use super::{Contents, ENTRIES, Event, time};
use crate::fault::{Fault, Submission};

/// The event, and every fault that the queues have recorded.
pub(super) fn fault(contents: &Contents<'_>) -> String {
    let mut text = "The event, as one sentence and then field by field.\n\n".to_owned();
    let _ = writeln!(text, "time             {}", time::extended(contents.time));
    match contents.event {
        Event::Request => text.push_str("event            requested by the program\n"),
        Event::TimeOut { slot, timeout, text: message } => {
            let _ = writeln!(text, "event            time-out of queue {slot} after {timeout:?}");
            let _ = writeln!(text, "\n{message}\n");
        }
        Event::Fault { slot, fault } => {
            let _ = writeln!(text, "event            fault of queue {slot}");
            fields(&mut text, fault);
        }
    }
    for queue in &contents.queues {
        let slot = queue.snapshot.slot;
        if let Some(fault) = &queue.snapshot.fault {
            let _ = writeln!(text, "\nThis fault stopped queue {slot}:");
            fields(&mut text, fault);
        }
        for (after, through, fault) in &queue.snapshot.lost {
            let _ = writeln!(
                text,
                "\nQueue {slot} lost its submissions {} to {through} to this fault:",
                after + 1
            );
            fields(&mut text, fault);
        }
    }
    let faulted = matches!(contents.event, Event::Fault { .. });
    let remembered =
        |queue: &super::QueueView| queue.snapshot.fault.is_some() || !queue.snapshot.lost.is_empty();
    if !faulted && !contents.queues.iter().any(remembered) {
        text.push_str("\nNo queue of the device has faulted.\n");
    }
    text
}

fn fields(text: &mut String, fault: &Fault) {
    let _ = writeln!(text, "\n{fault}\n");
    let mut field = |name: &str, value: Option<String>| {
        let _ = writeln!(text, "{name:16} {}", value.as_deref().unwrap_or("unknown"));
    };
    field("kind", Some(format!("{:?}", fault.kind)));
    field("notifier", Some(fault.notifier.to_string()));
    field("address", fault.address.map(|address| format!("{address:#x}")));
    field("MMU fault type", fault.access.as_ref().map(|(kind, _)| kind.to_string()));
    field("access", fault.access.as_ref().map(|(_, access)| access.to_string()));
    field("pc", fault.pc.map(|pc| format!("{pc:#x}")));
    field("kernel", fault.location.as_ref().map(|location| location.kernel.clone()));
    // Without a program counter the kernel is the most recently launched one, and the offset is its start.
    let offset = fault.pc.and(fault.location.as_ref()).map(|location| format!("{:#x}", location.offset));
    field("offset", offset);
    field("grid", fault.grid.map(|(grid, _)| grid.to_string()));
    field("block", fault.grid.map(|(_, block)| block.to_string()));
    field("nearest buffer", fault.nearest.as_ref().map(ToString::to_string));
    for detail in &fault.details {
        field("detail", Some(detail.clone()));
    }
    match &fault.log {
        Ok(lines) => {
            let _ = writeln!(text, "{:16} {} lines about this fault:", "kernel log", lines.len());
            for line in lines {
                let _ = writeln!(text, "    {line}");
            }
        }
        Err(reason) => field("kernel log", Some(format!("not readable: {reason}"))),
    }
}

/// Commands in the rings.
pub(super) fn submissions(contents: &Contents<'_>) -> String {
    let mut text = format!(
        "The last submissions of each queue, at most {ENTRIES} per channel, oldest first, decoded from memory: \
         one line\nper command word. The GPU may not have reached the newest. Submissions whose words were \
         overwritten since\nare omitted.\n"
    );
    for queue in &contents.queues {
        let _ = writeln!(text, "\n== queue {}", queue.snapshot.slot);
        match &queue.submissions {
            None => text.push_str("channels closed\n"),
            Some(found) if found.is_empty() => text.push_str("no submissions\n"),
            Some(found) => {
                for submission in found {
                    let _ = writeln!(text, "\n{}", submission.text().trim_end());
                }
            }
        }
    }
    // The fault keeps the submissions of channels that a recovery closed.
    for queue in contents.queues.iter().filter(|queue| queue.submissions.is_none()) {
        for (_, _, fault) in &queue.snapshot.lost {
            let _ = writeln!(text, "\n== queue {}, at the fault: {fault}", queue.snapshot.slot);
            for submission in &fault.submissions {
                let _ = writeln!(text, "\n{}", submission.text().trim_end());
            }
        }
    }
    text
}

/// Launch descriptors that the commands start.
pub(super) fn launches(contents: &Contents<'_>) -> String {
    let mut text =
        "The launch descriptors (QMD) started by the commands of submissions.txt, chained ones included, \
                    oldest\nfirst, field by field; words of zero are left out.\n"
            .to_owned();
    for queue in &contents.queues {
        let submissions: &[Submission] = queue.submissions.as_deref().unwrap_or(&[]);
        for launch in submissions.iter().flat_map(|submission| &submission.launches) {
            let kernel = launch.kernel.as_deref().unwrap_or("unknown code");
            let _ = writeln!(
                text,
                "\n== queue {}, descriptor at {:#x}: kernel {kernel} (code at {:#x}), grid {}, block {}",
                queue.snapshot.slot, launch.va, launch.code_va, launch.grid, launch.block
            );
            let _ = writeln!(text, "{}", launch.text().trim_end());
        }
    }
    text
}

/// Memory mapped for the GPU.
pub(super) fn mappings(contents: &Contents<'_>) -> String {
    let device = contents.device;
    let mut text = "All live allocations of the device, by GPU address: first and last byte, length in bytes, \
                    content\ntype, purpose, and the name given by the program. The bundle does not include the \
                    contents themselves.\n\n"
        .to_owned();
    let _ =
        writeln!(text, "{:14} {:14} {:>12}  {:14} {:9} name", "first", "last", "bytes", "content", "purpose");
    let (va, bytes) = device.heap().timelines_at();
    let row = |va: u64, bytes: u64, content: &str, purpose: &str, name: &str| {
        let last = va + bytes.max(1) - 1;
        (va, format!("{va:#014x} {last:#014x} {bytes:>12}  {content:14} {purpose:9} {name}\n"))
    };
    let mut rows = vec![row(va, bytes, "timelines", "Signals", "-")];
    rows.extend(device.heap().pool().live().iter().map(|memory| {
        let name = memory.user_name().unwrap_or_else(|| "-".to_owned());
        let purpose = format!("{:?}", memory.purpose());
        row(memory.gpu_va(), memory.wanted(), memory.content().name(), &purpose, &name)
    }));
    rows.sort();
    text.extend(rows.into_iter().map(|(_, row)| row));
    text
}

/// Lines of the kernel log.
pub(super) fn kernel_log(contents: &Contents<'_>) -> String {
    let head = "# Kernel-log lines about the GPU since the device was opened, at most the last 2000.\n";
    match &contents.log {
        Ok(lines) if lines.is_empty() => format!("{head}# No lines.\n"),
        Ok(lines) => format!("{head}{}\n", lines.join("\n")),
        Err(reason) => format!("{head}# Not readable: {reason}\n"),
    }
}
