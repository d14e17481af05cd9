"""Consumes the frames of `cargo run --example share -- produce` on a GPU, in place: the twin of examples/share.rs.

    python examples/share.py share.socket --device sim --json

Exit codes: 0 success; 1 wrong result or lost producer; 2 bad arguments; 130 interrupted.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from pathlib import Path

import tegra_hcq
from tegra_hcq.share import Consumer, Ended

KERNELS = Path(__file__).resolve().parents[1] / "kernels"


def consume(path: str, kind: str) -> tuple[dict[str, object], str]:
    """Consumes until the producer ends; returns what was done, and how it ended."""
    done: list[float] = []
    dropped, end = 0, "interrupted"
    with tegra_hcq.Device(kind) as device, Consumer(path, timeout=10) as consumer:
        arch = device.properties.arch
        add = device.load(KERNELS / ("" if arch == "sm_87" else arch) / "vector_add.cubin")["vector_add"]
        count = consumer.nbytes // 4
        frames = [device.import_file(fd, count, "float32", read_only=True) for fd in consumer.buffers]
        zeros, total = device.from_bytes(bytes(4 * count)), device.alloc(count, "float32")
        with contextlib.suppress(KeyboardInterrupt):
            while True:
                try:
                    frame = consumer.recv(0.1)
                except Ended as ended:
                    end = ended.reason
                    break
                if frame is None:
                    continue
                dropped += frame.dropped
                # On an Orin, queue.wait_file(frame.fence) lets the GPU wait instead.
                frame.wait(10)
                add(frames[frame.index], zeros, total, count, grid=-(-count // 256), block=256)
                with total.view() as result:  # waits for the kernel
                    values = result.cast("f")
                    wanted = float(frame.sequence % 10_000_000)
                    if values[0] != wanted or values[-1] != wanted:
                        raise SystemExit(f"error: frame {frame.sequence} contains {values[0]}")
                frame.release()
                done.append((time.monotonic_ns() - frame.time_ns) / 1000)
    done.sort()
    median = done[len(done) // 2] if done else None
    return {"device": kind, "frames": len(done), "dropped": dropped, "result_us": {"p50": median}}, end


def main() -> int:
    """Parses the arguments and prints the report."""
    parser = argparse.ArgumentParser(description="Consume frames of another process on a GPU, without copies.")
    parser.add_argument("socket", nargs="?", default="share.socket")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    try:
        report, end = consume(options.socket, options.device)
    except (tegra_hcq.TegraError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps({"consumer": report}))
    else:
        print(f"consumed {report['frames']} frames, all right; {report['dropped']} dropped; the producer: {end}")
    return {"closed": 0, "interrupted": 130}.get(end, 1)


if __name__ == "__main__":
    sys.exit(main())
