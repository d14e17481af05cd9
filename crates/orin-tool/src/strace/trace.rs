//! Follows a trace and names the GPU's requests in it.

use std::collections::{BTreeMap, HashMap};

use nvgpu_sys::{host1x, nvmap};

use super::descriptors::{Descriptor, Descriptors, Role};
use super::line::{self, Call, Event, Outcome};
use super::request::{self, Requested};

/// Longest request text that is printed, in characters; names of requests are shorter.
const NAME_LIMIT: usize = 80;

/// The flag of clone for a shared table of descriptors, which strace prints by number with `-X raw`.
const CLONE_FILES: u64 = 0x400;

/// One request to the GPU's nodes.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ioctl {
    /// Line of the trace on which it ended.
    pub(super) line: u64,
    /// The process, if the trace has it.
    pub(super) pid: Option<u32>,
    /// The descriptor.
    pub(super) fd: i64,
    /// Role of the descriptor; `None` if unknown.
    pub(super) descriptor: Option<Descriptor>,
    /// Name of the request, or its text in the trace if it has no known name.
    pub(super) request: String,
    /// Whether the request has a known name.
    pub(super) known: bool,
    /// Its number.
    pub(super) code: Option<u32>,
    /// The result.
    pub(super) result: Outcome,
}

impl Ioctl {
    /// The role for the listing, with a question mark if it is guessed.
    pub(super) fn role(&self) -> String {
        match self.descriptor {
            None => "?".to_owned(),
            Some(Descriptor { role, inferred: true }) => format!("{}?", role.name()),
            Some(Descriptor { role, inferred: false }) => role.name().to_owned(),
        }
    }

    /// Bytes of the argument.
    pub(super) fn size(&self) -> Option<u32> {
        self.code.map(request::size)
    }
}

/// Number of calls of a request, and of failures.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Count {
    /// Calls.
    pub(super) calls: u64,
    /// Calls that failed, by errno.
    pub(super) errors: BTreeMap<String, u64>,
}

/// Totals of a trace.
#[derive(Debug, Default)]
pub(super) struct Summary {
    /// Lines of the trace.
    pub(super) lines: u64,
    /// Requests of this GPU by role and name.
    pub(super) known: BTreeMap<(&'static str, String), Count>,
    /// Unknown requests on the GPU's descriptors or of its families, by role and text.
    pub(super) unknown: BTreeMap<(&'static str, String), Count>,
    /// Ioctls of other drivers.
    pub(super) foreign: u64,
    /// Calls of mmap on the GPU's descriptors by role.
    pub(super) maps: BTreeMap<&'static str, u64>,
    /// Lines that start like a call but cannot be parsed.
    pub(super) garbled: u64,
}

impl Summary {
    /// Why the trace is incomplete or the wrong one, one phrase each.
    pub(super) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if self.known.is_empty() && self.unknown.is_empty() && self.maps.is_empty() {
            problems.push(
                "no request of the GPU's driver; trace the program that opens the GPU, and its children (strace -f)"
                    .to_owned(),
            );
        }
        match self.garbled {
            0 => {}
            1 => problems.push("1 line is cut or damaged".to_owned()),
            count => problems.push(format!("{count} lines are cut or damaged")),
        }
        problems
    }
}

/// A call that was interrupted in the trace by another process's call.
#[derive(Debug)]
struct Begun {
    text: String,
    line: u64,
}

/// Reads a trace line by line.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    descriptors: Descriptors,
    begun: HashMap<Option<u32>, Begun>,
    summary: Summary,
}

impl Decoder {
    /// Reads the next line; returns the requests to the GPU's nodes that ended on it.
    pub(super) fn line(&mut self, text: &str) -> Option<Ioctl> {
        self.summary.lines += 1;
        let line = self.summary.lines;
        let (pid, event) = line::parse(text);
        match event {
            Event::Call(call) => self.call(line, pid, &call),
            Event::Unfinished(begun) => {
                self.begun.insert(pid, Begun { text: begun.trim_end().to_owned(), line });
                None
            }
            Event::Resumed(rest) => {
                // Without its start, a call cannot be identified.
                let Begun { text, .. } = self.begun.remove(&pid)?;
                let whole = text + rest;
                match line::call(&whole) {
                    Some(call) => self.call(line, pid, &call),
                    None => {
                        self.summary.garbled += 1;
                        None
                    }
                }
            }
            Event::Exited => {
                let begun = self.begun.remove(&pid);
                let ioctl = begun.and_then(|begun| self.never_ended(pid, begun));
                if let Some(pid) = pid {
                    self.descriptors.exit(pid);
                }
                ioctl
            }
            Event::Other => None,
            Event::Garbled => {
                self.summary.garbled += 1;
                None
            }
        }
    }

