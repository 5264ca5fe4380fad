"""The benchmark of steps, with solvers whose time is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import akx.solvers
from benchmarks import gallery, solving, steps


def contestant(name: str, by: str, first: float, step: float, s: int = 0) -> steps.Contestant:
    """One that takes `first` seconds and `step` for each step; a cycle of gmres is 30 of them."""

    def run(limit: int) -> tuple[float, int, dict[str, Any]]:
        done = limit * solving.RESTART if "gmres" in name else limit
        return first + step * done, done, {"s": s}

    return steps.Contestant(name, by, run)


@pytest.mark.parametrize("method", ["cg", "gmres"])
def test_a_step_is_the_slope_and_the_ratio_that_to_the_best_classic(
    method: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def field(*_: Any, **__: Any) -> list[steps.Contestant]:
        return [
            contestant(method, "akx", 1.0, 3e-3),
            contestant(f"ca_{method}", "akx", 5.0, 1e-3, s=6),
            contestant(method, "SciPy", 0.0, 2e-3),
        ]

    monkeypatch.setitem(steps.BACKENDS, "cpu", field)
    monkeypatch.setitem(gallery.GALLERY, "brick", lambda: gallery.small("brick"))
    out, page = tmp_path / "steps.json", tmp_path / "page.md"
    page.write_text("<!-- steps:begin -->\n<!-- steps:end -->\n")
    given = ["--only", "brick", "--method", method, "-o", str(out), "--docs", str(page)]
    assert steps.main(given) == 0
    assert steps.main(given) == 0  # takes the place of the first entry
    (entry,) = steps.json.loads(out.read_text())["steps"]
    times = {label: found["seconds"] for label, found in entry["steps"].items()}
    assert times == pytest.approx({f"{method} (akx)": 3e-3, f"ca_{method} (akx)": 1e-3, f"{method} (SciPy)": 2e-3})
    assert (entry["ratio"], entry["ratio_own"]) == pytest.approx((2.0, 3.0))
    assert entry["best_classic"] == f"{method} (SciPy)"
    assert "| brick | 6 | 3 | 1 | 2 | 2.00 | 3.00 |" in page.read_text()
    assert "| geometric mean |" in page.read_text()


def test_a_solver_that_came_to_an_end_is_no_figure() -> None:
    with pytest.raises(RuntimeError, match="came to its end"):
        steps.slope(lambda limit: (1.0, min(limit, 20), {}), 20, 40, 1, 0.0)


def test_one_pair_of_solves_that_was_disturbed_does_not_count() -> None:
    waits = iter([0.0, 0.0, 0.0, 50.0, 0.0, 0.0])  # the fourth solve was
    steps_of = steps.slope(lambda limit: (limit * 1e-3 + next(waits), limit, {}), 20, 40, 3, 0.0)
    assert steps_of == pytest.approx(1e-3)


def test_short_solves_are_repeated_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, solves = iter(range(100)), []
    monkeypatch.setattr(steps, "now", lambda: float(next(clock)))
    steps.slope(lambda limit: solves.append(limit) or (float(limit), limit, {}), 20, 40, 2, 7.0)
    assert len(solves) == 2 * (2 + 6)


def test_lengths_end_before_the_last_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long solve ends where the residual is 1e-13; the short one has 192 steps, or none if few are left."""
    monkeypatch.setitem(gallery.GALLERY, "brick", lambda: gallery.small("brick"))
    A, b = steps.system_of("brick", "gmres")
    whole = steps.useful_cycles(A, b, 2, 12, "cpu")
    _, _, stats = akx.solvers.gmres(A, b, rtol=1e-13, restart=30, maxiter=12, backend="cpu", return_stats=True)
    assert whole == max(3, stats.iterations // 30)
    assert steps.useful_cycles(A, b, 2, 3, "cpu") == 3

    asked: list[tuple[int, int]] = []

    def field(name: str, method: str, *_: Any, lengths: tuple[int, int], **__: Any) -> list[steps.Contestant]:
        asked.append(lengths)
        return [contestant(method, "akx", 1.0, 2.0), contestant(f"ca_{method}", "akx", 1.0, 1.0, s=8)]

    monkeypatch.setitem(steps.BACKENDS, "cuda", field)
    monkeypatch.setitem(steps._PAIRS, "cuda", (1, 0.0))
    ratios = []
    for useful in (5000, 256, 255):
        monkeypatch.setattr(steps, "useful_steps", lambda *_, useful=useful: min(useful, 1216))
        entry = steps.compare("brick", "cg", backend="cuda", db=Path("none"), seconds=0.0, rounds=1)
        ratios.append((entry["whole_solves"], entry["ratio"]))
    assert asked == [(192, 1216), (192, 256), (0, 255)]
    steps_of_blocks = 255 // 8 * 8
    share = (1 + 2.0 * 255) / 255 / ((1 + steps_of_blocks) / steps_of_blocks)  # what is paid once has its share
    assert ratios == [(False, 2.0), (False, 2.0), (True, pytest.approx(share))]


def test_systems_are_symmetric_for_cg_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(gallery.GALLERY, "shell", lambda: gallery.small("shell"))
    A, b = steps.system_of("shell", "cg")
    B, _ = steps.system_of("shell", "gmres")
    assert abs(A - A.T).max() == 0
    assert abs(B - B.T).max() > 0.1 * abs(A).max()
    assert (A.nnz, b.shape) == (B.nnz, (A.shape[0],))
