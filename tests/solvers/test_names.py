"""The names of the package: functions that have the names of their modules."""

from __future__ import annotations

import subprocess
import sys

import pytest

import akx.solvers

_USE = """
import numpy as np, scipy.sparse as sp
import akx.solvers
{first}
A, b = sp.csr_array(sp.diags_array([-1.0, 2.5, -1.0], offsets=[-1, 0, 1], shape=(30, 30))), np.ones(30)
for name in {names}:
    assert getattr(akx.solvers, name)(A, b)[1] == 0, name
"""


@pytest.mark.parametrize("first", ["", "import akx.solvers.cg", "from akx.solvers.ca_gmres import ca_gmres"])
def test_a_name_is_the_function_whatever_was_imported_and_called_before(first: str) -> None:
    names = sorted(akx.solvers.SOLVERS, reverse=True)
    text = _USE.format(first=first, names=[*names, *reversed(names)])
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr


def test_all_names_are_there() -> None:
    for name in akx.solvers.__all__:
        assert hasattr(akx.solvers, name)
    assert {solver.__name__ for solver in akx.solvers.SOLVERS.values()} == set(akx.solvers.SOLVERS)
