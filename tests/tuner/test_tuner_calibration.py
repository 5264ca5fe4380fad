"""Calibrations: measured once, kept in a file, and what a file may not do to a prediction."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from akx.backends.cuda.device.facts import CudaDevice
from akx.backends.host import HostDevice, host_device
from akx.backends.memory_budget import within
from akx.core.errors import AkxError, ArgumentError, DatabaseError, DeviceError, DeviceMemoryError
from akx.cost.calibration import Calibration, calibration_folder, check_writable, find_calibration
from akx.cost.device_model import FORMATS, Figures, FormatCost
from akx.cost.rows import branches, missed, surprises, uneven_rows
from akx.tuner.measure import Precision
from akx.tuner.model import calibrate as calibration
from akx.tuner.model.calibrate import calibrate
from akx.tuner.model.figures import ceiling_of, derived_figures, figures_of

#: Nine formats on two matrices, and four of them on four others, four times each; in one turn of all.
_IN_TURN = 2 * 9 + 4 * 4
_TIMED = 4 * _IN_TURN
DEVICE = HostDevice("a processor / of (many) names", 8, 32 * 1024, 2**20, 2**25)


def figures(threads: int, **changes: Any) -> Figures:
    made = Figures(10e9 * threads, 20e9 * threads, 40e9 * threads, 3e9 * threads, 2e-7, 2**25, 1e-6)
    return replace(made, **{"formats": {"csr": FormatCost(5e-10, 2e-9)}, **changes})


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Where calibrations are kept in this test; nothing is shipped."""
    monkeypatch.setenv("AKX_MACHINES", str(tmp_path / "machines"))
    monkeypatch.setattr("akx.cost.calibration._shipped_folder", lambda: tmp_path / "shipped")
    return tmp_path / "machines"


@pytest.fixture
def made() -> Calibration:
    every = figures(8, slow_bandwidth=30e9)
    return Calibration(
        DEVICE.device_class, 8, figures(1), every, "0123456789abcdef", "2026-01-31T12:00:00.000000+00:00"
    )


def test_what_was_kept_is_found_again(folder: Path, made: Calibration) -> None:
    assert find_calibration(DEVICE.device_class) is None
    assert figures_of(DEVICE, 8) == derived_figures(DEVICE, 8)
    path = made.save()
    assert path.parent == folder == calibration_folder()
    assert find_calibration(DEVICE.device_class) == (made, path)
    assert figures_of(DEVICE, 8) == made.all_threads
    assert find_calibration(DEVICE.device_class + "x") is None
    assert [file.name for file in folder.iterdir()] == [path.name]  # nothing temporary is left


def test_a_changed_file_is_read_again(folder: Path, made: Calibration) -> None:
    made.save()
    assert figures_of(DEVICE, 8).slow_bandwidth == 30e9
    replace(made, all_threads=figures(8, slow_bandwidth=31.5e9)).save()
    assert figures_of(DEVICE, 8).slow_bandwidth == 31.5e9
    next(folder.iterdir()).unlink()
    assert figures_of(DEVICE, 8) == derived_figures(DEVICE, 8)


def test_shipped_ones_lie_below_the_users(folder: Path, made: Calibration, tmp_path: Path) -> None:
    shipped = replace(made, all_threads=figures(8, slow_bandwidth=99e9))
    path = shipped.save(tmp_path / "shipped")
    assert find_calibration(DEVICE.device_class) == (shipped, path)
    made.save()
    assert figures_of(DEVICE, 8).slow_bandwidth == 30e9


def test_fewer_threads_have_the_bandwidth_of_one_times_their_number_up_to_that_of_all(made: Calibration) -> None:
    assert made.figures(1) is made.one_thread
    assert made.figures(0) is made.one_thread
    assert made.figures(8) is made.figures(16) is made.all_threads
    two, four = made.figures(2), made.figures(4)
    assert (two.slow_bandwidth, four.slow_bandwidth) == (20e9, 30e9)
    assert (two.cache_bandwidth, four.cache_bandwidth) == (80e9, 160e9)
    assert (two.flops, two.formats, two.waking) == (6e9, made.all_threads.formats, 1e-6)


