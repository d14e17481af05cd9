"""The C library: structs, prototypes, loading, and the check of its ABI.

This is the only module that names functions of ``libtegra_hcq``. A test compares it with ``tegra_hcq.h``.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_bool,
    c_char,
    c_char_p,
    c_float,
    c_int32,
    c_size_t,
    c_uint8,
    c_uint32,
    c_uint64,
    c_void_p,
)
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._errors import DeviceError, LibraryMissing, raise_status

if TYPE_CHECKING:
    from collections.abc import Generator

ABI = 1
"""TEGRA_HCQ_ABI of the header that this module declares."""

CHECK_VARIABLES = "ORIN_SIM_CHECK", "ORIN_SIM_STRICT"
"""Environment variables that select checks of kernels; see docs/check.md."""

LIBRARY_VARIABLE = "TEGRA_HCQ_LIBRARY"
"""Environment variable that names the library file."""

FILE_NAME = "libtegra_hcq.so"
"""Name of the library in the package."""

SONAME = f"{FILE_NAME}.{ABI}"
"""Name of the library in the system, which `cargo xtask install-library` writes."""


class Properties(Structure):
    """``tegra_hcq_properties``."""

    _fields_ = [
        ("struct_size", c_uint32),
        ("sm_major", c_uint32),
        ("sm_minor", c_uint32),
        ("sm_count", c_uint32),
        ("warps_per_sm", c_uint32),
        ("max_block_threads", c_uint32),
        ("unified_memory", c_uint32),
        ("gpc_count", c_uint32),
        ("l2_bytes", c_uint64),
        ("max_clock_hz", c_uint64),
        ("kind", c_uint8 * 16),
        ("chip", c_uint8 * 64),
    ]


class Dim3(Structure):
    """``tegra_hcq_dim3``."""

    _fields_ = [("x", c_uint32), ("y", c_uint32), ("z", c_uint32)]


class Fault(Structure):
    """``tegra_hcq_fault``."""

    _fields_ = [
        ("struct_size", c_uint32),
        ("kind", c_uint32),
        ("has_address", c_uint32),
        ("has_pc", c_uint32),
        ("address", c_uint64),
        ("pc", c_uint64),
        ("code_offset", c_uint64),
        ("kernel", c_char_p),
        ("reason", c_char_p),
        ("nearest", c_char_p),
        ("text", c_char_p),
        ("grid", Dim3),
        ("block", Dim3),
    ]


class Arg(Structure):
    """``tegra_hcq_arg``."""

    _fields_ = [("kind", c_uint32), ("size", c_uint32), ("value", c_uint64), ("offset", c_uint64)]


class Span(Structure):
    """``tegra_hcq_span``."""

    _fields_ = [
        ("struct_size", c_uint32),
        ("work", c_uint32),
        ("name", c_char_p),
        ("called_ns", c_uint64),
        ("submitted_ns", c_uint64),
        ("start_ns", c_uint64),
        ("end_ns", c_uint64),
        ("bytes", c_uint64),
        ("grid", Dim3),
        ("block", Dim3),
        ("queue", c_uint32),
        ("step", c_int32),
    ]


class KernelAttributes(Structure):
    """``tegra_hcq_kernel_attributes``."""

    _fields_ = [
        ("struct_size", c_uint32),
        ("registers", c_uint32),
        ("static_shared_bytes", c_uint32),
        ("max_dynamic_shared_bytes", c_uint32),
        ("local_bytes", c_uint32),
        ("max_threads", c_uint32),
    ]


class Product(Structure):
    """``tegra_hcq_product``."""

    _fields_ = [
        ("struct_size", c_uint32),
        ("element", c_uint32),
        ("output", c_uint32),
        ("form", c_uint32),
        ("precision", c_uint32),
        ("accumulate", c_uint32),
        ("scale", c_float),
        ("reserved", c_uint32),
        ("batch", c_uint64),
        ("m", c_uint64),
        ("n", c_uint64),
        ("k", c_uint64),
    ]


class QueueOptions(Structure):
    """``tegra_hcq_queue_options``."""

    _fields_ = [("struct_size", c_uint32), ("sleep", c_uint32), ("hold", c_uint32)]


LogCallback = CFUNCTYPE(None, c_uint32, c_char_p, c_char_p, c_void_p)
InterruptCallback = CFUNCTYPE(c_int32, c_void_p)
OutputCallback = CFUNCTYPE(None, c_uint32, c_void_p, c_uint64, c_void_p)

ARG_BUFFER, ARG_VALUE, ARG_BYTES = 0, 1, 2

_STATUS = c_int32
_HANDLE = c_void_p
_OUT = POINTER(c_void_p)
_U64 = POINTER(c_uint64)
_U32 = POINTER(c_uint32)
_SIZE = POINTER(c_size_t)
_TEXT = POINTER(c_char_p)
_ARGS = POINTER(Arg)
_LAUNCH = [Dim3, Dim3, c_uint32, _ARGS, c_size_t]
_COPY = [_HANDLE, c_uint64, _HANDLE, c_uint64, c_uint64]
_FILL = [_HANDLE, c_uint64, c_uint64, c_uint32, c_uint32]
_MULTIPLY = [_HANDLE, POINTER(Product), _ARGS, c_size_t]

PROTOTYPES: dict[str, tuple[Any, list[Any]]] = {
    "tegra_hcq_abi": (c_uint32, []),
    "tegra_hcq_version": (c_char_p, []),
    "tegra_hcq_status_name": (c_char_p, [c_int32]),
    "tegra_hcq_last_error": (c_char_p, []),
    "tegra_hcq_last_fault": (_STATUS, [POINTER(Fault)]),
    "tegra_hcq_set_log": (_STATUS, [c_uint32, LogCallback, c_void_p]),
    "tegra_hcq_set_interrupt": (_STATUS, [InterruptCallback, c_void_p]),
    "tegra_hcq_set_calls": (_STATUS, [_TEXT, c_size_t]),
    "tegra_hcq_device_open": (_STATUS, [c_char_p, c_uint32, _OUT]),
    "tegra_hcq_device_close": (_STATUS, [_HANDLE]),
    "tegra_hcq_device_properties": (_STATUS, [_HANDLE, POINTER(Properties)]),
    "tegra_hcq_device_memory": (_STATUS, [_HANDLE, _U64, _U64]),
    "tegra_hcq_device_clocks": (_STATUS, [_HANDLE, _U64, _U64]),
    "tegra_hcq_device_recover": (_STATUS, [_HANDLE, _U32, _U32]),
    "tegra_hcq_device_trim": (_STATUS, [_HANDLE, _U64]),
    "tegra_hcq_device_set_output": (_STATUS, [_HANDLE, OutputCallback, c_void_p]),
    "tegra_hcq_device_printf_bytes": (_STATUS, [_HANDLE, _U64]),
    "tegra_hcq_device_set_printf_bytes": (_STATUS, [_HANDLE, c_uint64]),
    "tegra_hcq_device_kernel_heap_bytes": (_STATUS, [_HANDLE, _U64]),
    "tegra_hcq_device_set_kernel_heap_bytes": (_STATUS, [_HANDLE, c_uint64]),
    "tegra_hcq_buffer_alloc": (_STATUS, [_HANDLE, c_uint64, c_uint32, _OUT]),
    "tegra_hcq_buffer_import": (_STATUS, [_HANDLE, c_void_p, c_uint64, _OUT]),
    "tegra_hcq_buffer_alloc_shared": (_STATUS, [_HANDLE, c_uint64, _OUT]),
    "tegra_hcq_buffer_import_file": (_STATUS, [_HANDLE, c_int32, c_bool, _OUT]),
    "tegra_hcq_buffer_export": (_STATUS, [_HANDLE, c_bool, POINTER(c_int32)]),
    "tegra_hcq_buffer_begin_cpu": (_STATUS, [_HANDLE, c_bool]),
    "tegra_hcq_buffer_end_cpu": (_STATUS, [_HANDLE, c_bool]),
    "tegra_hcq_buffer_free": (_STATUS, [_HANDLE]),
    "tegra_hcq_buffer_size": (_STATUS, [_HANDLE, _U64]),
    "tegra_hcq_buffer_gpu_address": (_STATUS, [_HANDLE, _U64]),
    "tegra_hcq_buffer_cpu_address": (_STATUS, [_HANDLE, _OUT]),
    "tegra_hcq_buffer_set_name": (_STATUS, [_HANDLE, c_char_p]),
    "tegra_hcq_buffer_wait": (_STATUS, [_HANDLE, c_uint64]),
    "tegra_hcq_buffer_write": (_STATUS, [_HANDLE, c_uint64, c_void_p, c_uint64]),
    "tegra_hcq_buffer_read": (_STATUS, [_HANDLE, c_uint64, c_void_p, c_uint64]),
    "tegra_hcq_fence_wait": (_STATUS, [_HANDLE, c_uint64]),
    "tegra_hcq_fence_poll": (_STATUS, [_HANDLE, POINTER(c_bool)]),
    "tegra_hcq_fence_eventfd": (_STATUS, [_HANDLE, c_uint64, POINTER(c_int32)]),
    "tegra_hcq_fence_free": (_STATUS, [_HANDLE]),
    "tegra_hcq_graph_begin": (_STATUS, [_HANDLE, _OUT]),
    "tegra_hcq_graph_set_instances": (_STATUS, [_HANDLE, c_size_t]),
    "tegra_hcq_graph_launch": (_STATUS, [_HANDLE, _HANDLE, *_LAUNCH, _U32]),
    "tegra_hcq_graph_copy": (_STATUS, [_HANDLE, *_COPY, _U32]),
    "tegra_hcq_graph_fill": (_STATUS, [_HANDLE, *_FILL, _U32]),
    "tegra_hcq_graph_build": (_STATUS, [_HANDLE, _OUT]),
    "tegra_hcq_graph_abandon": (_STATUS, [_HANDLE]),
    "tegra_hcq_graph_set_argument": (_STATUS, [_HANDLE, c_uint32, c_size_t, _ARGS]),
    "tegra_hcq_graph_set_size": (_STATUS, [_HANDLE, c_uint32, Dim3, Dim3]),
    "tegra_hcq_graph_set_copy": (_STATUS, [_HANDLE, c_uint32, *_COPY]),
    "tegra_hcq_graph_len": (_STATUS, [_HANDLE, _SIZE]),
    "tegra_hcq_graph_free": (_STATUS, [_HANDLE]),
    "tegra_hcq_gemm_load": (_STATUS, [_HANDLE, _OUT]),
    "tegra_hcq_gemm_free": (_STATUS, [_HANDLE]),
    "tegra_hcq_graph_multiply": (_STATUS, [_HANDLE, *_MULTIPLY, _U32]),
    "tegra_hcq_queue_multiply": (_STATUS, [_HANDLE, *_MULTIPLY]),
    "tegra_hcq_profile_span_count": (_STATUS, [_HANDLE, _SIZE]),
    "tegra_hcq_profile_span": (_STATUS, [_HANDLE, c_size_t, POINTER(Span)]),
    "tegra_hcq_profile_table": (_STATUS, [_HANDLE, _TEXT]),
    "tegra_hcq_profile_write_trace": (_STATUS, [_HANDLE, c_char_p]),
    "tegra_hcq_profile_free": (_STATUS, [_HANDLE]),
    "tegra_hcq_program_load": (_STATUS, [_HANDLE, c_void_p, c_uint64, _OUT]),
    "tegra_hcq_program_compile": (_STATUS, [_HANDLE, c_char_p, c_char_p, _TEXT, c_size_t, _OUT]),
    "tegra_hcq_program_compile_ptx": (_STATUS, [_HANDLE, c_char_p, _TEXT, c_size_t, _OUT]),
    "tegra_hcq_program_free": (_STATUS, [_HANDLE]),
    "tegra_hcq_program_kernel_count": (_STATUS, [_HANDLE, _SIZE]),
    "tegra_hcq_program_kernel_name": (_STATUS, [_HANDLE, c_size_t, _TEXT]),
    "tegra_hcq_program_kernel": (_STATUS, [_HANDLE, c_char_p, _OUT]),
    "tegra_hcq_kernel_free": (_STATUS, [_HANDLE]),
    "tegra_hcq_kernel_name": (_STATUS, [_HANDLE, _TEXT]),
    "tegra_hcq_kernel_parameters": (_STATUS, [_HANDLE, _U32, c_size_t, _SIZE]),
    "tegra_hcq_kernel_get_attributes": (_STATUS, [_HANDLE, POINTER(KernelAttributes)]),
    "tegra_hcq_program_read_variable": (_STATUS, [_HANDLE, c_char_p, c_void_p, c_uint64]),
    "tegra_hcq_program_write_variable": (_STATUS, [_HANDLE, c_char_p, c_void_p, c_uint64]),
    "tegra_hcq_queue_open": (_STATUS, [_HANDLE, POINTER(QueueOptions), _OUT]),
    "tegra_hcq_queue_close": (_STATUS, [_HANDLE]),
    "tegra_hcq_queue_launch": (_STATUS, [_HANDLE, _HANDLE, *_LAUNCH]),
    "tegra_hcq_queue_copy": (_STATUS, [_HANDLE, *_COPY]),
    "tegra_hcq_queue_fill": (_STATUS, [_HANDLE, *_FILL]),
    "tegra_hcq_queue_upload": (_STATUS, [_HANDLE, _HANDLE, c_uint64, c_void_p, c_uint64, _OUT]),
    "tegra_hcq_queue_submit": (_STATUS, [_HANDLE, _OUT]),
    "tegra_hcq_queue_wait": (_STATUS, [_HANDLE, c_uint64]),
    "tegra_hcq_queue_wait_fence": (_STATUS, [_HANDLE, _HANDLE]),
    "tegra_hcq_queue_wait_signal": (_STATUS, [_HANDLE, _HANDLE, c_uint64]),
    "tegra_hcq_queue_wait_file": (_STATUS, [_HANDLE, c_int32]),
    "tegra_hcq_queue_submit_to_file": (_STATUS, [_HANDLE, POINTER(c_int32)]),
    "tegra_hcq_queue_signal": (_STATUS, [_HANDLE, _HANDLE, c_uint64]),
    "tegra_hcq_queue_memory_barrier": (_STATUS, [_HANDLE]),
    "tegra_hcq_queue_profile": (_STATUS, [_HANDLE, c_bool]),
    "tegra_hcq_queue_take_profile": (_STATUS, [_HANDLE, _OUT]),
    "tegra_hcq_queue_begin_span": (_STATUS, [_HANDLE, c_char_p]),
    "tegra_hcq_queue_end_span": (_STATUS, [_HANDLE]),
    "tegra_hcq_queue_replay": (_STATUS, [_HANDLE, _HANDLE, _OUT]),
    "tegra_hcq_signal_create": (_STATUS, [_HANDLE, c_uint64, _OUT]),
    "tegra_hcq_signal_free": (_STATUS, [_HANDLE]),
    "tegra_hcq_signal_set": (_STATUS, [_HANDLE, c_uint64]),
    "tegra_hcq_signal_value": (_STATUS, [_HANDLE, _U64]),
    "tegra_hcq_signal_gpu_time": (_STATUS, [_HANDLE, _U64]),
    "tegra_hcq_signal_wait": (_STATUS, [_HANDLE, c_uint64, c_uint64]),
}
"""Result and argument types of every function."""

_OK, _FAULT, _INTERRUPTED = 0, 2, 13

_library: ctypes.CDLL | None = None
_loading = threading.Lock()


def _declare(library: ctypes.CDLL, path: str) -> None:
    try:
        library.tegra_hcq_abi.restype = c_uint32
        found = library.tegra_hcq_abi()
    except AttributeError:
        raise DeviceError(f"{path} is not libtegra_hcq: it has no function tegra_hcq_abi") from None
    if found != ABI:
        raise DeviceError(
            f"{path} has ABI {found}, and this package needs ABI {ABI}: "
            "install the package and the library of one release"
        )
    for name, (result, arguments) in PROTOTYPES.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments


def _name_environment() -> None:
    """Sets VIRTUAL_ENV for an interpreter of a virtual environment that was started without activation: the library
    looks for NVIDIA's compilers there.
    """
    if sys.prefix != sys.base_prefix and not os.environ.get("CONDA_PREFIX"):
        os.environ.setdefault("VIRTUAL_ENV", sys.prefix)


def _calls() -> list[bytes]:
    """The calls of the program, outside of the packages over the library, innermost first."""
    calls: list[bytes] = []
    frame = sys._getframe(1)
    while frame is not None and len(calls) < 4:
        code = frame.f_code
        if str(frame.f_globals.get("__name__")).partition(".")[0] not in ("tegra_hcq", "tinygrad_orin"):
            name = getattr(code, "co_qualname", code.co_name)  # Python 3.11.
            calls.append(f"{name} at {code.co_filename}:{frame.f_lineno}".replace("\0", "").encode("utf-8", "replace"))
        frame = frame.f_back  # type: ignore[assignment]
    return calls


def _name_calls(library: ctypes.CDLL) -> None:
    """Makes findings of the checks show Python's calls: each function of the library gets them before it runs."""

    def naming(function: Any) -> Any:
        def call(*arguments: object) -> object:
            calls = _calls()
            set_calls((c_char_p * len(calls))(*calls), len(calls))
            return function(*arguments)

        return call

    set_calls = library.tegra_hcq_set_calls
    for name in PROTOTYPES:
        if name not in ("tegra_hcq_set_calls", "tegra_hcq_last_error", "tegra_hcq_last_fault"):
            setattr(library, name, naming(getattr(library, name)))


