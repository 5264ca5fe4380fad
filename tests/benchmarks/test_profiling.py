"""The profile of tuned plans, without a GPU and without Nsight Compute."""

from __future__ import annotations

import json
import shutil
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from akx.backends.cuda.device.facts import CudaDevice
from akx.core.errors import DeviceError, MissingDependencyError
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from benchmarks import gpu, profiling, record, solving
from benchmarks.matrices import select
from benchmarks.steps_gpu import parsed

GPU = CudaDevice("test", 0, (9, 0), 5, 40_000, 41_024, 65_536, 2**20, 2**30, 10**9, 1e12)
ORIGIN = {**record.provenance(1), "commit": "c0ffee", "machine": {"gpu": "a GPU"}}
LABEL = "cuda/resident/3x3-2 natural k=16x1 threads=1 block=384 held_slices=1 held_slots=5 x=shared"
DURATION, HITS = "gpu__time_duration.sum", "lts__t_sector_hit_rate.pct"
#: Of two launches, of 2000 and 6000 ns; what is not said is zero.
FIRST = {
    DURATION: "2,000",
    "dram__bytes_read.sum": "1,000,000",
    "dram__bytes_write.sum": "500",
    "lts__t_sectors_srcunit_tex.sum": "10,000",
    HITS: "80",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": "1,234",
    "smsp__inst_executed.sum": "4,000",
    "smsp__issue_active.avg.pct_of_peak_sustained_active": "40.5",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "50",
    "smsp__average_warps_issue_stalled_barrier_per_issue_active.ratio": "4",
    "smsp__average_warps_issue_stalled_wait_per_issue_active.ratio": "2",
    "smsp__average_warps_issue_stalled_selected_per_issue_active.ratio": "1,000",
    "smsp__average_warps_issue_stalled_not_selected_per_issue_active.ratio": "100",
}
SECOND = {
    DURATION: "6,000",
    "dram__bytes_read.sum": "2,500,000",
    "dram__bytes_write.sum": "0",
    "lts__t_sectors_srcunit_tex.sum": "30,000",
    HITS: "40",
    "l1tex__data_pipe_lsu_wavefronts_mem_shared.sum": "10,000",
    "smsp__inst_executed.sum": "1,000",
    "smsp__issue_active.avg.pct_of_peak_sustained_active": "20.5",
    "sm__warps_active.avg.pct_of_peak_sustained_active": "10",
    "smsp__average_warps_issue_stalled_long_scoreboard_per_issue_active.ratio": "6",
    "smsp__average_warps_issue_stalled_wait_per_issue_active.ratio": "2",
    "smsp__average_warps_issue_stalled_membar_per_issue_active.ratio": "n/a",
}


def printed(*launches: dict[str, str]) -> str:
    """What ncu prints, with lines of its own and of the process before and after."""
    names = sorted(profiling.METRICS)
    units = {DURATION: "ns", "dram__bytes_read.sum": "byte", "dram__bytes_write.sum": "byte", HITS: "%"}
    cells = [["ID", "Process ID", "Kernel Name", "Block Size", *names, "launch__extra"]]
    cells += [["", "", "", "", *(units.get(name, "") for name in names), ""]]
    for number, one in enumerate(launches):
        values = [one.get(name, "0") for name in names]
        cells.append([str(number), "77", "void step<double, 3>(double *, int)", "(384, 1, 1)", *values, "7"])
    noise = ['==PROF== Connected to process 77 (python "x")', "", "compiling, 3 kernels", '"ID", says the process']
    rows = [",".join(f'"{cell}"' for cell in row) for row in cells]
    return "\n".join([*noise, *rows, "==PROF== Disconnected from process 77", ""])


def test_launches_are_read_in_seconds_and_bytes_whatever_is_printed_around_them() -> None:
    first, second = profiling.kernels_of(printed(FIRST, SECOND))
    assert first[DURATION] == pytest.approx(2e-6)
    assert second[DURATION] == pytest.approx(6e-6)
    assert first["dram__bytes_read.sum"] == 1_000_000.0
    assert first["smsp__average_warps_issue_stalled_selected_per_issue_active.ratio"] == 1000.0
    assert set(first) == set(profiling.METRICS)
    assert set(profiling.METRICS) - set(second) == {"smsp__average_warps_issue_stalled_membar_per_issue_active.ratio"}


