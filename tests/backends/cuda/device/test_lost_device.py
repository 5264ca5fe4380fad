"""What a failing GPU says: typed errors, and a tuner that survives the process that was lost."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

from akx.backends.cuda.device.facts import cuda_missing
from akx.core.errors import DeviceMemoryError
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.tuner.sandbox import Sandbox
from akx.tuner.trial.problem import Problem

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(cuda_missing() is not None, reason=str(cuda_missing())),
]

_SOURCE = """
extern "C" __global__ void stray(unsigned long long address) {
    *reinterpret_cast<volatile double *>(address) = 1.0;
}
"""
#: Defines ``stray()``, which has a kernel write where there is nothing.
_STRAY = """
from pathlib import Path
import numpy as np
from akx.backends.cuda.device.compile import load
from akx.backends.cuda.device.facts import cuda_device
from akx.backends.cuda.device.launch import synchronize
from akx.core.errors import DeviceError, IllegalAddressError

def stray():
    load(Path({source!r}), {{}}, device=cuda_device()).kernel("stray").launch(1, 1, [np.uint64(8)])
    synchronize()
"""


@pytest.fixture
def stray(tmp_path: Path) -> str:
    source = tmp_path / "stray.cu"
    source.write_text(_SOURCE)
    return _STRAY.format(source=str(source))


def test_an_illegal_address_is_named_and_stays(stray: str) -> None:
    program = f"""{stray}
from akx.backends.cuda.device.memory import empty
for doing in (stray, lambda: empty(1 << 22, np.float64)):
    try:
        doing()
    except DeviceError as error:
        print(type(error).__name__, error.found)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=120)
    assert run.stdout.splitlines() == 2 * ["IllegalAddressError CUDA_ERROR_ILLEGAL_ADDRESS"], run.stderr[-2000:]


def test_a_candidate_that_strays_is_told_and_the_next_one_runs(stray: str) -> None:
    problem = Problem(Matrix.from_any(sp.eye_array(40, format="csr")), 2)
    program = f"""{stray}
from akx.backends import registry
from akx.tuner import sandbox
found = registry.get

def get(backend, schedule):
    chosen = found(backend, schedule)

    class Straying(type(chosen)):
        def prepare(self, matrix, plan):
            program = chosen.prepare(matrix, plan)
            if plan.variant == "csr-2":
                program.run = lambda *_: stray()
            return program

    return Straying()

registry.get = get
sandbox.main()
"""
    sandbox = Sandbox(problem, command=[sys.executable, "-c", program])
    try:
        assert sandbox.reason_against(Plan("cuda", "sweep", "csr-1", k=2)) is None
        reason = sandbox.reason_against(Plan("cuda", "sweep", "csr-2", k=2)) or ""
        assert "illegal address" in reason
        assert sandbox.reason_against(Plan("cuda", "sweep", "csr-1", k=2)) is None
    finally:
        sandbox.close()


def test_memory_that_is_not_there_is_a_typed_error_and_the_device_goes_on() -> None:
    from akx.backends.cuda.device.memory import empty, to_device

    with pytest.raises(DeviceMemoryError, match="out of memory"):
        empty(1 << 40, np.float64)
    assert to_device(np.arange(5.0)).get().tolist() == [0, 1, 2, 3, 4]