    /// Returns the calls that had not ended when the trace did.
    pub(super) fn end(&mut self) -> Vec<Ioctl> {
        let mut begun: Vec<_> = self.begun.drain().collect();
        begun.sort_by_key(|(_, begun)| begun.line);
        begun.into_iter().filter_map(|(pid, begun)| self.never_ended(pid, begun)).collect()
    }

    /// Totals so far.
    pub(super) fn summary(&self) -> &Summary {
        &self.summary
    }

    /// A call without a result.
    fn never_ended(&mut self, pid: Option<u32>, begun: Begun) -> Option<Ioctl> {
        // strace stops after an argument, before the parenthesis.
        let whole = format!("{}) = ?", begun.text.trim_end_matches(','));
        let call = line::call(&whole)?;
        self.call(begun.line, pid, &call)
    }

    /// Handles a call with its result, or without one if it never ended.
    fn call(&mut self, line: u64, pid: Option<u32>, call: &Call<'_>) -> Option<Ioctl> {
        if call.name == "ioctl" {
            return self.ioctl(line, pid, call);
        }
        if let Outcome::Value(value) = call.result {
            self.follow(pid, call, value);
        }
        None
    }

    /// Updates the descriptors after a successful call other than ioctl.
    fn follow(&mut self, pid: Option<u32>, call: &Call<'_>, value: i64) {
        let fd = |index: usize| call.arguments.get(index).and_then(|text| descriptor_number(text));
        match call.name {
            "open" | "openat" | "openat2" | "creat" => {
                let argument = usize::from(matches!(call.name, "openat" | "openat2"));
                let printed = call.arguments.get(argument).map_or("", |text| text.trim_matches('"'));
                let role = Role::of_path(call.result_path.unwrap_or(printed));
                match role {
                    Some(role) => self.descriptors.set(pid, value, Descriptor::certain(role)),
                    None => self.descriptors.close(pid, value),
                }
            }
            "close" => {
                if let Some(fd) = fd(0) {
                    self.descriptors.close(pid, fd);
                }
            }
            // A third argument is a flag: close on exec, or unshare the table.
            "close_range" if call.arguments.get(2).is_none_or(|flags| *flags == "0") => {
                if let (Some(first), Some(last)) = (fd(0), fd(1)) {
                    self.descriptors.close_range(pid, first, last);
                }
            }
            "dup" | "dup2" | "dup3" => {
                if let Some(from) = fd(0) {
                    self.descriptors.duplicate(pid, from, value);
                }
            }
            "fcntl" | "fcntl64" => {
                if let (Some(from), Some(command)) = (fd(0), call.arguments.get(1))
                    && command.starts_with("F_DUPFD")
                {
                    self.descriptors.duplicate(pid, from, value);
                }
            }
            "fork" | "vfork" | "clone" | "clone2" | "clone3" => {
                let shares = call.arguments.iter().any(|text| shares_descriptors(text));
                if let Ok(child) = u32::try_from(value)
                    && child != 0
                {
                    self.descriptors.fork(pid, child, shares);
                }
            }
            "mmap" | "mmap2" => {
                if let Some(Descriptor { role, .. }) = fd(4).and_then(|fd| self.descriptors.get(pid, fd))
                    && !role.is_foreign()
                {
                    *self.summary.maps.entry(role.name()).or_default() += 1;
                }
            }
            "socket" | "accept" | "accept4" | "eventfd" | "eventfd2" | "memfd_create" | "epoll_create"
            | "epoll_create1" | "timerfd_create" | "signalfd" | "signalfd4" | "inotify_init"
            | "inotify_init1" | "userfaultfd" | "perf_event_open" | "pidfd_open" => {
                self.descriptors.set(pid, value, Descriptor::certain(Role::Foreign));
            }
            _ => {}
        }
    }

