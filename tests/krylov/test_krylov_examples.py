"""The examples built of akx.krylov: eigenvalues beside SciPy's and those of the dense matrix."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.sparse.linalg import eigsh

_FOLDER = Path(__file__).resolve().parents[2] / "examples"


def example(name: str) -> Any:
    found = importlib.util.spec_from_file_location(name, _FOLDER / f"{name}.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return getattr(module, name)


@pytest.fixture(autouse=True)
def _plain_products(no_plans_of_the_user: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AKX_PREPARE", "auto")


@pytest.mark.parametrize("s", [1, 4, 8])
def test_arnoldi(s: int) -> None:
    T = sp.diags_array([-1.3, 2.0, -0.7], offsets=[-1, 0, 1], shape=(12, 12))
    A = sp.csr_array(sp.kron(T, sp.eye_array(12)) + 0.7 * sp.kron(sp.eye_array(12), T))
    Q, H = example("ca_arnoldi")(A, np.random.default_rng(0).standard_normal(144), 60, s)
    assert H.shape[1] >= 60
    np.testing.assert_allclose(A @ Q[:, :-1], Q @ H, atol=1e-8)
    np.testing.assert_allclose(Q.T @ Q, np.eye(Q.shape[1]), atol=1e-13)
    assert not np.tril(H, -2).any()
    exact = np.sort(np.linalg.eigvals(A.toarray()).real)
    found = np.sort(np.linalg.eigvals(H[:-1]).real)
    np.testing.assert_allclose([found[0], found[-1]], [exact[0], exact[-1]], rtol=1e-8)


def test_arnoldi_in_a_space_that_is_exhausted() -> None:
    A = sp.csr_array(sp.diags_array(np.repeat([1.0, 2.0, 5.0], 10)))
    Q, H = example("ca_arnoldi")(A, np.ones(30), 10, 4)
    assert H.shape == (4, 3) or H.shape == (3, 2)
    np.testing.assert_allclose(np.sort(np.linalg.eigvals(H[:-1]))[-1], 5.0, rtol=0.1)
    assert Q.shape[1] == H.shape[0]


@pytest.mark.parametrize("s", [2, 6])
def test_lanczos(s: int) -> None:
    L = sp.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(20, 20))
    A = sp.csr_array(sp.kron(L, sp.eye_array(20)) + 2 * sp.kron(sp.eye_array(20), L))
    T = example("ca_lanczos")(A, np.random.default_rng(0).standard_normal(400), 90, s, (0.0, 12.0))
    assert len(T) >= 90
    found = np.linalg.eigvalsh(T)
    for which, place in (("LA", -1), ("SA", 0)):
        exact = eigsh(A, 1, which=which, return_eigenvectors=False)[0]
        assert found[place] == pytest.approx(exact, rel=1e-8)


def test_the_page_has_the_example_as_it_is() -> None:
    text = (_FOLDER / "ca_arnoldi.py").read_text()
    code = text[text.index("def ca_arnoldi") : text.index("\n\nif __name__")].rstrip()
    assert f"```python\n{code}\n```" in (_FOLDER.parent / "docs" / "krylov.md").read_text()
    for name in ("ca_arnoldi", "ca_lanczos"):
        text = (_FOLDER / f"{name}.py").read_text()
        body = text[text.index(f"def {name}") : text.index("\n\nif __name__")].strip()
        assert len(body.splitlines()) <= 25