def test_launches_are_added_up_and_shares_are_weighted_with_their_time() -> None:
    found = profiling.added(profiling.kernels_of(printed(FIRST, SECOND)))
    stalls = found.pop("stalls")
    assert found == {
        "profiled_seconds": pytest.approx(8e-6),
        "dram_bytes": 3_500_500.0,
        "l2_bytes": 1_280_000.0,
        "l2_hit": pytest.approx(0.5),  # (80 x 2 + 40 x 6) / 8
        "shared_cycles": 11_234.0,
        "instructions": 5_000.0,
        "issue": pytest.approx(0.255),
        "warps": pytest.approx(0.2),
    }
    # (4 x 2) / 8 = 1, (6 x 6) / 8 = 4.5 and 2 of 7.5; those that did not wait are not among them
    assert list(stalls) == ["long_scoreboard", "wait", "barrier"]
    assert stalls == pytest.approx({"long_scoreboard": 0.6, "wait": 2 / 7.5, "barrier": 1 / 7.5})


def test_a_counter_that_is_missing_is_named() -> None:
    kernels = profiling.kernels_of(printed(FIRST, {**SECOND, HITS: "n/a"}))
    with pytest.raises(ValueError, match=r"has not counted lts__t_sector_hit_rate\.pct"):
        profiling.added(kernels)
    one = profiling.added(profiling.kernels_of(printed({**FIRST, "dram__bytes_write.sum": "1"})))
    assert one["dram_bytes"] == 1_000_001.0


@pytest.mark.parametrize("text", ["", "==PROF== Connected\n==ERROR== no metrics\nthe end\n", printed()])
def test_nothing_profiled_is_an_error(text: str) -> None:
    said = "==ERROR== no metrics" if "ERROR" in text else ""
    with pytest.raises(ValueError, match=f"profiled no kernel: {said}"):
        profiling.kernels_of(text)


def banded(values: Any) -> Matrix:
    """Of 600 rows, 3 entries each but for the first and the last: 1798."""
    return Matrix.from_any(sparse.csr_array(sparse.diags_array(values, offsets=(-1, 0, 1), shape=(600, 600))))


@pytest.mark.parametrize(
    ("label", "each"),
    [
        ("cuda/resident/1x1-1 natural k=4x1 threads=1 stored=full", 10.0),
        ("cuda/resident/1x1-1 natural k=4x1 threads=1 stored=half", 6.0),
        ("cuda/resident/1x1-1 natural k=4x1 threads=1 stored=table", 4.0),
        ("cuda/resident/3x3-2 natural k=4x1 threads=1", 8.0 + 2.0 / 9.0),
        ("cuda/ghost/2x6-1 natural k=4x1 threads=1", 8.0 + 2.0 / 12.0),
        ("cuda/resident/dia natural k=4x1 threads=1", 8.0),
        ("cuda/wavefront/sell16-1 natural k=4x1 threads=1 stored=table", 4.0),
        ("cuda/wavefront/sell16-2 natural k=4x1 threads=1", 10.0),
        ("cuda/sweep/sell16-2 natural k=4x1 threads=1", 10.0),
        ("cuda/sweep/csr-8 natural k=4x1 threads=1", 12.0),
    ],
)
def test_floors_are_those_computed_by_hand(label: str, each: float) -> None:
    matrix, plan = banded((0.5, 1.0, 0.25)), parsed(label, 4)
    assert matrix.nnz == 1798
    assert profiling.bytes_of_entry(plan, matrix) == pytest.approx(each)
    found = profiling.floor_of(plan, matrix, GPU, 2e11)
    # x and 4 results of 600 values, over 4 steps; 5 multiprocessors at 1 GHz, 128 bytes each
    assert found == pytest.approx({"memory": (1798 * each + 24_000) / 8e11, "shared": 1798 * (each + 8) / 640e9})


