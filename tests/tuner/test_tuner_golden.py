"""Plans of untuned calls, frozen: what is predicted for the gallery and for real matrices on devices by their facts.

Nothing of this machine has a say: devices, their figures and the threads are those below. The file is
``tests/golden/predict.json``, a line for each plan; ``AKX_UPDATE_GOLDEN=1 pytest tests/tuner/test_tuner_golden.py``
writes it anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from cli.golden import check_lines
from scipy import sparse

from akx.backends.cuda.device.facts import CudaDevice
from akx.backends.host import HostDevice
from akx.core.errors import BudgetError
from akx.core.matrix import Matrix
from akx.cost.calibration import Calibration
from akx.cost.device_model import Figures, FormatCost
from akx.tuner import predict
from benchmarks import elements, gallery, solving

_MIB = 2**20
EPYC = HostDevice("AMD EPYC of 2022", 2, 32 * 1024, _MIB, 16 * _MIB)
SMALL = HostDevice("small caches", 4, 32 * 1024, _MIB // 8, _MIB // 2)
H100 = CudaDevice(
    "NVIDIA H100", 0, (9, 0), 132, 232_448, 233_472, 65_536, 50 * _MIB, 80 * 2**30, 1_980_000_000, 3.35e12
)
#: A seventh of it, as its partitions are: what fits the whole chip does not fit this one.
SLICE = replace(
    H100, name="NVIDIA H100 1g", sms=16, l2_bytes=6 * _MIB, memory_bytes=10 * 2**30, memory_bandwidth_hint=4e11
)
BUDGET = replace(H100, name="NVIDIA H100, 1 MiB", budget=_MIB)
#: As calibrated on one of each; the others have guesses.
FIGURES = {
    EPYC: Figures(
        slow_bandwidth=3.97e10,
        last_level_bandwidth=1.68e11,
        cache_bandwidth=2.11e11,
        flops=6e9,
        synchronisation=2.1e-7,
        last_level_bytes=EPYC.l3_bytes,
        waking=7.9e-7,
        formats={
            "csr": FormatCost(3.45e-10, 8.5e-10, uneven=8.6e-9, scattered=2.1e-10),
            "csr16": FormatCost(3.5e-10, 7.7e-10, uneven=8.6e-9, scattered=1.9e-10),
            "sell": FormatCost(3.06e-10, 2.6e-10, sorted=4e-10, scattered=3.7e-10),
            "sell16": FormatCost(2.8e-10, 3.7e-10, sorted=4.7e-10, scattered=3.7e-10),
            "dia": FormatCost(1.92e-10, 0.0),
            "bell": FormatCost(1.157e-10, 5.4e-10),
            "bell16": FormatCost(1.161e-10, 5.6e-10),
            "inode": FormatCost(8.74e-11, 1.25e-9),
            "inode16": FormatCost(8.7e-11, 1.25e-9),
        },
        foreseen=1.9e5,
    ),
    H100: Figures(
        slow_bandwidth=3.01e12,
        last_level_bandwidth=8.51e12,
        cache_bandwidth=3.31e13,
        flops=8.36e12,
        synchronisation=1.45e-6,
        last_level_bytes=H100.l2_bytes,
        barrier=1.87e-6,
        link_bandwidth=1.008e11,
        link_one_way=5.52e10,
    ),
}
#: The gallery, full or so large that it is beyond the caches of the smaller devices; its few values where it has some.
GALLERY: dict[str, Callable[[], Any]] = {
    "pentadiagonal": lambda: gallery.pentadiagonal(constant=True),
    "9-point": lambda: gallery.stencil((400, 400), 9, constant=True),
    "mc2depi": lambda: gallery.epidemic(300),
    "brick": lambda: elements.brick((9, 9, 110)),
    "shell": lambda: elements.shell((50, 50)),
    "27-point": lambda: gallery.stencil((26, 26, 26), 27, constant=True),
    "7-point": lambda: gallery.stencil((40, 40, 40), 7, constant=True),
    "delaunay": lambda: gallery.delaunay(20_000, constant=True),
    "tetrahedra": lambda: elements.tetrahedra(3000),
    "rmat": lambda: gallery.rmat(17, 500_000, constant=True),
}
REALS = (
    *("PGPgiantcompo", "bayer10", "bcsstk16", "bcsstk18", "bodyy5", "cage10", "cavity14", "ct2010", "dw8192"),
    *("epb0", "helmholtz_2D", "memplus", "nasa4704", "rail_20209", "sherman3", "tuma1", "wang4"),
)
#: Powers and start vectors of values in double precision, and in single precision, by device.
_DOUBLE = ((1, 1), (4, 1), (8, 1), (16, 1), (8, 4))
PROBLEMS: dict[Any, tuple[tuple[str, int, int], ...]] = {
    EPYC: (*(("double", *one) for one in _DOUBLE), ("single", 8, 1)),
    H100: (*(("double", *one) for one in _DOUBLE), ("single", 8, 1), ("general", 8, 1)),
}
MORE: dict[Any, tuple[tuple[str, int, int], ...]] = {
    SMALL: (("double", 4, 1), ("double", 16, 4), ("single", 8, 1)),
    SLICE: (("double", 4, 1), ("double", 16, 1), ("general", 8, 4)),
    BUDGET: (("double", 8, 1),),
}


@pytest.fixture(autouse=True, scope="module")
def _frozen_figures(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The calibrations that there are."""
    folder = tmp_path_factory.mktemp("machines")
    for device, figures in FIGURES.items():
        Calibration(device.device_class, device.cores, figures, figures, "", "").save(folder)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("AKX_MACHINES", str(folder))
        yield


def of_kinds(matrix: Matrix) -> dict[str, Matrix]:
    """The matrix with its values, with single ones, and with values of which no two are the same; one pattern."""
    single = matrix.data.astype(np.complex64 if matrix.dtype.kind == "c" else np.float32)
    general = np.random.default_rng(1).uniform(-1.0, 1.0, matrix.nnz)
    return {"double": matrix, "single": matrix.with_values(single), "general": matrix.with_values(general)}


def plans(matrix: Matrix, problems: dict[Any, tuple[tuple[str, int, int], ...]]) -> Iterator[tuple[str, str]]:
    """What is asked, and the label of the plan, or that there is none."""
    matrices = of_kinds(matrix)
    for device, asked in problems.items():
        for kind, k, vectors in asked:
            given = {"backend": device.backend, "threads": device.cores, "start_vectors": vectors}
            try:
                answer = predict(matrices[kind], k, device, **given).label()
            except BudgetError as error:
                answer = f"no plan, {error.expected}"
            dtype = f"{'general ' if kind == 'general' else ''}{matrices[kind].dtype}"
            yield f"{device.name}: {dtype} k={k} b={vectors}", answer


@pytest.mark.parametrize("name", GALLERY)
def test_plans_for_the_gallery(name: str) -> None:
    assert set(GALLERY) == set(gallery.GALLERY)
    check_lines("predict.json", name, dict(plans(Matrix.from_any(GALLERY[name]()), PROBLEMS | MORE)))


@pytest.mark.parametrize("name", REALS)
def test_plans_for_real_matrices(name: str, shared_matrices: Any) -> None:
    matrix = Matrix.from_any(sparse.csr_array(solving.load(name, shared_matrices)))
    check_lines("predict.json", name, dict(plans(matrix, PROBLEMS)))
