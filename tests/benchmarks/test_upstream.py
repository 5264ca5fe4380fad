"""Other packages' own tests of Krylov solvers on akx's: some of SciPy's, all of PyAMG's where it is installed.

A run takes seconds, as it is a process of its own: a module of tests sees akx's functions when it is imported.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks import upstream

#: Those that tell a preconditioner that returns its argument, x0="Mb", or callbacks.
TELLING = {
    "classic": "test_precond_dummy and bicgstab or test_x0_equals_Mb and cg or TestGMRES",
    "ca": "test_precond_dummy and rand-diag or test_x0_equals_Mb and cg or test_callback",
}


@pytest.fixture(autouse=True)
def _from_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(Path(__file__).resolve().parents[2])


@pytest.mark.parametrize("family", list(upstream.FAMILIES))
def test_scipys_tests_pass(family: str, capfd: pytest.CaptureFixture[str]) -> None:
    if not upstream.is_installed("scipy"):
        pytest.skip("SciPy is installed without its tests")
    code = upstream.main(["--suite=scipy", f"--family={family}", "--", "-k", TELLING[family]])
    said = capfd.readouterr().out
    assert code == 0, said
    found = re.search(r"(\d+) passed", said)
    assert found is not None
    assert int(found[1]) > 30  # so many that no solver's are left out
    assert " xfailed" in said  # what does not apply is run, and fails


def test_pyamgs_tests_pass(capfd: pytest.CaptureFixture[str]) -> None:
    if not upstream.is_installed("pyamg"):
        pytest.skip("PyAMG is not installed")
    code = upstream.main(["--suite=pyamg"])
    assert code == 0, capfd.readouterr().out


def test_a_suite_that_is_not_installed_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(upstream.SUITES, "pyamg", "no_such_package.tests")
    assert upstream.main(["--suite=pyamg"]) == 0
    assert "pyamg are not installed" in capfd.readouterr().err