def _load() -> ctypes.CDLL:
    chosen = os.environ.get(LIBRARY_VARIABLE)
    packed = Path(__file__).with_name(FILE_NAME)
    # The last one is found by the dynamic loader: in LD_LIBRARY_PATH and the system's folders.
    path = chosen or (str(packed) if packed.exists() else SONAME)
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise LibraryMissing(
            f"{FILE_NAME} cannot be loaded: {error}. Install a wheel of tegra-hcq for this machine, "
            f"or set {LIBRARY_VARIABLE} to the library's file"
        ) from None
    _declare(library, path)
    _name_environment()
    if any(os.environ.get(name) for name in CHECK_VARIABLES):
        _name_calls(library)
    return library


def lib() -> Any:
    """The library, loaded on first use."""
    global _library
    if _library is None:
        with _loading:
            if _library is None:
                _library = _load()
    return _library


raised: list[BaseException] = []
"""The exception of a signal's handler that has ended a wait, until it is raised."""


def _handle_signals() -> Generator[int, object, None]:
    """Lets Python run the handlers of signals; answers 1 once one of them has raised an exception.

    A function in its place could not catch the exception: handlers run at its first instruction, before any ``try``. A
    generator resumes inside of its ``try``.
    """
    while True:
        try:
            while True:
                yield 1 if raised else 0
        except GeneratorExit:
            return
        except BaseException as error:
            raised.append(error)


