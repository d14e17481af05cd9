"""The library's events in Python's logging."""

from __future__ import annotations

import atexit
import logging
import queue
import threading
import traceback
from typing import Any

from . import _checks, _ffi
from ._resource import call, free_deferred, in_callback

TRACE = 5
"""Level of the most detailed events, below ``logging.DEBUG``."""

_LEVELS = {1: logging.ERROR, 2: logging.WARNING, 3: logging.INFO, 4: logging.DEBUG, 5: TRACE}

# The library calls from any thread, perhaps with locks held, and must not be called back. So the callback only stores
# the event; a thread passes it to logging, whose handlers may take time and call anything.
_events: queue.SimpleQueue[tuple[int, str, str] | None] = queue.SimpleQueue()
_thread: threading.Thread | None = None
_changing = threading.Lock()


def _receive(level: int, module: bytes | None, text: bytes | None, _user: Any) -> None:
    in_callback(True)
    try:
        _events.put((level, _ffi.text(module) or "", _ffi.text(text) or ""))
    finally:
        in_callback(False)


_callback = _ffi.LogCallback(_receive)


def _deliver(root: str) -> None:
    while True:
        event = _events.get()
        try:
            free_deferred()
            if event is None:
                return
            level, module, text = event
            name = ".".join(part for part in (root, *module.split("::")) if part)
            logging.getLogger(name).log(_LEVELS.get(level, logging.DEBUG), "%s", text)
        except BaseException:
            # Of a handler or filter. Without this thread, later events would pile up.
            if logging.raiseExceptions:
                traceback.print_exc()


def enable_logging(level: int = logging.INFO, root: str = "tegra_hcq.native") -> None:
    """Passes the library's events to Python's logging.

    The logger of an event is named after its module: "tegra_hcq.native.tegra_hcq.device". A thread of the package calls
    the handlers, in the order of the events. An exception of a handler is printed if ``logging.raiseExceptions`` is
    set, and logging goes on.

    :param level: least severe level that is passed: ``logging.WARNING``, ``INFO``, ``DEBUG`` or :data:`TRACE`.
        Loggers and handlers have levels of their own.
    :param root: prefix of the loggers' names
    """
    global _thread
    level, prefix = _checks.integer(level, "level", 1 << 31), _checks.string(root, "root").decode()
    most = max((number for number, known in _LEVELS.items() if known >= level), default=0)
    disable_logging()
    with _changing:
        _thread = threading.Thread(target=_deliver, args=(prefix,), name="tegra_hcq-log", daemon=True)
        _thread.start()
        call("tegra_hcq_set_log", most, _callback, None)


def disable_logging() -> None:
    """Stops :func:`enable_logging`, after all events so far were handled."""
    global _thread
    with _changing:
        thread, _thread = _thread, None
        if thread is None:
            return
        call("tegra_hcq_set_log", 0, _ffi.LogCallback(), None)
        _events.put(None)
    if thread is not threading.current_thread():
        thread.join(10)


# The interpreter cannot run the callback any more after its end.
atexit.register(disable_logging)
