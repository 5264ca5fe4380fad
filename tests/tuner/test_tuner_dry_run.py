"""Thinking of plans for their code: as a search does, for a GPU without one."""

from __future__ import annotations

import pickle

import pytest
import scipy.sparse as sp

from akx.backends.cuda.device.facts import CudaDevice
from akx.backends.host import host_device
from akx.core.matrix import Matrix
from akx.tuner.online import dry_run as rehearsal

H100 = CudaDevice("H100", 0, (9, 0), 132, 232_448, 233_472, 65_536, 50 * 2**20, 80 * 2**30, 1_980_000_000, 3.35e12)


@pytest.mark.parametrize("device", [None, H100], ids=["host", "GPU"])
def test_it_comes_to_its_end_and_is_named_by_the_backend(
    device: CudaDevice | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rehearsal, "_PLANS", 3)
    code, module, name, asked = pickle.loads(pickle.dumps(rehearsal.job(3, device)))
    assert code == ("thinking", "cpu" if device is None else "cuda")
    assert asked == (3, device or host_device())
    assert (module, name) == (rehearsal.__name__, "dry_run")
    bands = sp.diags_array([1.0, -2.0, 1.0], offsets=[-1, 0, 1], shape=(400, 400), format="csr")
    rehearsal.dry_run(asked, Matrix.from_any(bands), 1)