def test_cores_left_out_do_not_make_another_machine(
    folder: Path, made: Calibration, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = host_device()
    replace(made, device_class=here.device_class).save()
    assert figures_of(replace(here, cores=1), 1) == made.one_thread


def test_more_threads_than_were_calibrated_go_by_guesses(folder: Path, made: Calibration) -> None:
    replace(made, threads=1).save()
    assert figures_of(DEVICE, 8) == derived_figures(DEVICE, 8)
    assert figures_of(DEVICE, 1) == made.one_thread


def test_a_home_that_is_not_known_is_no_error(made: Calibration, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AKX_MACHINES", "~nobody-of-that-name/machines")
    assert find_calibration("no device at all") is None


GPU = CudaDevice("a GPU", 0, (9, 0), 132, 2**17, 2**17, 2**16, 50 * 2**20, 80 * 2**30, 10**9, 3e12)


def test_a_budget_has_the_figures_of_the_link(folder: Path, made: Calibration) -> None:
    limited = within(GPU, 10**9)
    assert figures_of(limited, 1) == derived_figures(limited, 1)
    measured = figures(1, link_bandwidth=7e10, link_one_way=4e10, synchronisation=3e-6)
    replace(made, device_class=GPU.device_class, one_thread=measured, all_threads=measured).save()
    assert figures_of(GPU, 1) == measured
    found = figures_of(limited, 1)
    assert found == replace(measured, slow_bandwidth=7e10, last_level_bandwidth=7e10)
    assert ceiling_of(derived_figures(limited, 1), found, limited, 1) == found, "a guess is no bound"
    for both, one_way in ((7e10, 5.5e10), (4e10, 4e10), (2e11, 1e11)):  # of an akx that measured both together
        older = replace(measured, link_bandwidth=both, link_one_way=0.0)
        replace(made, device_class=GPU.device_class, one_thread=older, all_threads=older).save()
        assert figures_of(limited, 1).link_one_way == one_way


def test_caches_of_a_gpu_that_an_older_akx_did_not_measure_are_guesses(folder: Path, made: Calibration) -> None:
    measured, guess = figures(1, synchronisation=3e-6), derived_figures(GPU, 1)
    replace(made, device_class=GPU.device_class, one_thread=measured, all_threads=measured).save()
    names = ("last_level_bandwidth", "cache_bandwidth", "link_bandwidth", "link_one_way")
    assert figures_of(GPU, 1) == replace(measured, **{name: getattr(guess, name) for name in names})
    limited = within(GPU, 10**9)
    assert figures_of(limited, 1).slow_bandwidth == guess.link_bandwidth > 0


def test_what_a_newer_akx_measures_as_well_is_left_aside(folder: Path, made: Calibration) -> None:
    path = made.save()
    newer = json.loads(path.read_text())
    newer["all_threads"]["colour"] = "red"
    path.write_text(json.dumps(newer))
    assert find_calibration(DEVICE.device_class) == (made, path)


def test_a_link_that_cannot_be_measured_is_a_guess(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> float:
        raise DeviceMemoryError("no page-locked memory")

    monkeypatch.setattr("akx.backends.selection.device_of", lambda backend: GPU)
    monkeypatch.setattr(calibration, "device_lock", lambda device: SimpleNamespace(alone=lambda: nullcontext(True)))
    monkeypatch.setattr(calibration, "_bandwidths", derived_figures)
    monkeypatch.setattr(calibration, "_price_of_step", lambda device, schedule, guess: guess)
    monkeypatch.setattr("akx.backends.cuda.cost.rates.link_rates", none)
    assert calibrate("cuda").all_threads == derived_figures(GPU, 1)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: "not JSON",
        lambda data: [],
        lambda data: {**data, "akx": "plans"},
        lambda data: {**data, "schema": 2},
        lambda data: {**data, "threads": "many"},
        lambda data: {name: value for name, value in data.items() if name != "one_thread"},
        lambda data: {**data, "all_threads": {**data["all_threads"], "slow_bandwidth": 0.0}},
        lambda data: {**data, "all_threads": {**data["all_threads"], "waking": float("nan")}},
        lambda data: {**data, "all_threads": {**data["all_threads"], "formats": {"csr": {"slot": -1.0, "row": 0.0}}}},
        lambda data: {**data, "device_class": "another"},
        lambda data: {**data, "threads": 0},
        lambda data: {**data, "threads": float("inf")},
        lambda data: {**data, "all_threads": {**data["all_threads"], "formats": []}},
        lambda data: {**data, "all_threads": {**data["all_threads"], "formats": None}},
        lambda data: {**data, "all_threads": {**data["all_threads"], "last_level_bytes": float("inf")}},
        lambda data: {**data, "all_threads": {**data["all_threads"], "last_level_bytes": -5}},
        lambda data: {**data, "all_threads": {**data["all_threads"], "cache_bandwidth": 10**400}},
        lambda data: {**data, "all_threads": {**data["all_threads"], "formats": {"dia": {"slot": 1e-9, "row": 0.0}}}},
        lambda data: {**data, "all_threads": {**data["all_threads"], "formats": {"csr": {"slot": 0.0, "row": 0.0}}}},
    ],
)
def test_a_file_that_is_no_good_counts_as_not_there(folder: Path, made: Calibration, spoil: Any) -> None:
    path = made.save()
    spoilt = spoil(json.loads(path.read_text()))
    path.write_text(spoilt if isinstance(spoilt, str) else json.dumps(spoilt))
    assert find_calibration(DEVICE.device_class) is None
    assert figures_of(DEVICE, 8) == derived_figures(DEVICE, 8)


def test_what_is_wrong_is_said_to_who_reads_one() -> None:
    with pytest.raises(ArgumentError, match="no calibration"):
        Calibration.from_json({"akx": "plans"})
    with pytest.raises(ArgumentError, match="another schema"):
        Calibration.from_json({"akx": "machine", "schema": 7})


def test_a_folder_that_cannot_be_written_is_an_error_that_says_what_to_do(
    made: Calibration, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("AKX_MACHINES", str(tmp_path / "file" / "machines"))
    for attempt in (made.save, check_writable):
        with pytest.raises(DatabaseError, match="AKX_MACHINES"):
            attempt()


def test_a_look_whether_a_calibration_can_be_kept_leaves_nothing(folder: Path) -> None:
    check_writable()
    assert list(folder.iterdir()) == []


def test_a_calibration_that_was_disturbed_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    turns: list[int] = []

    def seconds(call: Any, *, until: int) -> float:
        turns.append(0)
        return 1e-5 * (40.0 if len(turns) % _IN_TURN == 7 and len(turns) <= until else 1.0 + len(turns) % 2)

    monkeypatch.setattr(calibration, "_call", lambda matrix, plan: (matrix, plan))
    monkeypatch.setattr(calibration, "_seconds", partial(seconds, until=10**6))
    with pytest.raises(DeviceError, match="disturbed"):
        calibration._formats("cpu", 1e5)
    assert len(turns) == 3 * _TIMED  # three times
    turns.clear()
    monkeypatch.setattr(calibration, "_seconds", partial(seconds, until=_TIMED))
    assert len(calibration._formats("cpu", 1e5)) == 9
    assert len(turns) == 2 * _TIMED


def test_beside_another_that_measures_there_is_no_calibration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "device_lock", lambda device: SimpleNamespace(alone=lambda: nullcontext(False)))
    with pytest.raises(DeviceError, match="another process"):
        calibrate("cpu")


def test_all_cores_are_calibrated_whatever_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_NUM_THREADS", "1")
    cores = host_device().cores
    asked: list[int] = []
    monkeypatch.setattr(calibration, "_bandwidths", lambda device, threads: asked.append(threads) or figures(threads))
    monkeypatch.setattr(calibration, "_formats", lambda backend, foreseen: {"csr": FormatCost(5e-10, 2e-9)})
    monkeypatch.setattr(calibration, "_meetings", lambda backend, threads: (1e-6, 2e-7))
    monkeypatch.setattr(calibration, "_foreseen", lambda backend: 12345.0)
    found = calibrate("cpu")
    assert found.threads == cores
    assert found.one_thread.foreseen == found.all_threads.foreseen == 12345.0
    assert asked == 2 * [1, cores]


def test_this_machine(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "_ROUNDS", 2)  # for figures that need not be good
    monkeypatch.setattr(calibration, "_PRECISION", Precision(relative=0.1, seconds=0.02))
    try:
        found = calibrate("cpu")
    except DeviceError as disturbed:  # by the tests beside this one
        pytest.skip(str(disturbed))
    assert found.device_class == host_device().device_class
    assert 0 < found.one_thread.slow_bandwidth <= found.one_thread.cache_bandwidth
    assert set(FORMATS) <= set(found.all_threads.formats)
    for variant, cost in found.all_threads.formats.items():
        assert 1e-12 <= cost.slot < 1e-6, variant
        assert 0 <= cost.row < 1e-5, variant
    assert found.one_thread.waking == found.one_thread.synchronisation == 0.0
    assert Calibration.from_json(json.loads(json.dumps(found.to_json()))) == found


@pytest.mark.parametrize("new", [(), ("csr16", "sell16")])
def test_prices_are_what_was_put_in(new: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a product takes 3 ns a row and 0.25 ns a slot, padding included, just that is found.

    So is what it takes more for a row that is not as long as the one before, or in sorted windows, and for an entry of
    x that is not in the nearest cache, the processor remembering next to nothing; of variants without a price too.
    """
    known = {name: cost for name, cost in FORMATS.items() if name not in new}
    monkeypatch.setattr(calibration, "FORMATS", known)
    paid: list[tuple[float, int]] = []
    near = host_device().l1_bytes

    def call(matrix: Any, plan: Any) -> Any:
        slots = calibration.registry.get("cpu", "sweep").padding(plan, matrix) * matrix.nnz
        unforeseen = uneven_rows(matrix) if plan.variant.startswith("csr") else 0
        unforeseen *= unforeseen > 1000  # the few at the ends of the other matrices a processor remembers
        is_large = matrix.n == calibration._SCATTERED_ROWS
        far = missed(matrix, near) * matrix.nnz if is_large else 0.0
        slots = slots + 7000 * is_large  # beyond the second cache everything takes longer
        return slots, matrix.n, unforeseen, matrix.n if plan.typed.sigma > 1 else 0, far

    def seconds(work: Any) -> float:
        paid.append(work[:2])
        each = 0.25e-9 * work[0] + 3e-9 * work[1] + 5e-9 * work[2] + 0.7e-9 * work[3] + 0.4e-9 * work[4]
        return float(8 * each)

    monkeypatch.setattr(calibration, "_call", call)
    monkeypatch.setattr(calibration, "_seconds", seconds)
    assert uneven_rows(calibration._of_changing_rows(80_000)) > 60_000
    assert uneven_rows(calibration._of_changing_rows(80_000, ascending=True)) < 10
    for variant, cost in calibration._formats("cpu", 1000.0).items():
        is_csr, is_sell = variant.startswith("csr"), variant.startswith("sell")
        differing = [5e-9 * is_csr, 0.7e-9 * is_sell, 0.4e-9 * (is_csr or is_sell)]
        found = [cost.slot, cost.row, cost.uneven, cost.sorted, cost.scattered]
        assert np.allclose(found, [0.25e-9, 3e-9, *differing], rtol=1e-6, atol=1e-15), variant
    assert len({slots / n for slots, n in paid}) > 2  # the formats do differ in padding


@pytest.mark.parametrize("room", [50_000, 90_000, 150_000, 194_000])
def test_how_many_branches_a_core_remembers_is_found(monkeypatch: pytest.MonkeyPatch, room: float) -> None:
    monkeypatch.setattr(calibration, "_call", lambda matrix, plan: matrix)
    monkeypatch.setattr(calibration, "_seconds", lambda matrix: 1e-9 * matrix.nnz + 8e-9 * surprises(matrix, 1, room))
    assert calibration._foreseen("cpu") == pytest.approx(room, rel=0.05)


def test_what_disturbs_one_size_says_nothing_of_how_much_a_core_remembers(monkeypatch: pytest.MonkeyPatch) -> None:
    room = 150_000

    def seconds(matrix: Any) -> float:
        disturbed = 1e-3 * (matrix.n == 10_000 and uneven_rows(matrix) > 1000)
        return float(1e-9 * matrix.nnz + 8e-9 * surprises(matrix, 1, room) + disturbed)

    monkeypatch.setattr(calibration, "_call", lambda matrix, plan: matrix)
    monkeypatch.setattr(calibration, "_seconds", seconds)
    assert calibration._foreseen("cpu") == pytest.approx(room, rel=0.05)


def test_a_core_that_remembers_nothing_is_no_calibration(made: Calibration) -> None:
    data = made.to_json()
    data["all_threads"]["foreseen"] = 0
    with pytest.raises(ArgumentError, match="not valid"):
        Calibration.from_json(json.loads(json.dumps(data)))


def test_a_core_that_remembers_more_or_less_than_is_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calibration, "_call", lambda matrix, plan: matrix)
    forgets_all = branches(calibration._of_changing_rows(7_000))
    for price, expected in ((8e-9, forgets_all), (0.0, Figures.foreseen), (5e-10, Figures.foreseen)):
        paid = partial(lambda matrix, price: 1e-9 * matrix.nnz + price * uneven_rows(matrix), price=price)
        monkeypatch.setattr(calibration, "_seconds", paid)
        assert calibration._foreseen("cpu") == pytest.approx(expected)


def test_a_file_from_before_rows_differed_has_guesses_of_them(folder: Path, made: Calibration) -> None:
    formats = {name: FormatCost(5e-10, 2e-9, 7e-9, 3e-9, 1e-9) for name in ("csr", "sell")}
    path = replace(made, all_threads=figures(8, formats=formats), one_thread=figures(1, formats=formats)).save()
    assert figures_of(DEVICE, 8).formats == formats
    old = json.loads(path.read_text())
    for part in (old["one_thread"], old["all_threads"]):
        for cost in part["formats"].values():
            del cost["uneven"], cost["sorted"], cost["scattered"]
        del part["foreseen"]
    path.write_text(json.dumps(old, indent=3))
    found = figures_of(DEVICE, 8).formats
    assert found["csr"] == replace(FORMATS["csr"], slot=5e-10, row=2e-9)
    assert found["sell"] == replace(FORMATS["sell"], slot=5e-10, row=2e-9)
    assert figures_of(DEVICE, 8).foreseen == Figures.foreseen
    assert FORMATS["sell"].scattered > FORMATS["csr"].scattered > 0
    assert FORMATS["csr"].uneven > 0
    assert FORMATS["sell"].sorted > 0


def test_a_file_from_before_there_were_exchanges_is_read(folder: Path, made: Calibration) -> None:
    path = made.save()
    old = json.loads(path.read_text())
    del old["one_thread"]["barrier"], old["all_threads"]["barrier"]
    path.write_text(json.dumps(old))
    assert find_calibration(DEVICE.device_class) == (made, path)


def test_what_a_kernel_and_an_exchange_take_is_what_further_steps_take(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU that takes 30 us for a call, 2 us for a kernel and 3 us for an exchange beside what the loads wait."""
    gpu = CudaDevice("a GPU", 0, (9, 0), 132, 2**17, 2**17, 2**16, 50 * 2**20, 80 * 2**30, 10**9, 3e12)
    price = {"sweep": 2e-6, "resident": 3e-6}

    def seconds(call: tuple[Any, Any]) -> float:
        schedule: Any = calibration.registry.get("cuda", call[1].schedule)
        waits = schedule.work(call[1], call[0], gpu, 1).chain / gpu.clock_hz
        return float(30e-6 + call[1].k * price[call[1].schedule] + waits)

    monkeypatch.setattr("akx.backends.selection.device_of", lambda backend: gpu)
    monkeypatch.setattr(calibration, "device_lock", lambda device: SimpleNamespace(alone=lambda: nullcontext(True)))
    monkeypatch.setattr(calibration, "_bandwidths", derived_figures)
    monkeypatch.setattr(calibration, "_call", lambda matrix, plan: (matrix, plan))
    monkeypatch.setattr(calibration, "_seconds", seconds)
    monkeypatch.setattr("akx.backends.cuda.cost.rates.link_rates", lambda: (5e10, 9e10))
    found = calibrate("cuda")
    assert found.device_class == gpu.device_class
    for figures in (found.one_thread, found.all_threads):
        assert figures.synchronisation == pytest.approx(2e-6)
        assert figures.barrier == pytest.approx(3e-6)
        assert (figures.link_one_way, figures.link_bandwidth) == (5e10, 9e10)
        measured = {"synchronisation": 0.0, "barrier": 0.0, "link_bandwidth": 0.0, "link_one_way": 0.0}
        assert replace(figures, **measured) == replace(derived_figures(gpu, 1), **measured)
    found.save()
    assert figures_of(gpu, 1) == found.one_thread
    price["resident"] = -1e-6  # what is known of its loads does not fit this GPU: the rest is kept
    assert calibrate("cuda").all_threads.synchronisation == pytest.approx(2e-6)
    assert calibrate("cuda").all_threads.barrier == derived_figures(gpu, 1).barrier


def test_there_is_no_calibration_of_a_device_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> None:
        raise DeviceError("no GPU")

    monkeypatch.setattr("akx.backends.cuda.device.facts.cuda_device", none)
    with pytest.raises(AkxError, match="no GPU"):
        calibrate("cuda")
