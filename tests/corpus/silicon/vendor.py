#!/usr/bin/env python3
"""Runs NVIDIA's compute-sanitizer on the planted errors, and NVIDIA's ncu on cases of the corpus.

    vendor.py EXPORT OUT [--jobs N] [--seconds N] [--hang N]

EXPORT is a folder that `cargo xtask vendor-tools export` wrote. OUT gets `machine.json`, `runs.jsonl` (the output of
each run of compute-sanitizer), `profile.json` (ncu's counters of each kernel), `instructions.json` (its counts of each
instruction), `profile.csv` and `source.csv` (the same from ncu), `profile.ncu-rep`, and `log.txt`. Needs Python's standard library, libcuda.so.1 and the
two tools, and no compiler.

Each kernel runs under the tool that should find its error; then, until `--seconds` have passed, under the others. A
run that takes longer than `--hang` seconds is killed, and is a result: some errors are deadlocks.
"""

import argparse
import concurrent.futures
import csv
import ctypes
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import run

HERE = pathlib.Path(__file__).resolve().parent
NUMBERS = itertools.count()
LIMIT = 20_000
TOOLS = ["memcheck", "racecheck", "initcheck", "synccheck"]
# Options by tool. Those that a release does not know are left out.
COMMON = [("--print-level", "info"), ("--show-backtrace", "device"), ("--report-api-errors", "no")]
OPTIONS = {
    "memcheck": [],
    "memcheck-padded": [("--padding", "4096")],
    "racecheck": [("--racecheck-detect-level", "info")],
    "initcheck": [],
    "synccheck": [],
}
SUM = [
    "smsp__inst_executed", "smsp__thread_inst_executed", "smsp__thread_inst_executed_pred_on",
    "smsp__inst_executed_op_branch", "smsp__sass_branch_targets", "smsp__sass_branch_targets_threads_divergent",
    "smsp__sass_branch_targets_threads_uniform",
    "smsp__inst_executed_op_global_ld", "smsp__inst_executed_op_global_st", "smsp__inst_executed_op_global_red",
    "smsp__inst_executed_op_shared_ld", "smsp__inst_executed_op_shared_st", "smsp__inst_executed_op_shared_atom",
    "smsp__inst_executed_op_local_ld", "smsp__inst_executed_op_local_st", "smsp__inst_executed_op_ldgsts",
    *[f"l1tex__t_{what}_pipe_lsu_mem_global_op_{op}"
      for what in ("requests", "sectors") for op in ("ld", "st", "atom", "red")],
    *[f"l1tex__t_{what}_pipe_lsu_mem_local_op_{op}" for what in ("requests", "sectors") for op in ("ld", "st")],
    *[f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared{op}" for op in ("", "_op_ld", "_op_st", "_op_atom")],
    *[f"l1tex__data_pipe_lsu_wavefronts_mem_shared{op}" for op in ("", "_op_ld", "_op_st", "_op_atom")],
    "l1tex__data_pipe_lsu_wavefronts_mem_shared_cmd_read", "l1tex__data_pipe_lsu_wavefronts_mem_shared_cmd_write",
]
PLAIN = [
    "sass__inst_executed_per_opcode", "sass__thread_inst_executed_true_per_opcode",
    "launch__registers_per_thread", "launch__waves_per_multiprocessor", "launch__occupancy_limit_blocks",
    "launch__occupancy_limit_registers", "launch__occupancy_limit_shared_mem", "launch__occupancy_limit_warps",
    "launch__grid_size", "launch__block_size", "launch__shared_mem_per_block",
]


def launch(export, name):
    """Launches one planted kernel, with the buffers that kernels/check/mem.cu describes."""
    planted = next(each for each in export["planted"] if each["kernel"] == name)
    driver = run.Driver("libcuda.so.1")
    count = planted["n"]
    ints = ctypes.c_int * count
    out = driver.allocate(bytes(ints()))
    numbers = driver.allocate(bytes(ints(*range(count))))
    raw = ctypes.c_uint64()
    driver.call("cuMemAlloc_v2", ctypes.byref(raw), ctypes.c_size_t(4 * count))
    freed = driver.allocate(bytes(ints()))
    function = driver.function(export["folder"] / "planted" / f"{planted['file']}.cubin", name)
    stale = ctypes.c_uint64(freed.value)
    driver.call("cuMemFree_v2", freed)
    shape = {"grid": [planted["grid"], 1, 1], "block": [planted["block"], 1, 1], "shared_bytes": planted["shared"]}
    try:
        driver.launch(function, shape, [out, numbers, raw, stale, ctypes.c_int(count)])
    except run.CudaError as error:
        print(f"launch: {error}")
        return 3
    print("launch: done")
    return 0


def kill(mark):
    """Kills every process that has inherited the variable VENDOR_RUN with this value."""
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if f"VENDOR_RUN={mark}\0".encode() in (entry / "environ").read_bytes():
                os.kill(int(entry.name), signal.SIGKILL)
        except (OSError, ProcessLookupError):
            pass


def bounded(command, seconds, **options):
    """Output, exit code (None if it was killed) and seconds of a command; its children end with it."""
    start, mark = time.monotonic(), f"{os.getpid()}-{next(NUMBERS)}"
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env={**os.environ, "VENDOR_RUN": mark}, **options) as process:
        try:
            output, _ = process.communicate(timeout=seconds)
            code = process.returncode
        except subprocess.TimeoutExpired:
            kill(mark)
            code = None
            try:
                output, _ = process.communicate(timeout=10)
            except subprocess.TimeoutExpired as error:
                output = error.output or b""
    return output.decode(errors="replace"), code, round(time.monotonic() - start, 2)


