"""Programs and kernels."""

from __future__ import annotations

import ctypes
import weakref
from ctypes import byref, c_char_p, c_size_t, c_uint32, c_void_p
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import _arguments, _checks, _ffi
from ._errors import OutOfMemory
from ._memory import Exported
from ._resource import Owned, Resource, call, raw

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ._arguments import Dim, KernelArg
    from ._device import Device
    from ._queue import Queue


@dataclass(frozen=True)
class KernelAttributes:
    """Resources of a kernel."""

    registers: int
    """Registers of a thread."""
    static_shared_bytes: int
    """Static shared memory of a block in bytes."""
    max_dynamic_shared_bytes: int
    """Largest dynamic shared memory of a block in bytes."""
    local_bytes: int
    """Local memory of a thread in bytes."""
    max_threads: int
    """Largest number of threads of a block."""


class Program(Resource):
    """A loaded cubin, made by :meth:`Device.load`, :meth:`Device.compile` and :meth:`Device.compile_ptx`.

    ``program["name"]`` is the kernel of that name, ``list(program)`` are the names.
    """

    def __init__(self, owned: Owned, device: Device) -> None:
        super().__init__(owned, device._state, "program")
        self._opener = device
        self._kernels: weakref.WeakValueDictionary[str, Kernel] = weakref.WeakValueDictionary()

    @property
    def kernel_names(self) -> tuple[str, ...]:
        """Names of all kernels, in the order of the file; mangled for C++ unless they are ``extern "C"``."""
        count = c_size_t()
        call("tegra_hcq_program_kernel_count", self._raw, byref(count))
        names = []
        for index in range(count.value):
            name = c_char_p()
            call("tegra_hcq_program_kernel_name", self._raw, index, byref(name))
            names.append(_ffi.text(name.value) or "")
        return tuple(names)

    def kernel(self, name: str) -> Kernel:
        """The kernel of a name.

        :raises NotFound: if there is none; the text lists the existing ones.
        """
        program, wanted = self._raw, _checks.string(name, "name")
        found = self._kernels.get(name)
        if found is None or found.closed:
            out = c_void_p()
            call("tegra_hcq_program_kernel", program, wanted, byref(out))
            owned = self._device.own(out.value, "tegra_hcq_kernel_free")
            found = self._kernels[name] = Kernel(owned, self._opener, name)
        return found

    def __getitem__(self, name: str) -> Kernel:
        return self.kernel(name)

    def __contains__(self, name: object) -> bool:
        return name in self.kernel_names

    def __iter__(self) -> Iterator[str]:
        return iter(self.kernel_names)

    def __len__(self) -> int:
        return len(self.kernel_names)

    def read_variable(self, name: str, nbytes: int) -> bytes:
        """Waits for the program's launches, then reads its ``__device__`` or ``__constant__`` variable of exactly
        ``nbytes`` bytes.

        :raises NotFound: if there is no such variable.
        :raises InvalidArgument: if it has another size; the text names the size.
        """
        nbytes = _checks.integer(nbytes, "nbytes", (1 << 63) - 1)
        try:
            target = ctypes.create_string_buffer(nbytes)
        except (MemoryError, OverflowError):
            raise OutOfMemory(f"the process has no {nbytes} bytes for a variable") from None
        call("tegra_hcq_program_read_variable", self._raw, _checks.string(name, "name"), target, nbytes)
        return target.raw

    def write_variable(self, name: str, value: object) -> None:
        """Waits for the program's launches, then writes a variable of exactly the size of ``value``, which is an object
        with the buffer protocol: ``bytes``, a numpy array, a ctypes value.

        :raises NotFound: if there is no such variable.
        :raises InvalidArgument: if it has another size; the text names the size.
        """
        with Exported(value, "value") as memory:
            name_bytes = _checks.string(name, "name")
            call("tegra_hcq_program_write_variable", self._raw, name_bytes, memory.address, memory.nbytes)


class Kernel(Resource):
    """A kernel of a program, which stays loaded as long. Call it to launch it, as in PyCUDA::

        add(a, b, total, 1000, grid=4, block=256)

    Each argument is converted by the size of the kernel's parameter, since a cubin has no types:

    - a :class:`Buffer` is a pointer
    - an ``int`` or ``bool`` is an integer of 1, 2, 4 or 8 bytes, signed or unsigned, and must fit
    - a ``float`` is a ``float`` (4 bytes) or ``double`` (8)
    - a numpy scalar, a ctypes value or ``bytes`` is passed as it is, also a struct: the size must be equal

    Pass ``2.0``, not ``2``, for a ``float``: an ``int`` would be passed as the bits of an integer.

    A kernel can write anywhere in the GPU memory of the process. The sizes of its arguments are checked, not what it
    does with them.
    """

    def __init__(self, owned: Owned, device: Device, name: str) -> None:
        super().__init__(owned, device._state, "kernel")
        self._opener = device
        self._name = name
        count = c_size_t()
        call("tegra_hcq_kernel_parameters", self._raw, None, 0, byref(count))
        sizes = (c_uint32 * count.value)()
        call("tegra_hcq_kernel_parameters", self._raw, sizes, count.value, byref(count))
        self._sizes = tuple(sizes)

    @property
    def name(self) -> str:
        """Name of the kernel in the cubin."""
        return self._name

    @property
    def parameter_sizes(self) -> tuple[int, ...]:
        """Sizes of the parameters in bytes."""
        return self._sizes

    @property
    def attributes(self) -> KernelAttributes:
        """Resources of the kernel."""
        found = _ffi.KernelAttributes()
        found.struct_size = ctypes.sizeof(found)
        call("tegra_hcq_kernel_get_attributes", self._raw, byref(found))
        return KernelAttributes(
            found.registers,
            found.static_shared_bytes,
            found.max_dynamic_shared_bytes,
            found.local_bytes,
            found.max_threads,
        )

    def __call__(self, *args: KernelArg, grid: Dim, block: Dim, shared: int = 0, queue: Queue | None = None) -> None:
        """Launches the kernel on a queue, by default :attr:`Device.default_queue`, and submits. Does not wait.

        Views and copies of the buffers wait for it, as do :meth:`Queue.wait` and :meth:`Device.synchronize`. To submit
        several launches at once, or to get a fence, use :meth:`Queue.launch` and :meth:`Queue.submit`.

        :param grid: number of blocks
        :param block: number of threads of a block
        :param shared: dynamic shared memory of a block in bytes
        """
        chosen = self._opener.default_queue if queue is None else queue
        handle = raw(chosen, "queue", "queue")
        chosen.launch(self, *args, grid=grid, block=block, shared=shared)
        call("tegra_hcq_queue_submit", handle, None)

    def _describe(self) -> str:
        return f" {self._name} {list(self._sizes)}"


def launch_arguments(
    kernel: Kernel, args: tuple[object, ...], grid: Dim, block: Dim, shared: int
) -> tuple[list[object], list[object]]:
    """What the C library's functions for launches take after the queue, and what must live during the call."""
    handle = raw(kernel, "kernel", "kernel")
    arguments, kept = _arguments.convert(args, kernel._sizes, kernel._name)
    shared = _checks.integer(shared, "shared", _checks.U32)
    sizes = [_arguments.dim3(grid, "grid"), _arguments.dim3(block, "block")]
    return [handle, *sizes, shared, arguments, len(args)], kept
