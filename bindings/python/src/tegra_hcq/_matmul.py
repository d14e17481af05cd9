"""Products of matrices on the tensor cores."""

from __future__ import annotations

import ctypes
from ctypes import byref, c_void_p
from typing import TYPE_CHECKING, Literal

from . import _dtypes, _ffi
from ._buffer import Buffer
from ._errors import InvalidArgument
from ._graph import GraphBuilder
from ._resource import call, raw

if TYPE_CHECKING:
    from ._device import Device
    from ._queue import Queue
    from ._resource import DeviceState

_ELEMENTS = {"float16": 0, "bfloat16": 1, "float32": 2}
_PRECISIONS = ("full", "tf32")


def matmul(
    a: Buffer,
    b: Buffer,
    out: Buffer | None = None,
    *,
    bias: Buffer | None = None,
    transpose_b: bool = False,
    scale: float = 1.0,
    accumulate: bool = False,
    precision: Literal["full", "tf32"] = "full",
    queue: Queue | GraphBuilder | None = None,
) -> Buffer:
    """``scale * a @ b + bias`` on the GPU's tensor cores: of float16, bfloat16 or float32 buffers of shapes ``(..., m,
    k)`` and ``(..., k, n)``. Returns ``out``, of shape ``(..., m, n)``. Sizes need not be multiples of anything; rows
    that begin at multiples of 16 bytes are fastest.

    Does not wait: views and copies of the result wait for it. Sums are in 32-bit floats and have a fixed order, so the
    same buffers give the same bits.

    :param b: with two dimensions for all matrices of ``a``, or with as many as ``a``
    :param out: float16, bfloat16 or float32, by default a new buffer with ``a``'s elements; overlaps no other operand
    :param bias: ``n`` of float32, added to each row
    :param transpose_b: ``b`` has shape ``(..., n, k)``, like the weights of a layer
    :param accumulate: add the product to the elements that ``out`` has
    :param precision: of float32: "full" has about 22 bits; "tf32" rounds each element to 11 bits, which is faster
    :param queue: the product is added to it, not submitted; of a :class:`GraphBuilder`, a step of the graph. By default
        :attr:`Device.default_queue`, to which it is submitted
    :raises InvalidArgument: if element types or shapes do not fit.
    :raises Unsupported: if the library was built without products of matrices.
    """
    _check_element(a, "a")
    _check_element(b, "b")
    if a.dtype != b.dtype:
        raise InvalidArgument(f"the factors have different elements: {a.dtype} and {b.dtype}")
    if precision not in _PRECISIONS:
        raise InvalidArgument(f"precision is {precision!r}; permitted are {_PRECISIONS}")
    batch, m, n, k = _sizes(a.shape, b.shape, transpose_b)
    state, shape = a._device, (*a.shape[:-1], n)
    if out is None:
        if accumulate:
            raise InvalidArgument("accumulate needs out, whose elements it adds to")
        out = _device(state).alloc(shape, a.dtype)
    _check_element(out, "out")
    if out.shape != shape:
        raise InvalidArgument(f"out has shape {out.shape}, and the product {shape}")
    operands = [a, b, out]
    if bias is not None:
        raw(bias, "buffer", "bias")
        if (bias.dtype, bias.shape) != ("float32", (n,)):
            raise InvalidArgument(f"bias is {bias.dtype} {bias.shape}; needed are {n} of float32")
        operands.append(bias)
    product = _ffi.Product(
        struct_size=ctypes.sizeof(_ffi.Product),
        element=_ELEMENTS[a.dtype],
        output=_ELEMENTS[out.dtype],
        form=1 if transpose_b else 0,
        precision=_PRECISIONS.index(precision),
        accumulate=1 if accumulate else 0,
        scale=float(scale),
        batch=batch,
        m=m,
        n=n,
        k=k,
    )
    arguments = (_ffi.Arg * len(operands))(
        *(_ffi.Arg(_ffi.ARG_BUFFER, 8, operand._raw, operand.offset) for operand in operands)
    )
    rest = [_kernels(state), byref(product), arguments, len(operands)]
    if isinstance(queue, GraphBuilder):
        call("tegra_hcq_graph_multiply", queue._raw, *rest, None)
        return out
    chosen = raw(_device(state).default_queue if queue is None else queue, "queue", "queue")
    call("tegra_hcq_queue_multiply", chosen, *rest)
    if queue is None:
        call("tegra_hcq_queue_submit", chosen, None)
    return out


def _check_element(buffer: Buffer, what: str) -> None:
    raw(buffer, "buffer", what)
    if buffer.dtype not in _ELEMENTS:
        raise InvalidArgument(f"{what} is {buffer.dtype}; permitted are {', '.join(_ELEMENTS)}")


def _sizes(a: tuple[int, ...], b: tuple[int, ...], transposed: bool) -> tuple[int, int, int, int]:
    """Number of products, and m, n and k."""
    if len(a) < 2 or len(b) not in (2, len(a)):
        raise InvalidArgument(f"no product of {a} and {b}: b has two dimensions or as many as a, which has at least 2")
    k, n = reversed(b[-2:]) if transposed else b[-2:]
    if a[-1] != k or (len(b) > 2 and a[:-2] != b[:-2]):
        raise InvalidArgument(f"no product of {a} and {b}{' transposed' if transposed else ''}: the sizes differ")
    if k == 0:
        raise InvalidArgument(f"no product of {a} and {b}: the sums have no elements")
    if len(b) == 2:
        # One product: the rows of all matrices follow each other.
        return 1, _dtypes.count(a[:-1]), n, k
    return _dtypes.count(a[:-2]), a[-2], n, k


def _device(state: DeviceState) -> Device:
    device: Device | None = state.opener()
    if device is None:
        raise InvalidArgument("the Device object of the buffers is gone: keep it, or pass out and queue")
    return device


def _kernels(state: DeviceState) -> int:
    """The kernels of a device, loaded on first use."""
    if state.gemm is None:
        out = c_void_p()
        call("tegra_hcq_gemm_load", state.handle.raw, byref(out))
        state.gemm = state.own(out.value, "tegra_hcq_gemm_free")
    return state.gemm.raw
