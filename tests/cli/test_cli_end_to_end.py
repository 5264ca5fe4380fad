"""The commands with nothing replaced: tune, reuse, bench, Ctrl-C. Budgets are tiny; nothing checked depends on them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

import akx as library
from akx.core.plan import Plan
from cli.golden import check_shape
from cli.running import Ran


def test_record_then_replay(akx: Callable[..., Ran], poisson: Path, tmp_path: Path) -> None:
    path = tmp_path / "trials.jsonl"
    tuned = akx("tune", poisson, "--k", 3, "--trials", 3, "--time", 5, "--backend", "cpu", "--record", path, "--json")
    assert tuned.code == 0, tuned.err
    recorded = [json.loads(line) for line in path.read_text().splitlines()]
    assert [one.get("number") for one in recorded] == [None, *range(sum(tuned.json["trials"].values())), None]
    found = akx("tune", "--replay", path, "--trials", 3, "--json").json
    assert found["recording"]["plans"] == len(recorded) - 2
    assert found["best"]["label"] in {Plan.from_json(one["plan"]).label() for one in recorded[1:-1]}
    assert 0 < found["share"] <= 1


@pytest.fixture(scope="module")
def jumbled(poisson: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The matrix of `poisson` in another order of entries, with other values and in another format of file."""
    A = library.read_matrix(poisson).tocoo()
    order = np.random.default_rng(3).permutation(A.nnz)
    path = tmp_path_factory.mktemp("jumbled") / "other-name.npz"
    shuffled = sp.coo_array((A.data[order] + 1.0, (A.row[order], A.col[order])), shape=A.shape)
    sp.save_npz(path, shuffled)
    return path


def test_tune_then_reuse_then_call(akx: Callable[..., Ran], poisson: Path, jumbled: Path, tmp_path: Path) -> None:
    first = akx("tune", poisson, "--k", 3, "--trials", 2, "--time", 5, "--json")
    assert first.code == 0, first.err
    data = first.json
    assert (data["reused"], data["k"], data["matrix"]["rows"], data["matrix"]["nnz"]) == (False, 3, 400, 1920)
    assert data["speedup"] >= 1.0
    assert data["trials"]["complete"] >= 1
    assert data["db"] == str(tmp_path / "plans.sqlite")
    assert data["tuning_seconds"] > 0

    second = akx("tune", poisson, "--k", 3, "--json").json
    assert second["reused"] is True
    assert second["best"] == data["best"]
    assert second["trials"] == data["trials"]

    other = akx("tune", jumbled, "--k", 3, "--json").json
    assert other["reused"] is True, "the same pattern in another order of entries is the same matrix to a plan"
    assert other["matrix"]["fingerprint"] == data["matrix"]["fingerprint"]

    A = library.read_matrix(poisson)
    P = library.MatrixPowers(A, 3)
    assert P.plan == Plan.from_json(data["best"]["plan"])
    x = np.arange(400.0)
    expected = np.stack([x, A @ x, A @ (A @ x), A @ (A @ (A @ x))], axis=1)
    np.testing.assert_allclose(P(x), expected, rtol=1e-12, atol=1e-9)


def test_another_k_or_dtype_is_another_plan(akx: Callable[..., Ran], poisson: Path) -> None:
    budget = ["--trials", 1, "--time", 5, "--json"]
    assert akx("tune", poisson, "--k", 2, *budget).json["reused"] is False
    assert akx("tune", poisson, "--k", 1, *budget).json["reused"] is False
    assert akx("tune", poisson, "--k", 2, "--dtype", "float32", *budget).json["matrix"]["dtype"] == "float32"
    assert akx("tune", poisson, "--k", 2, *budget).json["reused"] is True
    assert akx("tune", poisson, "--k", 2, "--retune", *budget).json["reused"] is False


def test_bench(akx: Callable[..., Ran], poisson: Path) -> None:
    ran = akx("bench", poisson, "--k", "1,2", "--trials", 1, "--time", 5, "--json")
    assert ran.code == 0, ran.err
    data = ran.json
    assert [power["k"] for power in data["powers"]] == [1, 2]
    for power in data["powers"]:
        assert "scipy" in power["baselines"]
        assert power["error"] <= 1
        assert power["speedup"] == pytest.approx(min(power["baselines"].values()) / power["best"]["seconds"])
        for volatile in ("baselines", "baseline_spreads"):
            power[volatile] = {"scipy": power[volatile]["scipy"]}
        power["best"]["plan"]["options"] = {}
    check_shape("bench.json", {**data, "notes": []})
    text = akx("bench", poisson, "--k", "2").out
    assert "scipy" in text
    assert "A @ x, one thread" in text


@pytest.mark.skipif(os.name != "posix", reason="needs POSIX signals")
def test_ctrl_c_keeps_the_best_so_far(tmp_path: Path) -> None:
    line = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(150, 150))
    identity = sp.eye_array(150)
    path, db = tmp_path / "grid.mtx", tmp_path / "plans.sqlite"
    scipy.io.mmwrite(path, sp.coo_array(sp.kron(line, identity) + sp.kron(identity, line)))
    command = [sys.executable, "-m", "akx", "tune", str(path), "--trials", "100000", "--time", "300", "--db", str(db)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stderr is not None
        said = []
        while not said or said[-1].startswith(("akx: working", "akx: compiling", "akx: reading")):
            said.append(process.stderr.readline())
        assert "best" in said[-1], said  # the first "best so far": something has been measured
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "cpu/" in out
    done = subprocess.run(
        [sys.executable, "-m", "akx", "plans", "list", "--db", str(db), "--json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert [plan["matrix"] for plan in json.loads(done.stdout)["plans"] if plan["layer"] == "user"] == ["grid"]


def test_what_a_library_in_c_prints_is_no_data() -> None:
    script = "import os, akx.cli; akx.cli.main(); os.write(1, b'from C\\n'); print('from akx')"
    ran = subprocess.run([sys.executable, "-c", script, "--version"], capture_output=True, text=True, check=True)
    assert ran.stdout == f"akx {library.__version__}\nfrom akx\n"
    assert ran.stderr == "from C\n"


def test_ctrl_c_that_a_callback_swallows_is_not_lost() -> None:
    script = """
import ctypes, signal, sys, time
from akx.cli import run as command_line

def work(arguments):
    ctypes.CFUNCTYPE(None)(lambda: signal.raise_signal(signal.SIGINT))()
    time.sleep(30)

command_line._invoke = work
sys.exit(command_line.run(["info"]))
"""
    signal_default = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
    ran = subprocess.run(
        [sys.executable, "-c", signal_default + script], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 130, ran.stderr
