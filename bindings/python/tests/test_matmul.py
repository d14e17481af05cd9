"""Products of matrices."""

from __future__ import annotations

import gc

import pytest
from conftest import KIND

import tegra_hcq
from tegra_hcq import Device, InvalidArgument, matmul

np = pytest.importorskip("numpy")


def random(*shape: int, dtype: str = "float32") -> np.ndarray:
    seed = sum(shape)
    return (np.random.default_rng(seed).random(shape, np.float32) - 0.5).astype(dtype)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("a_shape, b_shape", [((5, 7), (7, 3)), ((2, 5, 7), (2, 7, 3)), ((2, 5, 7), (7, 3))])
def test_products_are_numpy_s(device: Device, dtype: str, a_shape: tuple[int, ...], b_shape: tuple[int, ...]) -> None:
    a, b, bias = random(*a_shape, dtype=dtype), random(*b_shape, dtype=dtype), random(3)
    left, right, of_bias = map(device.from_numpy, (a, b, bias))
    expected = a.astype(np.float64) @ b.astype(np.float64)
    product = matmul(left, right)
    assert (product.dtype, product.shape) == (dtype, (*a_shape[:-1], 3))
    assert np.abs(product.to_numpy() - expected).max() < (1e-3 if dtype == "float16" else 1e-6)
    out = device.from_numpy(np.ones(product.shape, np.float32))
    turned = device.from_numpy(np.swapaxes(b, -1, -2).copy())
    result = matmul(left, turned, out, bias=of_bias, transpose_b=True, scale=2.0, accumulate=True)
    assert result is out
    assert np.abs(out.to_numpy() - (2 * expected + bias + 1)).max() < 1e-5


def test_tf32_rounds_the_factors(device: Device) -> None:
    a = device.from_numpy(np.full((1, 1), 1 + 2.0**-20, np.float32))
    assert matmul(a, a, precision="tf32").to_numpy()[0, 0] == 1
    assert matmul(a, a).to_numpy()[0, 0] > 1


def test_a_queue_and_a_graph_take_products(device: Device) -> None:
    a = device.from_numpy(random(4, 4))
    squared = a.to_numpy() @ a.to_numpy()
    queue = device.queue()
    first = matmul(a, a, queue=queue)
    second = matmul(first, a, queue=queue)
    queue.wait()
    assert np.abs(second.to_numpy() - squared @ a.to_numpy()).max() < 1e-6
    with device.graph() as builder:
        out = matmul(a, a, queue=builder)
        builder.fill(a)
        graph = builder.build()
    assert len(graph) == 2
    graph.replay()
    assert np.abs(out.to_numpy() - squared).max() < 1e-6
    assert not a.to_numpy().any()


def test_what_does_not_fit_is_refused(device: Device) -> None:
    def zeros(*shape: int, dtype: str = "float32") -> tegra_hcq.Buffer:
        return device.from_numpy(np.zeros(shape, dtype))

    a, b = zeros(2, 3), zeros(3, 4)
    for arguments, options, text in (
        ((a, zeros(4, 4)), {}, "the sizes differ"),
        ((a, b), {"transpose_b": True}, "transposed: the sizes differ"),
        ((zeros(3), b), {}, "at least 2"),
        ((a, zeros(2, 3, 4)), {}, "at least 2"),
        ((zeros(2, 2, 3), zeros(3, 3, 4)), {}, "the sizes differ"),
        ((a, zeros(3, 4, dtype="float16")), {}, "different elements"),
        ((zeros(2, 3, dtype="int32"), b), {}, "a is int32"),
        ((zeros(2, 0), zeros(0, 4)), {}, "no elements"),
        ((a, b, zeros(4, 2)), {}, r"out has shape \(4, 2\)"),
        ((a, b), {"bias": zeros(3)}, "needed are 4 of float32"),
        ((a, b), {"accumulate": True}, "accumulate needs out"),
        ((a, b), {"precision": "half"}, "precision is 'half'"),
        ((a, b), {"queue": a}, "queue must be a queue"),
        ((a, a.part(0, (3, 2)), a.part(0, (2, 2))), {}, "out and a overlap"),
        ((a, 3), {}, "b must be a buffer"),
    ):
        with pytest.raises(InvalidArgument, match=text):
            matmul(*arguments, **options)
    a.close()
    with pytest.raises(tegra_hcq.InvalidHandle):
        matmul(a, b)


def test_the_device_is_found_while_it_exists() -> None:
    device = Device(KIND)
    a = device.from_numpy(random(4, 4))
    queue, out = device.queue(), device.alloc((4, 4), "float32")
    matmul(a, a)
    del device
    gc.collect()
    with pytest.raises(InvalidArgument, match="Device object"):
        matmul(a, a)
    matmul(a, a, out, queue=queue)
    queue.wait()
    assert np.abs(out.to_numpy() - a.to_numpy() @ a.to_numpy()).max() < 1e-6