def counters(text):
    """The whole numbers of a raw page of ncu, by kernel and metric."""
    # Remarks of ncu precede the table.
    lines = text.splitlines()
    start = next((at for at, line in enumerate(lines) if line.startswith('"ID"')), len(lines))
    rows = list(csv.DictReader(lines[start:]))
    kernels = {}
    for row in rows[1:]:
        numbers = {name: value.replace(",", "") for name, value in row.items() if "__" in name or "memory_" in name}
        kernels[row["Kernel Name"]] = {
            name: int(float(value)) for name, value in numbers.items()
            if re.fullmatch(r"[0-9]+(\.0*)?", value)}
    return kernels


def instructions(text):
    """The counts of each instruction in a source page of ncu, by kernel; the first instruction is at offset 0."""
    columns = [
        "Instructions Executed", "Thread Instructions Executed", "Predicated-On Thread Instructions Executed",
        "Divergent Branches", "L2 Theoretical Sectors Global", "L1 Wavefronts Shared", "L1 Wavefronts Shared Ideal",
    ]
    kernels, kernel, header = {}, None, []
    for row in csv.reader(text.splitlines()):
        if row[:1] == ["Kernel Name"]:
            kernel = row[1]
            kernels[kernel] = []
        elif row[:1] == ["Address"]:
            header = row
        elif kernel is not None and row:
            # A column without numbers is not printed.
            counts = dict(zip(header, row))
            kernels[kernel].append([int(float(counts.get(name, "0").replace(",", ""))) for name in columns])
    return kernels