    /// Handles an ioctl; `None` if it is not the GPU's.
    fn ioctl(&mut self, line: u64, pid: Option<u32>, call: &Call<'_>) -> Option<Ioctl> {
        let [fd_text, request_text, rest @ ..] = call.arguments.as_slice() else {
            self.summary.garbled += 1;
            return None;
        };
        let Some(fd) = descriptor_number(fd_text) else {
            self.summary.garbled += 1;
            return None;
        };
        let requested = Requested::parse(request_text);
        let printed = annotation(fd_text).and_then(Role::of_path).map(Descriptor::certain);
        if let Some(descriptor) = printed {
            self.descriptors.set(pid, fd, descriptor);
        }
        let now = printed.or_else(|| self.descriptors.get(pid, fd));
        let Some((descriptor, name)) = resolve(now, printed.is_some(), &requested, &call.result) else {
            self.summary.foreign += 1;
            let taken = matches!(call.result, Outcome::Value(_));
            if taken && now.is_some_and(|now| now.role == Role::Foreign) && requested.number.is_some() {
                self.descriptors.set(pid, fd, Descriptor::certain(Role::OtherDriver));
            }
            return None;
        };
        if let Some(descriptor) = descriptor
            && now != Some(descriptor)
        {
            self.descriptors.set(pid, fd, descriptor);
        }
        if name.is_some() && matches!(call.result, Outcome::Value(_)) {
            for text in rest {
                self.learn(pid, requested.number, text);
            }
        }
        let ioctl = Ioctl {
            line,
            pid,
            fd,
            descriptor,
            request: name.map_or_else(|| unnamed(&requested), str::to_owned),
            known: name.is_some(),
            code: requested.number,
            result: call.result.clone(),
        };
        self.count(&ioctl);
        Some(ioctl)
    }

    /// Learns roles of descriptors from an argument that strace printed field by field.
    fn learn(&mut self, pid: Option<u32>, code: Option<u32>, argument: &str) {
        for (key, value) in fields(argument) {
            let role = match (key, code) {
                ("as_fd", _) => Role::AddressSpace,
                ("tsg_fd", _) => Role::Tsg,
                ("channel_fd", _) => Role::Channel,
                ("dmabuf_fd" | "userd_dmabuf_fd" | "gpfifo_dmabuf_fd", _) if value != 0 => Role::DmaBuf,
                ("event_fd", _) => Role::Event,
                ("fence_fd", _) => Role::SyncFile,
                ("fd", Some(host1x::code::CREATE_POLLFD | host1x::code::TRIGGER_POLLFD)) => Role::Pollfd,
                ("fd", Some(nvmap::code::GET_FD | nvmap::code::GET_FD_FOR_RANGE_FROM_LIST)) => Role::DmaBuf,
                _ => continue,
            };
            self.descriptors.set(pid, value, Descriptor::certain(role));
        }
    }

    /// Adds a request to the summary.
    fn count(&mut self, ioctl: &Ioctl) {
        let role = ioctl.descriptor.map_or("?", |descriptor| descriptor.role.name());
        let table = if ioctl.known { &mut self.summary.known } else { &mut self.summary.unknown };
        let count = table.entry((role, ioctl.request.clone())).or_default();
        count.calls += 1;
        if let Outcome::Error(errno) = &ioctl.result {
            *count.errors.entry(errno.clone()).or_default() += 1;
        }
    }
}

