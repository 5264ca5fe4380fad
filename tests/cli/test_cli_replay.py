"""``akx tune --replay``: a search over a file, with no matrix and no device."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from akx.backends.host import HostDevice
from akx.core.plan import Plan
from akx.cost.device_model import Figures
from akx.plandb import PlanKey
from akx.tuner.history.trial import Trial
from cli.golden import check_shape, check_text
from cli.running import Ran

_KEY = PlanKey("ab" * 20, "float64", "int32", "monomial", 4, 1, "cpu/Test/2 cores", "0123", "plan 1, numba 0.61")
_SWEEP = Plan("cpu", "sweep", "csr", k=4, threads=2)
_SIZES = (16384, 32768, 65536)
_SPACE = {
    "sweep": [{"name": "variant", "choices": ["csr", "sell"], "default": "csr", "description": "format"}],
    "wavefront": [
        {"name": "variant", "choices": ["csr", "sell"], "default": "csr", "description": "format"},
        {"name": "block_bytes", "choices": list(_SIZES), "default": 16384, "description": "block"},
        {"name": "k_per_pass", "choices": [4], "default": 4, "description": "powers per pass"},
    ],
}


def _row(number: int, plan: Plan, seconds: float) -> dict[str, Any]:
    trial = Trial(number, plan, "all", "complete", "", seconds, 0.001, 0.1, 0.5, elapsed=0.5, timing_seconds=0.3)
    return {**trial.to_json(), "samples": [seconds] * 7, "nbytes": 1000, "model_seconds": seconds / 2}


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    figures = asdict(Figures(1e10, 2e10, 3e10, 1e9, 0.0, 10**7))
    header = {
        "akx": "recording", "schema": 1, "kind": "exhaustive", "created": "2026-01-01T00:00:00+00:00",
        "matrix": {"name": "poisson", "rows": 400, "nnz": 1920, "dtype": "float64"},
        "key": _KEY.to_json(), "backend": "cpu", "threads": 2, "device": asdict(HostDevice("Test", 2, 1, 2, 3)),
        "packages": {}, "settings": {}, "predicted": _SWEEP.to_json(), "starts": {}, "space": _SPACE,
        "model": {"working_set": 10**5, "least_seconds": 1e-4, "figures": figures, "ceiling": None},
    }  # fmt: skip
    front = [
        Plan("cpu", "wavefront", variant, k=4, k_per_pass=4, block_bytes=size, threads=2)
        for variant in ("csr", "sell")
        for size in _SIZES
        if (variant, size) != ("csr", 65536)
    ]
    times = [(_SWEEP, 4e-3), (_SWEEP.replace(variant="sell"), 3e-3)]
    times += [(plan, 2e-3 - 1e-4 * number) for number, plan in enumerate(front)]
    rows = [_row(number, plan, seconds) for number, (plan, seconds) in enumerate(times)]
    lines = [header, *rows, {"result": {"stopped": "space exhausted"}}]
    path = tmp_path / "trials.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def test_text_says_plan_share_and_steps(akx: Callable[..., Ran], recording: Path) -> None:
    ran = akx("tune", "--replay", recording)
    assert (ran.code, ran.err) == (0, "")
    check_text("replay.txt", ran.out.replace(str(recording), "trials.jsonl"))


def test_json_is_one_object(akx: Callable[..., Ran], recording: Path, tmp_path: Path) -> None:
    ran = akx("tune", "--replay", recording, "--json", "--trials", 2, "--seed", 3, "--time", 20, "--calls", 10**9)
    assert (ran.code, ran.err) == (0, "")
    data = ran.json
    assert data["settings"] == {"trials": 2, "seconds": 20.0, "seed": 3, "calls": 10**9}
    assert (sum(data["trials"].values()), data["stopped"]) == (2, "trial budget")
    assert data["optimum"]["seconds"] == pytest.approx(1.6e-3)
    assert data["share"] == pytest.approx(1.6e-3 / data["best"]["seconds"])
    whole = akx("tune", recording, "--replay", "--json").json
    assert (whole["share"], whole["missing"]) == (1.0, 1)
    check_shape("replay.json", whole)
    assert not (tmp_path / "plans.sqlite").exists()


@pytest.mark.parametrize(
    "options",
    [
        ("--k", 4), ("--backend", "cpu"), ("--basis", "newton"), ("--dtype", "float32"), ("--threads", 1),
        ("--retune",), ("--fresh",),
        ("--db", "x.sqlite"), ("--for", "ca-cg"), ("--variable", "A"), ("--memory-budget", "1G"), ("--fraction", 0.5),
        ("--value-error", 6e-8),
        ("--record", "x.jsonl"), ("--exhaustive",), ("--storage", "x.journal"),
    ],
)  # fmt: skip
def test_an_option_without_a_meaning_is_refused(
    akx: Callable[..., Ran], recording: Path, options: tuple[Any, ...]
) -> None:
    ran = akx("tune", "--replay", recording, *options)
    assert (ran.code, f"{options[0]} has no meaning with --replay" in ran.error) == (2, True)


def test_what_is_no_recording_is_bad_input(akx: Callable[..., Ran], poisson: Path, tmp_path: Path) -> None:
    ran = akx("tune", "--replay", poisson)
    assert (ran.code, "is no recording" in ran.error) == (2, True)
    ran = akx("tune", "--replay", tmp_path / "nothing", "--json")
    assert (ran.code, ran.json["error"]["type"]) == (2, "FileMissingError")
    for wrong in (("--trials", 0), ("--time", 0), ("--calls", 0), ("--seed", -1)):
        assert akx("tune", "--replay", poisson, *wrong).code == 2


def test_a_recording_that_is_given_as_a_matrix_says_how_it_is_used(akx: Callable[..., Ran], recording: Path) -> None:
    for command in ("tune", "info"):
        ran = akx(command, recording)
        assert (ran.code, "is the recording of a tuning run" in ran.error) == (2, True)
        assert "akx tune --replay" in ran.error