_handler = _handle_signals()
next(_handler)
_interrupt = InterruptCallback(_handler.send)
_watched: int | None = None


def watch_signals() -> None:
    """Makes waits of the main thread, which runs the handlers of signals, call them."""
    global _watched
    here = threading.get_ident()
    if _watched != here and threading.current_thread() is threading.main_thread():
        lib().tegra_hcq_set_interrupt(_interrupt, None)
        _watched = here


def raise_interrupt() -> None:
    """Raises the exception that has ended a wait of the last call of this thread."""
    if raised and threading.get_ident() == _watched:
        raise raised.pop(0)


def text(value: bytes | None) -> str | None:
    """A C string; ``None`` for NULL."""
    return None if value is None else value.decode("utf-8", "replace")


def check(status: int) -> None:
    """Raises the exception of a failed call of this thread."""
    if status == _OK:
        return
    if status == _INTERRUPTED:
        raise_interrupt()
        raise KeyboardInterrupt
    library = lib()
    message = text(library.tegra_hcq_last_error()) or ""
    found: Fault | None = None
    if status == _FAULT:
        found = Fault()
        found.struct_size = ctypes.sizeof(Fault)
        if library.tegra_hcq_last_fault(ctypes.byref(found)) != _OK:
            found = None
    raise_status(status, message, found)


def fixed_text(field: ctypes.Array[c_uint8] | ctypes.Array[c_char]) -> str:
    """The string in a fixed array of bytes."""
    return bytes(field).split(b"\0", 1)[0].decode("utf-8", "replace")