def test_values_that_cannot_be_stored_so_are_counted_in_full() -> None:
    matrix = banded((0.1, 1.0, 0.25))  # 0.1 is no float32
    half = parsed("cuda/resident/1x1-1 natural k=4x1 threads=1 stored=half", 4)
    assert profiling.bytes_of_entry(half, matrix) == 10.0
    single = Matrix.from_any(sparse.csr_array(np.eye(4, dtype=np.float32)))
    assert profiling.bytes_of_entry(parsed("cuda/sweep/sell16-1 natural k=1x1 threads=1", 1), single) == 6.0
    with pytest.raises(ValueError, match="no floor for plans of stream"):
        profiling.bytes_of_entry(Plan("cuda", "stream", "sell16-1", k=4, k_per_pass=4), matrix)


def test_all_that_is_profiled_by_default_has_a_plan_and_a_k_can_be_asked_for() -> None:
    found = profiling.chosen(profiling.PLANS)
    assert {name: plan.k for name, (plan, path) in found.items() if path == gpu.RESULTS} == dict.fromkeys(
        gpu.MATRICES, 16
    )
    assert {"delaunay", "tetrahedra"} <= set(found)
    plan, path = profiling.chosen(profiling.PLANS, 4)["brick"]
    assert (plan.k, path) == (4, gpu.RESULTS)
    assert profiling.chosen(profiling.PLANS, 5) == {}


def test_the_page_has_the_table_and_says_what_each_stall_is() -> None:
    page = profiling.PAGE.read_text()
    assert page.index("<!-- profile:begin -->") < page.index("<!-- profile:end -->")
    told = [line.split("`")[1] for line in page.split("## What warps wait for")[1].splitlines() if line[:3] == "| `"]
    assert sorted(told) == sorted(profiling.STALLS)


def test_without_nsight_compute_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(MissingDependencyError, match="needs Nsight Compute, found no ncu on the path; install"):
        profiling.watching(0, 1)


def test_refused_counters_are_an_error_that_says_what_to_do() -> None:
    text = "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access counters on the device 0.\n"
    with pytest.raises(DeviceError, match=r"ERR_NVGPUCTRPERM; run as root, or .*NVreg_RestrictProfilingToAdminUsers=0"):
        profiling.kernels_of(text)


# ------------------------------------------------------------------------------------------------------ all of it

SAID = {
    "matrix": "brick",
    "rows": 600,
    "nnz": 1798,
    "k": 16,
    "plan": LABEL,
    "seconds": 32e-6,
    "spread": 0.01,
    "floor": {"memory": 0.5e-6, "shared": 1.5e-6},
    "bandwidth": 2e11,
    "sms": 5,
    "clock_hz": 10**9,
}
#: What the process says of its launches: the third call has two, after three.
COUNTED = {"before": 3, "launches": 2}
ROW = (
    "| brick | 16 | `cuda/resident/3x3-2` | 2.00 | 1.50 (shared memory) | 75% | 0.22 | 0.08 | 7% | 26% "
    "| long_scoreboard 60%, wait 27%, barrier 13% |"
)


@pytest.fixture
def plans(tmp_path: Path) -> Path:
    path = tmp_path / "plans.json"
    powers = [{"matrix": name, "k": 16, "plan": LABEL} for name in ("brick", "shell")]
    path.write_text(json.dumps({"powers": powers}))
    return path


