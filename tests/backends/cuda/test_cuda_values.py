"""New values from device memory: the maps on the CPU, every kernel compiled, and both together on a GPU."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nvcc import complaints, needs_nvcc
from test_contract import KINDS, fewer, make_coefficients, make_matrix, random_numbers
from test_cuda_layouts import plans

from akx.backends import reference, registry
from akx.backends.cuda.device.facts import cuda_missing
from akx.backends.cuda.program import C_TYPES
from akx.backends.cuda.schedules.sweep.layout import lay_out
from akx.backends.cuda.value_compression import new_values as values
from akx.core.plan import Plan

HERE = Path(__file__).parent
on_a_gpu = pytest.mark.skipif(cuda_missing() is not None, reason=str(cuda_missing()))


def placed(entry: Any, data: Any) -> Any:
    """What the kernel ``place`` writes."""
    return np.array([data[e - 1] if e else 0 for e in entry], dtype=data.dtype)


@pytest.mark.parametrize("kind", KINDS)
def test_the_map_says_what_the_layout_says(kind: str) -> None:
    matrix = make_matrix(kind, 300, "float64", 1)
    for plan in plans(matrix):
        layout = lay_out(matrix, plan)
        layout.fill(matrix.data)
        assert layout.slot is not None
        entry = values.entry_map(layout.slot, layout.stored)
        assert entry.dtype == np.uint32
        np.testing.assert_array_equal(placed(entry, matrix.data), layout.arrays.values, err_msg=plan.label())


def test_the_map_is_made_at_the_first_update_and_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """With fakes for the device: what is launched, over how many places, and the bytes of the map."""
    launched: list[Any] = []

    class Held:
        def __init__(self, array: Any) -> None:
            self.array, self.size, self.nbytes, self.dtype = array, array.size, array.nbytes, array.dtype

    class Kernel:
        def launch(self, grid: int, block: int, arguments: Any) -> None:
            launched.append((grid * block, *arguments))

    monkeypatch.setattr(values, "to_device", Held)
    monkeypatch.setattr(values, "_kernel", lambda name, kept, given: Kernel())
    made = []
    slot = np.array([3, 0, 5], dtype=np.uint32)
    places = values.Places(lambda: made.append(1) or values.entry_map(slot, 6))
    assert places.nbytes == 0
    kept, data = Held(np.zeros(6)), Held(np.array([1.0, 2.0, 3.0]))
    for _ in range(3):
        places.fill(kept, data)  # type: ignore[arg-type]
    assert made == [1]
    assert places.nbytes == 24
    threads, count, entry, given, target = launched[0]
    assert threads * values._EACH >= count == 6
    assert (given, target) == (data, kept)
    np.testing.assert_array_equal(placed(entry.array, data.array), [2, 0, 0, 1, 0, 3])
    launched.clear()
    plain = values.Places(lambda: None)
    plain.fill(kept, data)  # type: ignore[arg-type]
    assert launched[0][1:3] == (3, 0)  # three entries, no map
    assert plain.nbytes == 0
    plain.fill(kept, Held(np.zeros(0)))  # type: ignore[arg-type]
    assert len(launched) == 1


def test_the_compiled_pairs_are_those_that_programs_ask_for() -> None:
    text = (HERE / "every_values.cu").read_text()
    compiled = set(re.findall(r"PLACE\((\w+), (\w+)\)", text)) - {("T", "F")}
    assert compiled == {(C_TYPES[kept], C_TYPES[one]) for kept, given in values.GIVEN.items() for one in given}


@needs_nvcc
def test_every_instance_compiles(tmp_path: Path) -> None:
    assert not (text := complaints([(HERE / "every_values.cu", {})], tmp_path, [])), text


# --------------------------------------------------------------------------------------------------------- on a GPU


@pytest.mark.cuda
@on_a_gpu
@pytest.mark.parametrize("name", [schedule.name for schedule in registry.schedules("cuda")])
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
@pytest.mark.parametrize("kind", ["band", "dense row", "blocks"])
def test_values_from_the_device_are_those_of_the_host(name: str, kind: str, dtype: str) -> None:
    """The same bits as after an update from the host, for data of the program's type and of every narrower one."""
    from test_cuda import default_plans

    from akx.backends.cuda.device.launch import default_stream
    from akx.backends.cuda.device.memory import empty, to_device
    from akx.core.errors import InfeasibleError

    matrix = make_matrix(kind, 1511, dtype, 2)
    rng = np.random.default_rng(5)
    coefficients = make_coefficients("chebyshev", 3, dtype, rng)
    x = random_numbers(rng, (2, matrix.n), dtype)
    held, out = to_device(x), empty((4, *x.shape), dtype)
    plans = default_plans(name, matrix, 3)
    if name == "stream":  # nothing to stream without a budget
        plans = [Plan("cuda", name, variant, k=3, k_per_pass=3, options={"budget": 2**22}) for variant in ("sell-2",)]
    if (name, kind) == ("wavefront", "dense row"):
        assert not plans
        pytest.skip("the slots of a dense row do not fit the shared memory")
    assert plans
    for plan in plans:
        try:
            program = registry.get("cuda", name).prepare(matrix, plan)
        except InfeasibleError:
            continue
        before = program.nbytes
        for given in values.GIVEN[dtype]:
            data = random_numbers(rng, (matrix.nnz,), given)
            found = []
            for one in (data.astype(dtype), to_device(data)):
                program.update_values(matrix.data)
                program.update_values(one)
                out.fill_bytes(255)
                program.run(held, out, coefficients)
                default_stream().synchronize()
                found.append(out.get())
            changed = matrix.with_values(data.astype(dtype))
            assert found[0].tobytes() == found[1].tobytes(), f"{plan.label()} from {given}"
            assert reference.error_ratio(changed, found[1], x, coefficients) <= 1, f"{plan.label()} from {given}"
        assert program.nbytes >= before


@pytest.mark.cuda
@on_a_gpu
@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_what_is_not_finite_is_found_wherever_it_is(dtype: str) -> None:
    from akx.backends.cuda.device.memory import to_device

    rng, largest = np.random.default_rng(0), np.finfo(dtype).max
    for size in (0, 1, 255, 257, fewer(100_003)):
        data = random_numbers(rng, (size,), dtype)
        assert values.all_finite(to_device(data))
        for wrong in (np.nan, np.inf, -np.inf) if size else ():
            for place in {0, size // 2, size - 1}:
                spoilt = data.copy()
                spoilt[place] = wrong if dtype.startswith("float") else complex(0, wrong)
                assert not values.all_finite(to_device(spoilt)), (size, wrong, place)
        data[:] = largest
        assert values.all_finite(to_device(data))