/// Identifies a request: the descriptor as currently known, and the request's name if it has
/// one. `None` if the request is not the GPU's.
///
/// The node of the descriptor determines the meaning of a number. If the node does not have it but another
/// node of the GPU does, and the call was not refused, then the descriptor was closed and
/// its number reused outside the trace, unless strace itself printed the file, or another driver has taken a request
/// on the descriptor before.
fn resolve(
    now: Option<Descriptor>,
    printed: bool,
    requested: &Requested<'_>,
    result: &Outcome,
) -> Option<(Option<Descriptor>, Option<&'static str>)> {
    let Some(code) = requested.number else {
        // Another driver's request on a descriptor of the GPU, such as the query for a terminal.
        return now.filter(|now| !now.role.is_foreign()).map(|now| (Some(now), None));
    };
    if let Some(now) = now
        && let Some(info) = now.role.requests().iter().find(|info| info.code == code)
    {
        return Some((Some(now), Some(info.name)));
    }
    let taken = match result {
        Outcome::Value(_) => true,
        Outcome::Error(errno) => errno != "ENOTTY",
        Outcome::Unknown => false,
    };
    if !requested.borrowed
        && !printed
        && now.is_none_or(|now| now.role != Role::OtherDriver)
        && (now.is_none() || taken)
        && let Some((role, info)) = request::numbered(code)
    {
        return Some((Some(Descriptor { role, inferred: true }), Some(info.name)));
    }
    match now {
        Some(now) if now.role.is_foreign() => None,
        Some(now) => Some((Some(now), None)),
        None if requested.borrowed => None,
        None => {
            let letter = request::family(code);
            let role = Role::of_family(letter);
            let ours = Role::WITH_REQUESTS
                .iter()
                .any(|role| role.requests().iter().any(|info| request::family(info.code) == letter));
            ours.then_some((role.map(|role| Descriptor { role, inferred: true }), None))
        }
    }
}

/// Text of an unknown request: its number and parts, or strace's name for it.
fn unnamed(requested: &Requested<'_>) -> String {
    match requested.number {
        None => visible(requested.text),
        Some(code) => {
            let letter = char::from(request::family(code));
            let letter = if letter.is_ascii_graphic() { letter } else { '?' };
            format!("{code:#010x} ({letter} {}, {} bytes)", code & 0xff, request::size(code))
        }
    }
}

/// Text of the trace for output: shortened, without terminal control characters.
fn visible(text: &str) -> String {
    let mut shown = String::new();
    for character in text.chars().take(NAME_LIMIT) {
        if character.is_control() {
            shown.extend(character.escape_default());
        } else {
            shown.push(character);
        }
    }
    if text.chars().nth(NAME_LIMIT).is_some() {
        shown.push_str("...");
    }
    shown
}

/// The number of a descriptor argument: `4`, or `4</dev/nvmap>`.
fn descriptor_number(text: &str) -> Option<i64> {
    let number = text.split('<').next().unwrap_or(text).trim();
    request::integer(number).and_then(|number| i64::try_from(number).ok())
}

/// The annotation that strace printed after a descriptor.
fn annotation(text: &str) -> Option<&str> {
    text.split_once('<').and_then(|(_, rest)| rest.strip_suffix('>'))
}

/// Whether an argument of clone makes the new task share its parent's descriptors.
fn shares_descriptors(argument: &str) -> bool {
    let number = || {
        let (_, rest) = argument.split_once("flags=")?;
        // The signal at the child's end follows: flags=0x1200000|17.
        request::integer(rest.split([',', '}', '|', ' ']).next()?)
    };
    argument.contains("CLONE_FILES") || number().is_some_and(|flags| flags & CLONE_FILES != 0)
}