class Vendor:
    def __init__(self, arguments, export):
        self.arguments, self.export, self.folder, self.out = arguments, export, arguments.export, arguments.out
        self.start, self.machine = time.monotonic(), {}
        self.log = open(self.out / "log.txt", "w", buffering=1)

    def say(self, text):
        text = f"{time.monotonic() - self.start:6.1f} {text}"
        print(text, flush=True)
        print(text, file=self.log)

    def find(self, name):
        """Path of a tool: in PATH, or where toolkits have it."""
        found = shutil.which(name)
        places = ["/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer", "/opt/nvidia/nsight-compute"]
        for place in places if found is None else []:
            found = next((str(path) for path in sorted(pathlib.Path(place).glob(f"**/{name}"))), found)
        self.say(f"{name}: {found}")
        if found is not None:
            version, _, _ = bounded([found, "--version"], 30)
            self.machine[pathlib.Path(name).name] = re.search(r"[Vv]ersion[^\n]*|$", version).group().strip()
            (self.out / "machine.json").write_text(json.dumps(self.machine))
        return found

    def sanitize(self):
        """compute-sanitizer on every planted kernel and its twin."""
        tool = self.find(self.arguments.sanitizer)
        if tool is None:
            return
        helped, _, _ = bounded([tool, "--help"], 30)

        def one(kernel, name):
            options = [word for option in COMMON + OPTIONS[name] if option[0] in helped for word in option]
            command = [tool, "--tool", name.split("-")[0], *options, sys.executable, str(HERE / "vendor.py"), "--launch", kernel,
                       str(self.folder), str(self.out)]
            output, code, seconds = bounded(command, self.arguments.hang)
            # One cause is reported once per thread.
            output = output if len(output) <= LIMIT else output[:LIMIT] + "\n...\n" + output[-1000:]
            return {"kernel": kernel, "tool": name, "exit": code, "seconds": seconds, "output": output}

        own = [(each["kernel"], each["tool"]) for each in self.export["planted"]]
        own += [(kernel, "memcheck-padded") for kernel, name in own if name == "memcheck"]
        others = [(each["kernel"], name) for each in self.export["planted"] for name in TOOLS if name != each["tool"]]
        with open(self.out / "runs.jsonl", "w") as file:
            with concurrent.futures.ThreadPoolExecutor(self.arguments.jobs) as pool:
                def late(kernel, name):
                    passed = time.monotonic() - self.start
                    return None if passed > self.arguments.seconds else one(kernel, name)
                futures = [pool.submit(one, *each) for each in own] + [pool.submit(late, *each) for each in others]
                done = 0
                for future in concurrent.futures.as_completed(futures):
                    result = future.result()
                    if result is not None:
                        done += 1
                        print(json.dumps(result), file=file, flush=True)
                    if done in (1, len(own), len(futures)):
                        self.say(f"{done} runs")
                self.say(f"{done} of {len(futures)} runs of compute-sanitizer")

    def profile(self):
        """ncu on the cases of the corpus."""
        tool = self.find(self.arguments.ncu)
        if tool is None:
            return
        metrics = [f"{name}.sum" for name in SUM] + PLAIN
        names = "|".join(case["kernel"] for case in self.export["cases"])
        report = self.out / "profile.ncu-rep"
        for _ in range(6):
            with tempfile.TemporaryDirectory() as outputs:
                command = [tool, "--clock-control", "none", "--target-processes", "all", "--force-overwrite",
                           "--kernel-name", f"regex:^({names})$", "--section", "SourceCounters", "--metrics",
                           ",".join(metrics), "--export", str(report), sys.executable, str(HERE / "run.py"),
                           str(self.folder), outputs]
                output, code, seconds = bounded(command, 120)
            self.say(f"ncu: exit {code} after {seconds} s")
            print(output[:3000], "...", output[-3000:], sep="\n", file=self.log)
            if report.exists():
                break
            errors = " ".join(line for line in output.splitlines() if "ERROR" in line)
            unknown = {name for name in metrics if re.search(rf"\b{re.escape(name.removesuffix('.sum'))}\b", errors)}
            if not unknown:
                # The error names none: leave out what a query does not list.
                known, _, _ = bounded([tool, "--query-metrics", "--chips", "gh100"], 60)
                unknown = {f"{name}.sum" for name in SUM if not re.search(rf"\b{name}\b", known)} | set(PLAIN)
            self.say(f"without {sorted(unknown)}")
            metrics = [name for name in metrics if name not in unknown]
        for page in ("raw", "source"):
            command = [tool, "--import", str(report), "--csv", "--page", page, "--print-units", "base"]
            output, code, _ = bounded(command, 60)
            self.say(f"ncu page {page}: exit {code}, {len(output)} characters")
            (self.out / {"raw": "profile.csv", "source": "source.csv"}[page]).write_text(output)
            parse, file = {"raw": (counters, "profile.json"), "source": (instructions, "instructions.json")}[page]
            (self.out / file).write_text(json.dumps(parse(output)))


def main():
    parser = argparse.ArgumentParser(description="Run NVIDIA's compute-sanitizer and ncu.")
    parser.add_argument("export", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--jobs", type=int, default=12, help="runs of compute-sanitizer at a time")
    parser.add_argument("--seconds", type=float, default=110, help="when to begin no more runs of other tools")
    parser.add_argument("--hang", type=float, default=20, help="longest time of a run")
    parser.add_argument("--sanitizer", default="compute-sanitizer", help="another compute-sanitizer")
    parser.add_argument("--ncu", default="ncu", help="another ncu")
    parser.add_argument("--launch", metavar="KERNEL", help="only launch this kernel")
    arguments = parser.parse_args()

    planted = json.loads((arguments.export / "planted.json").read_text())
    cases = json.loads((arguments.export / "cases.json").read_text())
    if (planted["format"], cases["format"]) != (1, 1):
        print("this format is not known here: use the vendor.py of the export", file=sys.stderr)
        return 2
    export = {"folder": arguments.export, "planted": planted["kernels"], "cases": cases["cases"]}
    if arguments.launch:
        return launch(export, arguments.launch)

    arguments.out.mkdir(parents=True, exist_ok=True)
    vendor = Vendor(arguments, export)
    # In a process of its own: this one must hold no context while others run.
    describe = "import json, run; print(json.dumps(run.Driver('libcuda.so.1').describe()))"
    machine, code, _ = bounded([sys.executable, "-c", describe], 60, cwd=arguments.export)
    vendor.say(machine.strip())
    if code != 0:
        return 2
    vendor.machine = json.loads(machine)
    # Counters count for all processes: ncu runs alone.
    vendor.profile()
    vendor.sanitize()
    vendor.say("done")
    return 0


if __name__ == "__main__":
    sys.exit(main())
