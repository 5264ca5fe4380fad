"""Run the command line in this process and look at what came out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import scipy.io
import scipy.sparse as sp

from akx.cli import main
from cli.running import Ran


@pytest.fixture(autouse=True)
def _quiet_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AKX_DB", str(tmp_path / "plans.sqlite"))
    monkeypatch.setenv("COLUMNS", "160")
    for name in ("AKX_DEBUG", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def akx(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """``akx("tune", path, "--json")`` -> what it printed and its exit code."""

    def run(*arguments: object) -> Ran:
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        out, err = capsys.readouterr()
        return Ran(code, out, err)

    return run


@pytest.fixture(scope="session")
def poisson(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Matrix Market file of the 5-point matrix on 20 x 20 nodes: 400 rows, 1920 entries."""
    line = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(20, 20))
    identity = sp.eye_array(20)
    path = tmp_path_factory.mktemp("matrices") / "poisson.mtx"
    scipy.io.mmwrite(path, sp.coo_array(sp.kron(line, identity) + sp.kron(identity, line)), symmetry="general")
    return path
