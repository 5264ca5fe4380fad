"""The harness with stand-ins for the contestants: what ends up in the file, and what a failure costs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pretended import Seconds
from scipy import sparse

from akx.operator import tiers
from benchmarks import clock, powers, record
from benchmarks.clock import Settings
from benchmarks.contest import Contest, start_vector
from benchmarks.gallery import CONSTANT, GALLERY, LARGE, small
from benchmarks.matrices import Case, available, select

time = Seconds()


@pytest.fixture(autouse=True)
def _in_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clock, "time", time)


QUICK = Settings(seconds=0.0, rounds_min=3, rounds_max=3, sample_seconds=1e-4, warm_seconds=0.0, pause_seconds=0.0)
FORM = {
    "matrix", "rows", "nnz", "k", "dtype", "baselines", "best", "speedup", "prepare_seconds", "error",
}  # fmt: skip


def fake(name: str, matrix: sparse.csr_array, k: int, *, reordered: bool, best: bool = True) -> Contest:
    """SciPy 4 ms, MKL 2 ms, sweep 3 ms, akx 1 ms."""
    return Contest(
        baselines={n: lambda t=t: time.sleep(t) for n, t in (("scipy", 4e-3), ("mkl", 2e-3), ("sweep", 3e-3))},
        best=(lambda: time.sleep(1e-3)) if best else None,
        schedule="wavefront" if best else "sweep",
        variant="csr16",
        plan="cpu/wavefront/csr16",
        prepare_seconds=0.1,
        tuning_seconds=2.0,
        error=lambda: 0.3,
        extras={"sweep_reordered": lambda: time.sleep(2e-3)} if reordered else {},
    )


def case(name: str, *, reordered: bool = False) -> Case:
    return Case(name, "gallery", lambda: small(name), reordered)


def test_the_file_has_the_form_of_the_issue(tmp_path: Path) -> None:
    path = tmp_path / "cpu.json"
    assert powers.run([case("brick"), case("rmat", reordered=True)], [1, 8], path, fake, threads=2, settings=QUICK) == 0
    document = json.loads(path.read_text())
    assert set(document) == {"machine", "versions", "commit", "date", "powers"}
    assert record.check(document) == []
    assert [(e["matrix"], e["k"]) for e in document["powers"]] == [("brick", 1), ("brick", 8), ("rmat", 1), ("rmat", 8)]
    brick, rmat = document["powers"][0], document["powers"][3]
    assert set(brick) >= FORM
    assert set(brick["baselines"]) == {"scipy", "mkl", "sweep"}
    assert set(brick["best"]) == {"schedule", "variant", "seconds", "spread"}
    assert (brick["rows"], brick["nnz"], brick["dtype"]) == (*small("brick").shape[:1], small("brick").nnz, "float64")
    assert brick["speedup"] == pytest.approx(brick["baselines"]["mkl"] / brick["best"]["seconds"])
    assert brick["speedup"] == pytest.approx(2.0, rel=1e-3)
    assert "sweep_reordered" not in brick
    assert rmat["sweep_reordered"] >= 2e-3


def test_where_the_sweep_is_the_plan_one_measurement_serves_both() -> None:
    def none_better(*args, **kwargs) -> Contest:
        contest = fake(*args, **kwargs, best=False)
        del contest.baselines["mkl"]
        return contest

    entry = powers.measure(case("brick"), small("brick"), 8, none_better, QUICK)
    assert entry["best"]["seconds"] == entry["baselines"]["sweep"]
    assert entry["speedup"] == 1.0


def test_a_failure_costs_one_measurement_and_is_counted(tmp_path: Path) -> None:
    def sometimes(name: str, matrix: sparse.csr_array, k: int, *, reordered: bool) -> Contest:
        if k == 2:
            raise ArithmeticError("mkl and scipy differ")
        return fake(name, matrix, k, reordered=reordered)

    lines: list[str] = []
    path = tmp_path / "cpu.json"
    assert powers.run([case("brick")], [1, 2, 4], path, sometimes, threads=2, settings=QUICK, say=lines.append) == 1
    assert [e["k"] for e in json.loads(path.read_text())["powers"]] == [1, 4]
    assert any("FAILED: ArithmeticError: mkl and scipy differ" in line for line in lines)


def test_a_wrong_result_never_enters_the_file(tmp_path: Path) -> None:
    def wrong(*args, **kwargs) -> Contest:
        contest = fake(*args, **kwargs)
        return Contest(**{**contest.__dict__, "error": lambda: 1.01})

    path = tmp_path / "cpu.json"
    assert powers.run([case("brick")], [4], path, wrong, threads=2, settings=QUICK) == 1
    assert not path.exists()


def test_missing_measures_only_what_is_not_there(tmp_path: Path) -> None:
    asked: list[tuple[str, int]] = []

    def noted(name: str, matrix: sparse.csr_array, k: int, *, reordered: bool) -> Contest:
        asked.append((name, k))
        return fake(name, matrix, k, reordered=reordered)

    path = tmp_path / "cpu.json"
    powers.run([case("brick")], [1, 2], path, noted, threads=2, settings=QUICK)
    powers.run([case("brick"), case("shell")], [2, 4], path, noted, threads=2, settings=QUICK, missing=True)
    assert asked == [("brick", 1), ("brick", 2), ("brick", 4), ("shell", 2), ("shell", 4)]
    powers.run([case("brick")], [2], path, noted, threads=2, settings=QUICK)
    assert asked[5:] == [("brick", 2)]
    assert len(json.loads(path.read_text())["powers"]) == 5


def test_matrices_that_are_none_to_measure_are_left_out(tmp_path: Path) -> None:
    def refuse() -> sparse.csr_array:
        raise ValueError("not square: 3 x 4")

    lines: list[str] = []
    path = tmp_path / "cpu.json"
    cases = [Case("odd", "real", refuse), case("brick")]
    assert powers.run(cases, [2], path, fake, threads=2, settings=QUICK, say=lines.append) == 0
    assert lines[0] == "odd: left out, not square: 3 x 4"
    assert [e["matrix"] for e in json.loads(path.read_text())["powers"]] == ["brick"]


def test_cases_are_the_gallery_and_the_files_of_the_folder(tmp_path: Path) -> None:
    for name in ("b.mtx.gz", "A.rsa", "c_lower.npz", "notes.md"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "bad").mkdir()
    cases = list(available(tmp_path))
    assert [c.name for c in cases] == [*GALLERY, "A", "b", "c"]
    assert {c.name for c in cases if c.reordered} == {"delaunay", "tetrahedra", "rmat"}
    assert [c.name for c in select(["real", "brick"], tmp_path)] == ["brick", "A", "b", "c"]
    assert select(None, tmp_path, reduced=True)[0].load().shape == small("pentadiagonal").shape
    assert {c.name for c in select(["constant"], reduced=True)} == set(CONSTANT)
    assert [c.name for c in select(["large", "9-point"], reduced=True)] == ["9-point", *LARGE]
    with pytest.raises(KeyError, match="bricks"):
        select(["bricks"], tmp_path)


@pytest.mark.parametrize("arguments", [["--only", "bricks"], ["--k", "0"], ["--small", "--only", "brick"]])
def test_bad_arguments_end_with_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        powers.main(arguments)
    assert refused.value.code == 2
    assert "error:" in capsys.readouterr().err


def test_start_vectors_are_measured_by_number_and_what_is_wrong_counts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def timed(calls: dict[str, Any], *_: object, **__: object) -> dict[str, clock.Timing]:
        for call in calls.values():
            call()
        seconds = {"scipy": 4e-3, "first": 2e-3, "prepared": 1e-3, "out": 5e-4}
        return {name: clock.Timing(seconds[name], 0.1, 7) for name in calls}

    monkeypatch.setattr(powers, "interleave", timed)
    path, page = tmp_path / "vectors.json", tmp_path / "page.md"
    page.write_text("<!-- vectors:begin -->\n<!-- vectors:end -->\n")
    monkeypatch.setattr(powers, "_MOST_BYTES", 9 * 8 * 300 * 4)
    given = ["--vectors", "--reduced", "--only", "pentadiagonal", "-o", str(path), "--docs", str(page)]
    assert powers.main(given) == 0
    (entry,) = json.loads(path.read_text())["vectors"]
    assert [one["vectors"] for one in entry["by"]] == [1, 2, 3, 4], "more take too much room"
    assert {name: entry["by"][0][name] for name in ("first", "prepared", "out")} == {
        "first": 2.0, "prepared": 4.0, "out": 8.0,
    }  # fmt: skip
    assert "| mean |  |  | 2.00 / 4.00 / 8.00 |" in page.read_text()
    asked: list[int] = []
    plain = tiers.powers_into
    monkeypatch.setattr(tiers, "powers_into", lambda *given, **named: asked.append(1) or plain(*given, **named))
    assert powers.main(given) == 0
    assert len(asked) == 2 * 4, "first calls are plain products, each checked and measured once"
    real = powers.akx.matrix_powers
    monkeypatch.setattr(powers.akx, "matrix_powers", lambda *given: 1.001 * real(*given))
    with pytest.raises(ArithmeticError, match="first is wrong"):
        powers.main(given)


def test_start_vectors_are_the_same_every_time_and_complex_for_complex() -> None:
    x = start_vector(1000, np.dtype(np.float32))
    assert x.dtype == np.float32
    assert np.array_equal(x, start_vector(1000, np.dtype(np.float32)))
    assert -1 <= x.min() < -0.9 < 0.9 < x.max() < 1
    z = start_vector(1000, np.dtype(np.complex128))
    assert z.dtype == np.complex128
    assert np.abs(z.imag).min() > 0


def test_real_matrices_are_square_complete_and_scaled(shared_matrices: Path) -> None:
    pytest.importorskip("akx.core.io")
    cases = {c.name: c for c in available(shared_matrices) if c.group == "real"}
    assert {"bcsstk16", "G3_circuit", "helmholtz_2D", "cage10"} <= set(cases)
    matrix = cases["bcsstk16"].load()
    assert matrix.shape == (4884, 4884)
    assert matrix.nnz == 290_378
    assert abs(matrix - matrix.T).max() == 0
    assert 0.5 < abs(matrix).sum(axis=1).max() <= 1.0
    graph = cases["PGPgiantcompo"].load()
    assert set(np.log2(graph.data)) == {-8.0, -7.0}  # ones and twos, all divided by the same power of two
    with pytest.raises(ValueError, match="not square"):
        cases["well1033"].load()
    with pytest.raises(ValueError, match="only 2474 entries"):
        cases["662_bus"].load()


def test_a_lower_triangle_is_completed(tmp_path: Path) -> None:
    pytest.importorskip("akx.core.io")
    full = 4.0 * small("9-point")
    big = sparse.csr_array(sparse.block_diag([full] * 5))
    sparse.save_npz(tmp_path / "thing_lower.npz", sparse.csr_array(sparse.tril(big)))
    (thing,) = [c for c in available(tmp_path) if c.group == "real"]
    assert thing.name == "thing"
    assert np.array_equal(thing.load().toarray(), big.toarray() / 4.0)
