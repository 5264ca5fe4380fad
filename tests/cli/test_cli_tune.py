"""``akx tune`` around a search that is not run: what it passes on, what it prints, how it ends."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import scipy.io
import scipy.sparse as sp
from rich.console import Console

import akx.tuner
from akx.core.errors import ArgumentError, MatrixError
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.report.comparison.bench import BenchPower, BenchRow
from akx.tuner import Progress, TuneResult
from akx.tuner.history.result import Counts, Finalist, Roofline, Untuned
from akx.tuner.history.trial import Trial
from cli.golden import check_shape, check_text
from cli.running import Ran

_SWEEP = Plan("cpu", "sweep", "csr16", k=8, threads=2)
_BEST = Plan("cpu", "wavefront", "sell16", "levels", k=8, k_per_pass=8, block_bytes=131072, threads=2)
_RESULT = TuneResult(
    matrix_name="poisson",
    rows=400,
    nnz=1920,
    dtype="float64",
    index_type="int32",
    fingerprint="ab" * 20,
    k=8,
    basis="monomial",
    start_vectors=1,
    backend="cpu",
    device="cpu/Test/2 cores/L2 1 MiB/L3 32 MiB",
    threads=2,
    plan=_BEST,
    seconds=2.0e-3,
    spread=0.004,
    baseline_plan=_SWEEP,
    baseline_name="sweep/csr16 threads=2",
    baseline_seconds=3.5e-3,
    baseline_spread=0.006,
    tuning_seconds=30.0,
    prepare_seconds=0.25,
    counts=Counts(2, 1, 0),
    trials=(
        Trial(0, _SWEEP, "baseline", "complete", seconds=3.5e-3, spread=0.006, prepare_seconds=0.1, error=0.25),
        Trial(1, _BEST, "model", "complete", seconds=2.0e-3, spread=0.004, prepare_seconds=0.2, error=0.5),
        Trial(2, _BEST.replace(schedule="ghost"), "default", "pruned", reason="ghost zones are the whole matrix"),
    ),
    finalists=(Finalist(_BEST, 2.0e-3, 0.004, 9), Finalist(_SWEEP, 3.5e-3, 0.006, 9)),
    db="/home/user/plans.sqlite",
    stopped="no improvement",
    roofline=Roofline(1.5e-3, 0.75, "memory", 1e6, 2e6, 1.0),
    untuned=Untuned(_SWEEP.replace(variant="csr"), 2.4e-3, best_seconds=2.0e-3, spent_seconds=30.25),
)


class _Tuner:
    """Stands in for :func:`akx.tuner.tune`: keeps what it was asked and answers with a fixed result."""

    def __init__(self, result: TuneResult) -> None:
        self.result = result
        self.asked: dict[str, Any] = {}

    def __call__(self, matrix: Matrix, k: int, **options: Any) -> TuneResult:
        self.asked = {"matrix": matrix, "k": k, **options}
        report = options["callback"]
        report(Progress("baseline", 1, 60, 1.0, 40.0, "complete", None, _SWEEP, 3.5e-3, 3.5e-3, 0.4))
        report(Progress("search", 2, 60, 5.0, 40.0, "complete", None, _BEST, 2.0e-3, 3.5e-3, 0.75))
        report(Progress("search", 3, 60, 6.0, 40.0, "pruned", None, _BEST, 2.0e-3, 3.5e-3, 0.75))
        return self.result


@pytest.fixture
def tuner(monkeypatch: pytest.MonkeyPatch) -> _Tuner:
    stand_in = _Tuner(_RESULT)
    monkeypatch.setattr(akx.tuner, "tune", stand_in)
    return stand_in


def test_defaults_and_options_reach_the_tuner(
    akx: Callable[..., Ran], tuner: _Tuner, poisson: Path, tmp_path: Path
) -> None:
    assert akx("tune", poisson).code == 0
    asked = tuner.asked
    assert (asked["k"], asked["basis"], asked["backend"], asked["retune"]) == (8, "monomial", "auto", False)
    assert (asked["threads"], asked["trials"], asked["seconds"], asked["name"]) == (None, None, None, "poisson")
    assert asked["db"].path == tmp_path / "plans.sqlite"
    assert (asked["matrix"].n, asked["matrix"].nnz, asked["matrix"].dtype.name) == (400, 1920, "float64")

    options = ["--k", 4, "--backend", "cpu", "--basis", "newton", "--dtype", "float32", "--trials", 7, "--time", 1.5]
    akx("tune", poisson, *options, "--threads", 1, "--db", tmp_path / "other.sqlite", "--retune")
    asked = tuner.asked
    assert (asked["k"], asked["basis"], asked["backend"], asked["retune"]) == (4, "newton", "cpu", True)
    assert (asked["threads"], asked["trials"], asked["seconds"]) == (1, 7, 1.5)
    assert asked["fresh"] is False
    akx("tune", poisson, *options, "--db", tmp_path / "other.sqlite", "--fresh")
    asked = tuner.asked
    assert (asked["retune"], asked["fresh"]) == (False, True)
    assert asked["db"].path == tmp_path / "other.sqlite"
    assert asked["matrix"].dtype.name == "float32"
    assert (asked["memory_budget"], asked["fraction"], asked["storage"]) == (None, None, None)

    akx("tune", poisson, "--memory-budget", "512M", "--fraction", 0.25, "--storage", "postgresql://ann@host/plans")
    assert (tuner.asked["memory_budget"], tuner.asked["fraction"]) == ("512M", 0.25)
    assert tuner.asked["storage"] == "postgresql://ann@host/plans"
    assert tuner.asked["calls"] is None

    akx("tune", poisson, "--calls", 5000)
    assert tuner.asked["calls"] == 5000

    assert tuner.asked["value_error"] is None
    akx("tune", poisson, "--value-error", "6e-8")
    assert tuner.asked["value_error"] == 6e-8


@pytest.mark.parametrize("command", ["tune", "bench"])
@pytest.mark.parametrize("value", ["-1e-9", "1", "nan", "inf"])
def test_an_error_of_values_out_of_range_is_refused(
    akx: Callable[..., Ran], tuner: _Tuner, poisson: Path, command: str, value: str
) -> None:
    ran = akx(command, poisson, "--value-error", value)
    assert (ran.code, ran.out) == (2, "")
    assert "--value-error is out of range" in ran.error
    assert not tuner.asked


def test_bench_compares_the_plan_for_the_error_that_is_allowed(
    akx: Callable[..., Ran], tuner: _Tuner, poisson: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []

    def compared(matrix: Matrix, *_: Any, **__: Any) -> Any:
        asked.append(matrix.value_error)
        raise ArgumentError("stop here")

    monkeypatch.setattr("akx.report.comparison.bench.bench_power", compared)
    akx("bench", poisson, "--value-error", "6e-8")
    akx("bench", poisson)
    assert asked == [6e-8, 0.0]
    assert tuner.asked["matrix"].value_error == 0.0


def test_a_schedule_that_was_not_in_the_run_off_is_told_beside_the_baseline_of_the_trials(
    akx: Callable[..., Ran], tuner: _Tuner, poisson: Path
) -> None:
    """The machine became half as fast before the run-off: 2 ms then is 4 ms now, and slower than the baseline."""
    ghost = _BEST.replace(schedule="ghost")
    trials = (
        Trial(0, _SWEEP, "baseline", "complete", seconds=_RESULT.baseline_seconds / 2),
        Trial(1, ghost, "default", "complete", seconds=0.6 * _RESULT.baseline_seconds),
    )
    tuner.result = replace(_RESULT, plan=_SWEEP, baseline_plan=_SWEEP, trials=trials, finalists=_RESULT.finalists[1:])
    (line,) = (line for line in akx("tune", poisson).out.splitlines() if line.startswith("ghost"))
    assert "0.83x" in line


def test_bench_says_that_akx_lost_and_what_to_do(
    akx: Callable[..., Ran], tuner: _Tuner, poisson: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seconds, spread, is_lost in ((0.76e-3, 0.01, True), (0.99e-3, 0.01, False), (2e-3, 0.01, False)):
        rows = BenchRow("akx", 1e-3, 0.01, ""), BenchRow("scipy", seconds, spread, "")
        found = BenchPower(8, rows, _BEST, 0.1, 0.5, False)
        monkeypatch.setattr("akx.report.comparison.bench.bench_power", lambda *_, power=found, **__: power)
        out = akx("bench", poisson).out
        assert (
            "akx is slower than scipy with k = 8: 0.76 of its speed; `akx tune` with --k 8 --retune" in out
        ) is is_lost


def test_bench_says_that_the_plan_is_inexact(
    akx: Callable[..., Ran], tuner: _Tuner, poisson: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = BenchRow("akx", 1e-3, 0.01, ""), BenchRow("scipy", 2e-3, 0.01, "")
    found = BenchPower(8, rows, _BEST, 0.1, 0.5, False, 5.5e-8)
    monkeypatch.setattr("akx.report.comparison.bench.bench_power", lambda *_, **__: found)
    told = "akx with k = 8 stores values in half the bytes, with a relative error of at most 5.5e-08 of the 6e-08"
    data = akx("bench", poisson, "--value-error", "6e-8", "--json").json
    assert data["notes"][0] == f"{told} allowed; all others have them as they are"
    assert data["powers"][0]["best"]["stored_error"] == 5.5e-8
    assert told in " ".join(akx("bench", poisson, "--value-error", "6e-8").out.split())


def test_tune_says_how_far_values_are_off(akx: Callable[..., Ran], tuner: _Tuner, poisson: Path) -> None:
    assert akx("tune", poisson, "--json").json["best"]["stored_error"] == 0.0
    tuner.result = replace(_RESULT, stored_error=5.5e-8)
    assert akx("tune", poisson, "--value-error", "6e-8", "--json").json["best"]["stored_error"] == 5.5e-8


def test_json_is_one_object_with_what_scripts_were_promised(
    akx: Callable[..., Ran], tuner: _Tuner, poisson: Path
) -> None:
    ran = akx("tune", poisson, "--json")
    assert (ran.code, ran.err) == (0, "")
    data = ran.json
    promised = {
        "schema", "matrix", "k", "backend", "device", "baseline", "best", "speedup", "trials", "tuning_seconds",
        "prepare_seconds", "break_even_calls", "reused", "db",
    }  # fmt: skip
    assert promised <= set(data)
    assert {"rows", "nnz", "dtype", "fingerprint"} <= set(data["matrix"])
    assert {"name", "seconds"} <= set(data["baseline"])
    assert {"seconds", "schedule", "variant", "plan"} <= set(data["best"])
    assert set(data["trials"]) == {"complete", "pruned", "failed"}
    assert data["speedup"] == pytest.approx(1.75)
    assert data["break_even_calls"] == 20167  # ceil(30.25 s / 1.5 ms)
    assert Plan.from_json(data["best"]["plan"]) == _BEST
    check_shape("tune.json", data)


def test_text_says_plan_table_cost_and_break_even(akx: Callable[..., Ran], tuner: _Tuner, poisson: Path) -> None:
    ran = akx("tune", poisson)
    check_text("tune.txt", ran.out.replace(str(poisson), "poisson.mtx"))


def test_text_of_a_reused_plan_and_of_no_gain(akx: Callable[..., Ran], tuner: _Tuner, poisson: Path) -> None:
    tuner.result = replace(_RESULT, reused=True, stopped="reused", trials=(), finalists=(), tuning_seconds=0.004)
    assert "reused     from /home/user/plans.sqlite; looked up in" in akx("tune", poisson).out
    tuner.result = replace(tuner.result, layer="shipped")
    assert "reused     shipped with akx; looked up in" in akx("tune", poisson).out
    tuner.result = replace(_RESULT, plan=_SWEEP, seconds=3.5e-3, notes=("nothing beat the baseline",))
    ran = akx("tune", poisson)
    assert "1.00x" in ran.out
    assert "it is the plan" in ran.out
    data = akx("tune", poisson, "--json").json
    assert (data["speedup"], data["break_even_calls"]) == (1.0, None)


def test_text_and_json_of_an_untuned_call(akx: Callable[..., Ran], tuner: _Tuner, poisson: Path) -> None:
    assert _RESULT.untuned is not None
    data = akx("tune", poisson, "--json").json["untuned"]
    assert data == {
        "label": "cpu/sweep/csr natural k=1x8 threads=2", "seconds": 2.4e-3, "speedup": pytest.approx(1.2),
        "break_even_calls": 75626,  # ceil(30.25 s / 0.4 ms), but for a rounding error
    }  # fmt: skip
    assert "over an untuned call: 1.20x, paid back after 75,626 calls" in akx("tune", poisson).out
    tuner.result = replace(_RESULT, untuned=replace(_RESULT.untuned, plan=_BEST, seconds=2.0e-3))
    assert "over an untuned call: nothing gained, it would take the same plan" in akx("tune", poisson).out
    data = akx("tune", poisson, "--json").json["untuned"]
    assert (data["speedup"], data["break_even_calls"]) == (1.0, None)
    tuner.result = replace(_RESULT, untuned=replace(_RESULT.untuned, seconds=1.99e-3))
    assert "over an untuned call: nothing gained, it would take a plan that is as fast" in akx("tune", poisson).out
    tuner.result = replace(_RESULT, untuned=None)
    assert "untuned" not in akx("tune", poisson).out
    assert akx("tune", poisson, "--json").json["untuned"] is None


def test_json_where_what_may_be_null_is_the_other_way_round(
    akx: Callable[..., Ran], tuner: _Tuner, poisson: Path
) -> None:
    tuner.result = replace(
        _RESULT, untuned=None, roofline=None, baseline_plan=None, seconds=_RESULT.baseline_seconds, calls=5000,
        reused=True, layer="shipped", notes=("nothing beat the baseline",), counts=Counts(), trials=(), finalists=(),
    )  # fmt: skip
    check_shape("tune_other.json", akx("tune", poisson, "--json").json)


def test_text_of_a_search_that_did_not_try_everything(akx: Callable[..., Ran], tuner: _Tuner, poisson: Path) -> None:
    none = replace(_RESULT, plan=_SWEEP, seconds=3.5e-3, untuned=None)
    beaten = "nothing beat the baseline"
    tuner.result = replace(none, interrupted=True, stopped="interrupted")
    out = akx("tune", poisson).out
    assert "nothing had beaten the baseline when the search was interrupted" in out
    assert beaten not in out
    few = replace(none, stopped="too few calls", calls=5)
    tuner.result = replace(few, trials=_RESULT.trials[:1])
    out = akx("tune", poisson).out
    assert "too few calls to search on: nothing was tried but the baseline" in out
    assert beaten not in out
    tuner.result = replace(few, reused=True, stopped="reused", trials=())  # a note tells what ended that search
    out = akx("tune", poisson).out
    assert "nothing was gained, the baseline is the plan" in out
    assert beaten not in out
    for told in (none, few):
        tuner.result = told
        assert beaten in akx("tune", poisson).out


def test_text_of_a_plan_that_is_faster_than_its_bound(akx: Callable[..., Ran], tuner: _Tuner, poisson: Path) -> None:
    assert "faster than" not in akx("tune", poisson).out
    tuner.result = replace(_RESULT, roofline=Roofline(2.5e-3, 1.25, "memory", 1e6, 2e6, 1.0))
    said = " ".join(akx("tune", poisson).out.split())
    assert "125% of the roofline (memory)" in said
    assert "the plan is faster than the model's bound: the measured bandwidth was too low, or data came" in said


def test_recording_and_measuring_everything(
    akx: Callable[..., Ran], tuner: _Tuner, poisson: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trials = tmp_path / "trials.jsonl"
    assert akx("tune", poisson).code == 0
    assert (tuner.asked["record"], tuner.asked["seed"]) == (None, None)
    akx("tune", poisson, "--record", trials, "--seed", 3)
    assert (tuner.asked["record"], tuner.asked["seed"]) == (trials, 3)
    everything = _Tuner(replace(_RESULT, db=None, stopped="space exhausted"))
    monkeypatch.setattr("akx.tuner.exhaustive", everything)
    ran = akx("tune", poisson, "--exhaustive", "--record", trials, "--k", 4, "--time", 9, "--basis", "newton")
    assert ran.code == 0
    assert "ended by: space exhausted" in ran.out
    asked = everything.asked
    assert (asked["record"], asked["k"], asked["seconds"], asked["basis"]) == (trials, 4, 9.0, "newton")
    assert not {"db", "trials", "retune", "calls"} & set(asked)
    everything.result = replace(everything.result, interrupted=True)
    ran = akx("tune", poisson, "--exhaustive")
    assert (ran.code, "the rest was not measured" in ran.err) == (130, True)


@pytest.mark.parametrize(
    "options", [("--trials", 5), ("--calls", 5), ("--retune",), ("--fresh",), ("--db", "x.sqlite"), ("--fraction", 0.5)]
)
def test_an_option_without_a_meaning_for_everything_is_refused(
    akx: Callable[..., Ran], tuner: _Tuner, poisson: Path, options: tuple[Any, ...]
) -> None:
    ran = akx("tune", poisson, "--exhaustive", *options)
    assert (ran.code, f"{options[0]} has no meaning with --exhaustive" in ran.error) == (2, True)


def test_text_says_how_many_calls_are_to_come(akx: Callable[..., Ran], tuner: _Tuner, poisson: Path) -> None:
    tuner.result = replace(_RESULT, calls=5000)
    assert "paid back after 20,167 calls, of 5,000 to come" in akx("tune", poisson).out
    assert akx("tune", poisson, "--json").json["calls"] == 5000
    ran = akx("tune", poisson, "--calls", 0)
    assert (ran.code, "--calls is out of range" in ran.error) == (2, True)


def test_without_a_terminal_each_new_best_is_one_line(akx: Callable[..., Ran], tuner: _Tuner, poisson: Path) -> None:
    lines = akx("tune", poisson).err.splitlines()
    assert len(lines) == 2
    assert "best 3.50 ms, 1.00x, 40% of roofline" in lines[0]
    assert "best 2.00 ms, 1.75x, 75% of roofline" in lines[1]
    assert _BEST.label() in lines[1]


def test_on_a_terminal_there_is_a_bar_on_stderr(
    akx: Callable[..., Ran], tuner: _Tuner, poisson: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(
        "akx.cli.progress.status_console",
        lambda: Console(file=screen, force_terminal=True, width=140, color_system=None),
    )
    ran = akx("tune", poisson, "--json")
    assert ran.json["k"] == 8
    assert ran.err == ""
    assert "best 2.00 ms, 1.75x, 75% of roofline" in screen.getvalue()


def test_ctrl_c_prints_the_best_so_far_and_exits_130(akx: Callable[..., Ran], tuner: _Tuner, poisson: Path) -> None:
    tuner.result = replace(_RESULT, interrupted=True, stopped="interrupted")
    ran = akx("tune", poisson)
    assert ran.code == 130
    assert _BEST.label() in ran.out
    assert "the best plan so far" in ran.err
    ran = akx("tune", poisson, "--json")
    assert (ran.code, ran.json["interrupted"]) == (130, True)


@pytest.mark.parametrize("variable", ["NO_COLOR", "TERM"])
def test_no_escape_codes_where_nobody_wants_them(
    akx: Callable[..., Ran], tuner: _Tuner, poisson: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.setenv(variable, "1" if variable == "NO_COLOR" else "dumb")
    ran = akx("tune", poisson)
    assert "\x1b" not in ran.out + ran.err
    assert sys.stdout is not None


def test_for_a_solver(akx: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch, poisson: Path, tmp_path: Path) -> None:
    from akx import solvers
    from akx.solvers.tuning import Candidate, SolverTuning

    asked: dict[str, Any] = {}
    plan = _SWEEP.replace(k=4)
    candidates = (Candidate(4, 1.5e-3, 1e-3, 1.0, plan), Candidate(8, float("inf"), 2e-3, 0.3, plan.replace(k=8)))
    found = SolverTuning(
        "ca_gmres", "cpu", 4, 1.5e-3, 3e-3, candidates, kept=True, tuning_seconds=12.0, basis="newton",
        notes=("on the cuda: s = 8, 2 ms a step; kept as well",),
    )  # fmt: skip

    def stand_in(matrix: Matrix, solver: str, **options: Any) -> SolverTuning:
        asked.update(options, solver=solver, rows=matrix.n)
        return found

    monkeypatch.setattr(solvers, "tune_for", stand_in)
    ran = akx("tune", poisson, "--for", "ca-gmres", "--time", 9, "--threads", 2, "--retune")
    assert ran.code == 0
    assert (asked["solver"], asked["backend"], asked["threads"], asked["seconds"]) == ("ca-gmres", "auto", 2, 9.0)
    assert (asked["basis"], asked["trials"]) == ("auto", None)
    assert (asked["retune"], asked["name"], asked["rows"]) == (True, "poisson", 400)
    assert asked["db"].path == tmp_path / "plans.sqlite"
    assert "s = 4, 1.50 ms a step, 2.00x over gmres" in ran.out
    assert "no use" in ran.out
    assert "ca_gmres on the cpu, newton basis" in ran.out
    assert "on the cuda: s = 8" in ran.out
    akx("tune", poisson, "--for", "ca-gmres", "--basis", "chebyshev", "--trials", 5, "--backend", "cpu")
    assert (asked["basis"], asked["trials"], asked["backend"]) == ("chebyshev", 5, "cpu")
    data = akx("tune", poisson, "--for", "ca-gmres", "--json").json
    assert (data["schema"], data["solver"], data["s"], data["kept"]) == (1, "ca_gmres", 4, True)
    assert [one["seconds"] for one in data["candidates"]] == [1.5e-3, None]
    check_shape("tune_for.json", data)
    assert data["notes"] == list(found.notes)
    assert akx("tune", poisson, "--for", "cg").code == 2
    assert "--fresh has no meaning with --for" in akx("tune", poisson, "--for", "ca-gmres", "--fresh").error
    assert akx("tune", poisson, "--for", "ca_gmres").code == 0
    assert asked["solver"] == "ca-gmres"


@pytest.mark.parametrize("dtype", ["float64", "float32", "complex128"])
def test_conjugate_gradients_are_not_tuned_for_a_matrix_that_is_not_hermitian(
    akx: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, dtype: str
) -> None:
    from akx import solvers

    asked: list[str] = []

    def stand_in(matrix: Matrix, solver: str, **options: Any) -> Any:
        asked.append(solver)
        raise MatrixError("stop here")

    monkeypatch.setattr(solvers, "tune_for", stand_in)
    symmetric = sp.diags_array([-1.0, 4.0, -1.0], offsets=[-1, 0, 1], shape=(300, 300)).tocsr()
    if dtype == "complex128":
        symmetric = symmetric + sp.diags_array([1j, -1j], offsets=[-1, 1], shape=(300, 300)).tocsr()
    rounded, skewed = symmetric.copy(), symmetric.copy()
    rounded[3, 2] *= 1 + 4e-16
    skewed[3, 2] *= 1 + 1e-4
    for name, A in (("symmetric", symmetric), ("rounded", rounded), ("skewed", skewed)):
        scipy.io.mmwrite(tmp_path / f"{name}.mtx", A, symmetry="general", precision=17)
    for name in ("symmetric", "rounded"):
        assert "stop here" in akx("tune", tmp_path / f"{name}.mtx", "--for", "ca-cg", "--dtype", dtype).error
    assert asked == ["ca-cg", "ca-cg"]
    for spelling in ("ca-cg", "ca_cg"):
        ran = akx("tune", tmp_path / "skewed.mtx", "--for", spelling, "--dtype", dtype)
        assert (ran.code, ran.out) == (2, "")
        assert ("Hermitian" if dtype == "complex128" else "symmetric") in ran.error
        assert "ca-gmres or ca-bicgstab" in ran.error
    assert asked == ["ca-cg", "ca-cg"]
    akx("tune", tmp_path / "skewed.mtx", "--for", "ca-bicgstab", "--dtype", dtype)
    assert asked == ["ca-cg", "ca-cg", "ca-bicgstab"]


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--k", 8),
        ("--k", 4),
        ("--memory-budget", "1G"),
        ("--fraction", 0.5),
        ("--value-error", 6e-8),
        ("--trials", 0),
        ("--storage", "a"),
        ("--calls", 9),
        ("--seed", 9),
    ],
)
def test_an_option_without_a_meaning_for_a_solver_is_refused(
    akx: Callable[..., Ran], monkeypatch: pytest.MonkeyPatch, poisson: Path, option: str, value: Any
) -> None:
    from akx import solvers

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("tuned all the same")

    monkeypatch.setattr(solvers, "tune_for", never)
    ran = akx("tune", poisson, "--for", "ca-gmres", option, value)
    assert ran.code == 2
    assert option in ran.error
    ran = akx("tune", poisson, "--for", "ca-gmres", option, value, "--json")
    assert (ran.code, ran.json["error"]["type"]) == (2, "ArgumentError")
