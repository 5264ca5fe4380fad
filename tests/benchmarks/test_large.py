"""Host memory of large matrices: at its peak three times the bytes of CSR at most, the vectors apart."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

import akx
from akx.backends.cpu import program
from akx.backends.cuda.schedules.stream.rows import fits_device
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.core.process import environment
from benchmarks.large import grid

#: Some million entries: a layout, or a candidate, is no small thing beside code that is loaded meanwhile.
_SIDE, _OTHERWISE = 72, 20 << 20
#: As a matrix of gigabytes is tuned: no programs are kept beside the baseline, as they would be too large together, and
#: the memory's rate is measured with what is small beside them.
_MEASURE = """
import json, sys
import akx
from akx.backends.cpu import device_model
from akx.tuner.search import run_off
from akx.tuner.trial import bench
from benchmarks import large
bench.KEEP_BYTES = run_off.KEEP_BYTES = 0
device_model._MOST_READ = 8 << 20
large.STEPS["tuned"] = lambda A, backend, _: lambda: akx.tune(A, 8, backend=backend, trials=2, seconds=9, db=False)
print(json.dumps(large.measured(sys.argv[1], int(sys.argv[2]), "cpu", 0)))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of a process is read as Linux says it")
@pytest.mark.parametrize("step", ["predicted", "tuned"])
def test_three_times_the_matrix_at_most(step: str) -> None:
    command = [sys.executable, "-c", _MEASURE, step, str(_SIDE)]
    own = environment() | {"MALLOC_MMAP_THRESHOLD_": str(1 << 18)}  # arrays that are gone are gone, as large ones are
    done = subprocess.run(command, env=own, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["nnz"] > 2_000_000
    assert 1 < found["peak"] <= 3 + _OTHERWISE / found["csr_bytes"]


def test_the_grid_has_its_own_value_in_every_entry() -> None:
    A = grid(6)
    assert A.has_canonical_format
    assert np.unique(A.data).size == A.nnz == 7 * 6**3 - 6 * 6**2
    assert set((A.tocoo().col - A.tocoo().row).tolist()) == {-36, -6, -1, 0, 1, 6, 36}
    assert A.sum(axis=1).max() < 1


@pytest.mark.parametrize("variant", ["dia", "sell16", "csr"])
def test_new_values_find_their_places_without_a_map_that_was_kept(
    variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "_LARGE_MAP", 1)
    A, x = grid(8), np.arange(512.0)
    operator = akx.MatrixPowers(A, 3, plan=Plan("cpu", "sweep", variant, k=3), backend="cpu")
    for factor in (1.0, 2.0, -0.5):
        B = factor * A
        if factor != 1:
            operator.update_values(B)
        np.testing.assert_allclose(operator(x)[:, 3], B @ (B @ (B @ x)), rtol=1e-12)


def test_entries_that_32_bits_do_not_number_stream_although_they_fit() -> None:
    sizes = {"n": 1000, "dtype": np.dtype(np.float64)}
    small, large = (Matrix.__new__(Matrix) for _ in range(2))
    vars(small).update(sizes, nnz=2**31)
    vars(large).update(sizes, nnz=2**32)
    assert fits_device(small, 8, 2**40)
    assert not fits_device(large, 8, 2**40)
