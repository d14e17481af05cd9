"""Graphs: the JIT replays recorded graphs, with copies, changed inputs, variables and sizes."""

import gc
import os

import numpy as np
import pytest
from tinygrad import Device, Tensor, TinyJit, Variable
from tinygrad.engine.realize import get_graph_runtime


class Counter:
    """Counts the calls of one function of the library."""

    def __init__(self, board, name: str):
        self.board, self.name, self.count = board, name, 0

    def __enter__(self):
        self.original = getattr(self.board.lib, self.name)
        setattr(self.board.lib, self.name, self)
        return self

    def __exit__(self, *_):
        setattr(self.board.lib, self.name, self.original)

    def __call__(self, *args):
        self.count += 1
        return self.original(*args)


def numbers(seed: int, count: int = 256) -> Tensor:
    return Tensor(np.random.default_rng(seed).standard_normal(count, dtype=np.float32)).realize()


def chain(x: Tensor, steps: int) -> Tensor:
    for _ in range(steps):
        x = (x * 0.5 + 1).contiguous().realize()
    return x


def expected(x: Tensor, steps: int) -> np.ndarray:
    values = x.numpy()
    for _ in range(steps):
        values = values * np.float32(0.5) + 1
    return values


def test_a_replay_is_one_call(device):
    step = TinyJit(lambda x: chain(x, 20))
    x = numbers(0)
    for _ in range(3):
        step(x)
    with Counter(device.board, "queue_launch") as launches, Counter(device.board, "queue_replay") as replays:
        with Counter(device.board, "graph_set_argument") as arguments:
            result = step(x)
    assert (launches.count, replays.count, arguments.count) == (0, 1, 0)
    np.testing.assert_allclose(result.numpy(), expected(x, 20), rtol=1e-6)


def test_changed_inputs_replace_only_their_arguments(device):
    step = TinyJit(lambda x: chain(x, 5))
    for seed in range(3):
        step(numbers(seed))
    x = numbers(9)
    with Counter(device.board, "graph_set_argument") as arguments:
        result = step(x)
    assert arguments.count <= 1
    np.testing.assert_allclose(result.numpy(), expected(x, 5), rtol=1e-6)


def test_variables_and_sizes_change(device):
    @TinyJit
    def step(x: Tensor, n) -> Tensor:
        part = x[:n]
        return ((part * 2).contiguous().realize().sum() + (part + 1).contiguous().realize().max()).realize()

    x = numbers(1, 64)
    values = x.numpy()
    for size in (5, 7, 64, 1, 33, 64, 2):
        found = step(x, Variable("n", 1, 64).bind(size)).item()
        assert found == pytest.approx(float((values[:size] * 2).sum() + values[:size].max() + 1), rel=1e-5)


def test_copies_inside_a_jit(two_devices):
    @TinyJit
    def step(x: Tensor) -> Tensor:
        far = (x + 1).contiguous().realize().to("ORIN:1").realize()
        return (far * 2).contiguous().realize().to("ORIN").realize() - 3

    for seed in range(6):
        x = numbers(seed)
        np.testing.assert_allclose(step(x).numpy(), (x.numpy() + 1) * 2 - 3, rtol=1e-6)


def test_copy_from_the_cpu_inside_a_jit(device):
    weights = Tensor(np.arange(256, dtype=np.float32), device="CPU").realize()

    @TinyJit
    def step(x: Tensor) -> Tensor:
        return (x + weights.to("ORIN").contiguous().realize()).realize()

    for seed in range(5):
        x = numbers(seed)
        np.testing.assert_allclose(step(x).numpy(), x.numpy() + np.arange(256), rtol=1e-6)


def test_a_graph_and_plain_launches_keep_their_order(device):
    step = TinyJit(lambda x: chain(x, 8))
    x = numbers(3)
    want = expected(x, 8) + 1
    for _ in range(10):
        result = step(x)
        np.testing.assert_allclose((result + 1).numpy(), want, rtol=1e-6)
        # The graph's output is written again by the next replay: an operation in between must see this one's.


def test_replays_in_flight(device):
    step = TinyJit(lambda x: chain(x, 4))
    inputs = [numbers(seed) for seed in range(40)]
    results = [(step(x) + 0).realize() for x in inputs]
    for x, result in zip(inputs, results, strict=True):
        np.testing.assert_allclose(result.numpy(), expected(x, 4), rtol=1e-6)


def test_time_of_a_replay(device):
    step = TinyJit(lambda x: chain(x, 4))
    x = numbers(0)
    for _ in range(3):
        step(x)
    (call,) = step.captured.linear.src
    seconds = get_graph_runtime(call.src[0])((x.uop,), {}, wait=True)
    assert 0 < seconds < 10


def test_hundreds_of_jits_in_one_process(device):
    def resources() -> tuple[int, int]:
        gc.collect()
        device.synchronize()
        return len(os.listdir("/proc/self/fd")), len(open("/proc/self/maps").readlines())

    x = numbers(0, 16)
    values = x.numpy()

    def one(number: int) -> None:
        step = TinyJit(lambda x: ((x + number % 7).contiguous().realize() * 2).realize())
        for _ in range(3):
            result = step(x)
        np.testing.assert_allclose(result.numpy(), (values + number % 7) * 2, rtol=1e-6)

    for number in range(20):
        one(number)
    before = resources()
    for number in range(400):
        one(number)
    after = resources()
    assert after[0] - before[0] < 50 and after[1] - before[1] < 100


def test_random_numbers_at_exit(python):
    out = python(
        """
        import atexit
        # Registered before tinygrad's own function, so it runs after it.
        @atexit.register
        def last():
            from tinygrad import Tensor
            print(Tensor.rand(100).mean().item() < 1, Tensor.randint(10, high=5).max().item() < 5)
        import tinygrad_orin
        from tinygrad import Tensor, TinyJit
        step = TinyJit(lambda x: ((x + 1).realize() * 2).realize())
        for _ in range(4): kept = step(Tensor.rand(10).realize())
        """,
        # tinygrad's pool of compile workers is closed at that time.
        PARALLEL="0",
    )
    assert out.strip() == "True True"


def test_graph_class_is_used(device):
    assert Device["ORIN"].graph.__name__ == "ORINGraph"