@pytest.fixture
def ncu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A GPU, and an ncu that prints what is in the file ``prints``, and ends with what the process says in ``says``."""
    tool, (prints, says, asked) = tmp_path / "ncu", (tmp_path / name for name in ("prints", "says", "asked"))
    prints.write_text(printed(FIRST, SECOND))
    says.write_text(json.dumps(SAID))
    tool.write_text(
        f"#!{sys.executable}\nimport json, pathlib, sys\n"
        f"pathlib.Path({str(asked)!r}).write_text(json.dumps(sys.argv[1:]))\n"
        f"print(pathlib.Path({str(prints)!r}).read_text())\n"
        f"said = pathlib.Path({str(says)!r})\n"
        "if not said.exists(): sys.exit('ArithmeticError: it is wrong for brick')\n"
        "pathlib.Path(sys.argv[sys.argv.index('-o') + 1]).write_text(said.read_text())\n"
    )
    tool.chmod(0o755)
    monkeypatch.delenv("AKX_COMMIT", raising=False)
    run = profiling._run

    def run_or_say(arguments: list[str]) -> tuple[str, str]:
        """What runs on a GPU only is said in its place; ncu is the script."""
        if arguments[0] == str(tool):
            return run(arguments)
        if not says.exists():
            return "", "ArithmeticError: it is wrong for brick"
        Path(arguments[arguments.index("-o") + 1]).write_text(json.dumps({**json.loads(says.read_text()), **COUNTED}))
        return "", ""

    monkeypatch.setattr(profiling, "_run", run_or_say)
    monkeypatch.setattr(shutil, "which", lambda name: str(tool) if name == "ncu" else None)
    monkeypatch.setattr(gpu, "provenance", lambda: ORIGIN)
    monkeypatch.setattr("akx.backends.cuda.device.runtime.cuda_missing", lambda: None)
    return tmp_path


def run(folder: Path, plans: Path, *more: str) -> int:
    given = ["--plans", str(plans), "-o", str(folder / "profile.json"), "--docs", str(folder / "page.md")]
    return profiling.main([*given, *more])


def test_entries_are_merged_and_the_table_goes_to_the_page(ncu: Path, plans: Path) -> None:
    page = ncu / "page.md"
    page.write_text("a\n<!-- profile:begin -->\n<!-- profile:end -->\nb\n")
    for _ in range(2):
        assert run(ncu, plans, "--only", "brick") == 0
    document = json.loads((ncu / "profile.json").read_text())
    (entry,) = document["profile"]
    assert (entry["matrix"], entry["k"], entry["commit"]) == ("brick", 16, "c0ffee")
    assert (entry["seconds"], entry["dram_bytes"], entry["launches"]) == (32e-6, 3_500_500.0, 2)
    lines = page.read_text().splitlines()
    assert lines[2] == "Measured on one a GPU, commits c0ffee: times are medians."
    assert ROW in lines
    assert lines[-1] == "b"


def test_one_entry_is_kept_for_each_matrix_and_k(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    document: dict[str, Any] = {"profile": []}
    for name, k, seconds in (("brick", 16, 1.0), ("brick", 8, 2.0), ("shell", 16, 3.0), ("brick", 16, 4.0)):
        entry = {"matrix": name, "k": k, "seconds": seconds}
        document = solving.keep(path, document, "profile", entry, ORIGIN, of=("matrix", "k"))
    assert json.loads(path.read_text()) == document
    assert [(one["matrix"], one["k"], one["seconds"]) for one in document["profile"]] == [
        ("brick", 8, 2.0),
        ("shell", 16, 3.0),
        ("brick", 16, 4.0),
    ]
    assert {one["commit"] for one in document["profile"]} == {"c0ffee"}


def test_clocks_and_caches_are_left_alone_and_only_the_asked_for_call_is_profiled(ncu: Path, plans: Path) -> None:
    assert run(ncu, plans, "--only", "brick") == 0
    asked = json.loads((ncu / "asked").read_text())
    options = dict(pairwise(asked))
    names = ("launch-skip", "launch-count", "clock-control", "cache-control")
    assert [options[f"--{name}"] for name in names] == ["3", "2", "none", "none"]
    assert asked[-1] == "--untimed"
    assert (options["--page"], options["--print-units"]) == ("raw", "base")
    assert options["--metrics"].split(",") == list(profiling.METRICS)
    begin = asked.index(sys.executable)
    assert asked[begin : begin + 7] == [
        sys.executable,
        "-m",
        "benchmarks.profiling",
        "--call",
        "brick",
        "16",
        str(plans),
    ]


def test_the_table_is_made_again_from_the_file(ncu: Path, plans: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(ncu, plans, "--only", "brick") == 0
    (ncu / "page.md").write_text("<!-- profile:begin -->\nold\n<!-- profile:end -->\n")
    monkeypatch.setattr(profiling, "measure", lambda *_: pytest.fail("measured"))
    assert run(ncu, plans, "--table") == 0
    assert ROW in (ncu / "page.md").read_text().splitlines()
    assert "old" not in (ncu / "page.md").read_text()


def test_the_smaller_floor_of_memory_is_named_too() -> None:
    counted = profiling.added(profiling.kernels_of(printed(FIRST)))
    entry = {**SAID, **counted, "floor": {"memory": 1.6e-6, "shared": 1.5e-6}, "commit": "c0ffee"}
    line = profiling.table({"machine": {"gpu": "a GPU"}, "profile": [entry]}).splitlines()[-1]
    assert "| 2.00 | 1.60 (memory) | 80% | 0.06 | 0.02 | 1% | 40% | barrier 67%, wait 33% |" in line


def test_refused_counters_end_the_run(ncu: Path, plans: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (ncu / "prints").write_text("==ERROR== ERR_NVGPUCTRPERM - The user does not have permission.\n")
    assert run(ncu, plans) == 3
    told = capsys.readouterr().err
    assert told.startswith("profile: the driver lets nobody but its administrator read the GPU's counters")
    assert len(told.splitlines()) == 1  # not again for the next matrix
    assert not (ncu / "profile.json").exists()


def test_without_nsight_compute_nothing_is_measured(
    ncu: Path, plans: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert run(ncu, plans) == 3
    assert "profile: a profile needs Nsight Compute" in capsys.readouterr().err


def test_a_call_that_fails_is_told_of_and_the_others_are_profiled(
    ncu: Path, plans: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (ncu / "says").unlink()
    measure = profiling.measure
    counted = profiling.added(profiling.kernels_of(printed(FIRST)))

    def stand_in(name: str, *given: Any) -> dict[str, Any]:
        return measure(name, *given) if name == "brick" else {**SAID, **counted, "matrix": name}

    monkeypatch.setattr(profiling, "measure", stand_in)
    assert run(ncu, plans) == 1
    told = capsys.readouterr().err
    assert "brick  FAILED: the call was not made: ArithmeticError: it is wrong for brick\n" in told
    assert [one["matrix"] for one in json.loads((ncu / "profile.json").read_text())["profile"]] == ["shell"]


def test_a_process_that_takes_too_long_is_broken_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiling, "_MOST_SECONDS", 0.2)
    with pytest.raises(ValueError, match="broken off after 0 s"):
        profiling._run([sys.executable, "-c", "import time; time.sleep(60)"])


def test_a_matrix_without_a_plan_is_named(ncu: Path, plans: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        run(ncu, plans, "--only", "brick", "tetrahedra")
    assert "no plan of tetrahedra" in capsys.readouterr().err


def test_figures_of_two_machines_are_not_mixed(
    ncu: Path, plans: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(ncu, plans, "--only", "brick") == 0
    monkeypatch.setattr(gpu, "provenance", lambda: {**ORIGIN, "machine": {"gpu": "another"}})
    with pytest.raises(SystemExit, match="2"):
        run(ncu, plans, "--only", "brick")
    assert "figures of another machine" in capsys.readouterr().err


def test_without_a_gpu_nothing_is_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("akx.backends.cuda.device.runtime.cuda_missing", lambda: "there is none")
    assert profiling.main(["-o", str(tmp_path / "none.json")]) == 3
    assert not (tmp_path / "none.json").exists()


def test_the_process_that_is_watched_takes_the_plan_from_the_file(
    plans: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(profiling, "select", lambda names: select(names, reduced=True))

    def call(name: str, A: Any, plan: Plan, *, timed: bool) -> dict[str, Any]:
        return {"said": [name, A.shape[0] > 0, plan.k, plan.label(), timed]}

    monkeypatch.setattr(profiling, "call", call)
    said = tmp_path / "said.json"
    for more in ([], ["--untimed"]):
        assert profiling.main(["--call", "brick", "16", str(plans), "-o", str(said), *more]) == 0
        assert json.loads(said.read_text()) == {"said": ["brick", True, 16, LABEL, not more]}


def test_kernels_that_were_not_profiled_are_missed(ncu: Path, plans: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (ncu / "prints").write_text(printed(FIRST))
    assert run(ncu, plans, "--only", "brick") == 1
    assert "brick  FAILED: ncu has profiled 1 kernels of 2" in capsys.readouterr().err
