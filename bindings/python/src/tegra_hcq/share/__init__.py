"""Frames between processes without copies, by the protocol of the Rust crate ``tegra-share``.

One process has a :class:`Producer` with a ring of buffers, any number of others have a :class:`Consumer`. The buffers
are descriptors: those of :meth:`tegra_hcq.Buffer.export`, dma-bufs of a camera, or memfds::

    consumer = share.Consumer("/run/user/1000/camera")
    images = [device.import_file(fd, read_only=True) for fd in consumer.buffers]
    while (frame := consumer.recv(1.0)) is not None:
        with frame:
            frame.wait(1.0)
            kernel(images[frame.index], out, grid=64, block=256)
            queue.synchronize()

This module needs Linux, and no device.
"""

from __future__ import annotations

from ._consumer import Consumer, Frame
from ._producer import Producer, Writable
from ._wire import MAX_BUFFERS, MAX_META, Ended, NoBuffer, Violation

__all__ = ["MAX_BUFFERS", "MAX_META", "Consumer", "Ended", "Frame", "NoBuffer", "Producer", "Violation", "Writable"]