/// The fields with whole numbers in an argument such as `{as_fd=6, flags=0}`, later ones last.
fn fields(argument: &str) -> impl Iterator<Item = (&str, i64)> {
    argument.split(['{', '}', ',', ' ']).filter_map(|part| {
        let (key, value) = part.split_once('=')?;
        Some((key.trim(), descriptor_number(value)?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Role and request of every GPU request in a trace.
    fn roles(trace: &str) -> Vec<(String, String)> {
        let mut decoder = Decoder::default();
        let mut found: Vec<Ioctl> = trace.lines().filter_map(|line| decoder.line(line)).collect();
        found.extend(decoder.end());
        found.into_iter().map(|ioctl| (ioctl.role(), ioctl.request)).collect()
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        expected.iter().map(|(role, name)| ((*role).to_owned(), (*name).to_owned())).collect()
    }

    #[test]
    fn a_number_means_what_its_node_makes_of_it() {
        let found = roles(
            "open(\"/dev/nvgpu/igpu0/tsg\", O_RDWR) = 5\n\
             ioctl(5, TCGETA, 0) = 0\n\
             open(\"/dev/pts/0\", O_RDWR) = 6\n\
             ioctl(6, TCGETA, 0) = 0\n\
             ioctl(9, TCSETSW, 0) = 0\n",
        );
        assert_eq!(found, pairs(&[("tsg", "NVGPU_IOCTL_TSG_PREEMPT")]));
    }

    #[test]
    fn a_trace_that_began_late_is_guessed_from_the_requests() {
        let found = roles(
            "ioctl(5, _IOC(_IOC_READ|_IOC_WRITE, 0x54, 0xb, 0x18), 0xff) = 0\n\
             ioctl(5, TCGETA, 0) = 0\n\
             ioctl(6, _IOC(_IOC_READ|_IOC_WRITE, 0x47, 0xc8, 0x18), 0xff) = -1 ENOTTY (x)\n\
             ioctl(7, _IOC(_IOC_READ|_IOC_WRITE, 0x48, 0xe, 0x10), 0xff) = -1 ENOTTY (x)\n\
             ioctl(8, _IOC(_IOC_READ|_IOC_WRITE, 0x64, 0xe, 0x10), 0xff) = 0\n",
        );
        assert_eq!(
            found,
            pairs(&[
                ("tsg?", "NVGPU_TSG_IOCTL_BIND_CHANNEL_EX"),
                ("tsg?", "NVGPU_IOCTL_TSG_PREEMPT"),
                ("ctrl?", "0xc01847c8 (G 200, 24 bytes)"),
                ("?", "0xc010480e (H 14, 16 bytes)"),
            ])
        );
    }

    #[test]
    fn a_number_used_again_without_a_close_is_noticed() {
        let found = roles(
            "openat(AT_FDCWD, \"/dev/host1x-fence\", O_RDWR) = 6\n\
             ioctl(6, _IOC(_IOC_READ|_IOC_WRITE, 0x41, 0x6, 0x20), 0xff) = 0\n\
             openat(AT_FDCWD, \"/dev/dri/renderD128\", O_RDWR) = 7\n\
             ioctl(7, _IOC(_IOC_READ|_IOC_WRITE, 0x48, 0x6f, 0x18), 0xff) = -1 ENOTTY (x)\n\
             ioctl(7</dev/dri/renderD128>, _IOC(_IOC_READ|_IOC_WRITE, 0x48, 0x6f, 0x18), 0xff) = 0\n",
        );
        assert_eq!(found, pairs(&[("as?", "NVGPU_AS_IOCTL_ALLOC_SPACE")]));
    }

    #[test]
    fn another_driver_with_the_same_letter_keeps_its_requests() {
        let opened = "openat(AT_FDCWD, \"/dev/dxg\", O_RDONLY|O_CLOEXEC) = 3\n\
                      ioctl(3, _IOC(_IOC_READ|_IOC_WRITE, 0x47, 0x14, 0x10), 0x7ffd3ed38aa0) = 0\n";
        let coincidence = "ioctl(3, _IOC(_IOC_READ|_IOC_WRITE, 0x47, 0x9, 0x18), 0x7ffd3ed37990) = 0\n\
                           ioctl(3, _IOC(_IOC_READ|_IOC_WRITE, 0x47, 0x6, 0x48), 0x7ffdee7d06b0) = 0\n";
        assert_eq!(roles(&format!("{opened}{coincidence}")), []);
        // A number that is used again belongs to the file that was opened last.
        let again = "openat(AT_FDCWD, \"/dev/nvgpu/igpu0/ctrl\", O_RDWR) = 3\n";
        let found = roles(&format!("{opened}{again}{}", coincidence.lines().next().unwrap()));
        assert_eq!(found, pairs(&[("ctrl", "NVGPU_GPU_IOCTL_OPEN_TSG")]));
    }

    #[test]
    fn returned_descriptors_are_learned_where_the_tracer_shows_them() {
        let found = roles(
            "ioctl(4</dev/nvgpu/igpu0/ctrl>, NVGPU_GPU_IOCTL_OPEN_TSG, {flags=0} => {tsg_fd=8}) = 0\n\
             ioctl(8, TCSETSF, 0) = 0\n\
             ioctl(8, NVGPU_TSG_IOCTL_BIND_CHANNEL_EX, {channel_fd=9, subcontext_id=0}) = -1 EINVAL (x)\n\
             ioctl(9, NVGPU_IOCTL_CHANNEL_WDT, {}) = 0\n",
        );
        assert_eq!(
            found,
            pairs(&[
                ("ctrl", "NVGPU_GPU_IOCTL_OPEN_TSG"),
                ("tsg", "NVGPU_IOCTL_TSG_DISABLE"),
                ("tsg", "NVGPU_TSG_IOCTL_BIND_CHANNEL_EX"),
                ("channel?", "NVGPU_IOCTL_CHANNEL_WDT"),
            ])
        );
    }

    #[test]
    fn calls_broken_off_are_put_together_per_process() {
        let found = roles(
            "[pid 10] openat(AT_FDCWD, \"/dev/nvmap\", O_RDWR <unfinished ...>\n\
             [pid 11] ioctl(4, _IOC(_IOC_READ|_IOC_WRITE, 0x47, 0x5, 0x10), 0xff <unfinished ...>\n\
             [pid 10] <... openat resumed>) = 3\n\
             [pid 12] ioctl(3, _IOC(_IOC_READ|_IOC_WRITE, 0x4e, 0, 0x8) <unfinished ...>\n\
             [pid 12] <... ioctl resumed>, 0xff) = 0\n\
             [pid 11] <... ioctl resumed> )  = 0\n\
             [pid 13] <... ioctl resumed> )  = 0\n\
             [pid 12] ioctl(3, _IOC(_IOC_NONE, 0x4e, 0x4, 0), 0x1 <unfinished ...>\n\
             [pid 12] +++ killed by SIGKILL +++\n\
             [pid 10] ioctl(3, _IOC(_IOC_WRITE, 0x4e, 0x3, 0x14) <unfinished ...>\n",
        );
        assert_eq!(
            found,
            pairs(&[
                ("nvmap", "NVMAP_IOC_CREATE"),
                ("ctrl?", "NVGPU_GPU_IOCTL_GET_CHARACTERISTICS"),
                ("nvmap", "NVMAP_IOC_FREE"),
                ("nvmap", "NVMAP_IOC_ALLOC"),
            ])
        );
    }

    #[test]
    fn a_forked_process_has_descriptors_of_its_own() {
        let found = roles(
            "10 open(\"/dev/nvgpu/igpu0/tsg\", O_RDWR) = 5\n\
             10 clone(child_stack=NULL, flags=CLONE_CHILD_SETTID|SIGCHLD) = 11\n\
             11 close(5) = 0\n\
             11 open(\"/dev/tty\", O_RDWR) = 5\n\
             11 ioctl(5, TCGETA, 0) = 0\n\
             10 ioctl(5, TCGETA, 0) = 0\n\
             10 clone3({flags=CLONE_VM|CLONE_FILES|CLONE_THREAD}, 88) = 12\n\
             12 ioctl(5, TCSETSW, 0) = 0\n\
             10 clone(child_stack=NULL, flags=0x1200000|17, child_tidptr=0x400) = 13\n\
             10 clone3({flags=0x3d0f00, child_tid=0xff, exit_signal=0}, 88) = 14\n\
             10 close(5) = 0\n\
             13 ioctl(5, TCSETSF, 0) = 0\n\
             14 ioctl(5, TCSETSF, 0) = 0\n",
        );
        assert_eq!(
            found,
            pairs(&[
                ("tsg", "NVGPU_IOCTL_TSG_PREEMPT"),
                ("tsg", "NVGPU_IOCTL_TSG_ENABLE"),
                ("tsg", "NVGPU_IOCTL_TSG_DISABLE"),
            ])
        );
    }

    #[test]
    fn text_of_the_trace_cannot_command_a_terminal() {
        let long = "x".repeat(5000);
        let found = roles(&format!(
            "ioctl(4</dev/nvmap>, \u{1b}[2J]\u{7}, 0) = 0\n\
             ioctl(4</dev/nvmap>, {long}, 0) = 0\n",
        ));
        let shown = format!("{}...", &long[..80]);
        assert_eq!(found, pairs(&[("nvmap", "\\u{1b}[2J]\\u{7}"), ("nvmap", &shown)]));
    }

    #[test]
    fn garbled_lines_are_counted_and_passed_over() {
        let mut decoder = Decoder::default();
        for line in ["ioctl(", "ioctl(4) = 0", "ioctl(x, y, z) = 0", "hello", "ioctl(4, TCGETS, 0) = 0"] {
            assert_eq!(decoder.line(line), None, "{line}");
        }
        assert_eq!(decoder.summary().garbled, 3);
        assert_eq!(decoder.summary().foreign, 1);
        assert_eq!(decoder.summary().lines, 5);
    }
}
