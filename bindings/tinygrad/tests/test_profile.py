"""Times of kernels, copies and graphs as tinygrad's profile events."""

import contextlib

from tinygrad import Tensor, TinyJit
from tinygrad.device import Compiled, ProfileDeviceEvent, ProfileGraphEvent, ProfileProgramEvent
from tinygrad.helpers import Context, ProfileRangeEvent, perf_counter_us


def real(count: int) -> Tensor:
    """A tensor in a buffer: tinygrad folds constants and ranges into kernels."""
    return Tensor(list(range(count))).realize()


@contextlib.contextmanager
def profile(device):
    """Collects the events of a block."""
    device.synchronize()
    Compiled.profile_events.clear()
    found = []
    with Context(PROFILE=1):
        yield found
        device.synchronize()
        device._at_profile_finalize()
    found += Compiled.profile_events
    # Recording ends with the next work.
    (Tensor([1]) + 1).tolist()
    assert not device.profile.active


def test_kernels(device):
    x = real(100)
    (x + 3).realize()
    begin = perf_counter_us()
    with profile(device) as events:
        (x + 3).realize()
        (x + 3).realize()
    (registered,) = [event for event in events if isinstance(event, ProfileDeviceEvent)]
    assert registered.device == "ORIN" and registered.tdiff == 0
    ranges = [event for event in events if isinstance(event, ProfileRangeEvent) and event.device == "ORIN"]
    assert len(ranges) == 2
    for event in ranges:
        assert event.name.startswith("E_") and event.profile_key is not None
        assert begin - 1000 < event.st < event.en < perf_counter_us() + 1000
    assert ranges[0].en <= ranges[1].st


def test_programs_are_registered(device):
    with profile(device) as events:
        (real(97) * 31 + 5).realize()
    programs = [event for event in events if isinstance(event, ProfileProgramEvent)]
    assert programs and all(program.lib[:4] == b"\x7fELF" for program in programs)


def test_graph(device):
    step = TinyJit(lambda x: ((x + 1).contiguous().realize() * 2).contiguous().realize().sum().realize())
    x = real(100)
    for _ in range(3):
        step(x)
    with profile(device) as events:
        step(x)
        step(x)
    graphs = [event for event in events if isinstance(event, ProfileGraphEvent)]
    assert len(graphs) == 2
    for graph in graphs:
        assert len(graph.ents) == 3 and len(graph.sigs) == 6 and graph.deps[0] == []
        assert graph.deps[1] == [0] and graph.deps[2] == [1]
        assert all(graph.sigs[e.st_id] <= graph.sigs[e.en_id] for e in graph.ents)
        assert all(e.device == "ORIN" and e.profile_key is not None for e in graph.ents)


def test_nothing_is_recorded_without_profile(device):
    Compiled.profile_events.clear()
    (Tensor.arange(10) + 1).tolist()
    device.synchronize()
    assert not [event for event in Compiled.profile_events if isinstance(event, ProfileRangeEvent)]


def test_profile_of_a_whole_program(python, tmp_path):
    out = python(
        """
        import tinygrad_orin, pickle, atexit
        from tinygrad import Tensor, helpers
        import tinygrad.uop.ops as ops
        def launch_viz(kind, file):
            if kind == "PROFILE": print(kind, len(pickle.load(open(file, "rb"))) > 3)
        ops.launch_viz = launch_viz
        (Tensor([1, 2]) + 1).tolist()
        """,
        PROFILE="1",
        VIZ="0",
        TMPDIR=str(tmp_path),
    )
    assert out.strip().endswith("PROFILE True")
