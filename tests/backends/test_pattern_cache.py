"""What is known of patterns is kept: with the matrix, and on disk by fingerprint."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import platformdirs
import pytest
import scipy.sparse as sp

from akx.backends import pattern_cache as facts
from akx.backends import registry
from akx.backends.pattern_cache import fact, features_folder, keep
from akx.core.matrix import Matrix
from akx.tuner import predict


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder of the test's own, for patterns of any size."""
    monkeypatch.setattr(facts, "_LEAST_ENTRIES", 0)
    monkeypatch.setattr(facts, "features_folder", lambda: tmp_path / "features")
    return tmp_path / "features"


def matrix(n: int = 50) -> Matrix:
    found = Matrix.from_any(sp.diags_array([1.0, 2.0, 1.0], offsets=[-1, 0, 1], shape=(n, n), format="csr"))
    assert found.fingerprint
    return found


def made(of: Matrix, value: Any, key: tuple[Any, ...] = ("a fact", 1), **options: Any) -> tuple[Any, bool]:
    """A fact, and whether it had to be made."""
    calls = []
    found = fact(of, key, lambda: calls.append(1) or value, **options)
    return found, bool(calls)


@pytest.mark.parametrize("value", [3, 0.1, None, True, "a word", [1, 2.5, None]])
def test_a_fact_is_made_once(value: Any) -> None:
    first = matrix()
    assert made(first, value) == (value, True)
    assert made(first, "other") == (value, False)
    assert made(first, "other", ("a fact", 2)) == ("other", True)
    keep(first)
    assert made(matrix(), "other") == (value, False)
    assert made(matrix(51), "other") == ("other", True)


def test_what_json_has_not_is_written_and_read_as_it_is_told() -> None:
    how: dict[str, Any] = {"written": np.ndarray.tolist, "read": np.asarray}
    first, value = matrix(), np.array([0.1, 1 / 3, 1e300])
    made(first, value, **how)
    keep(first)
    found, is_new = made(matrix(), None, **how)
    assert not is_new
    assert found.tobytes() == value.tobytes()


def test_nothing_is_on_disk_of_small_patterns_and_of_those_without_a_fingerprint(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nameless = Matrix.from_any(sp.eye_array(5, format="csr"))
    made(nameless, 1)
    keep(nameless)
    monkeypatch.setattr(facts, "_LEAST_ENTRIES", 1000)
    made(matrix(), 1)
    keep(matrix())
    assert not folder.exists()


def test_a_file_of_other_sources_or_that_is_damaged_is_none(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = matrix()
    made(first, 1)
    keep(first)
    (file,) = folder.iterdir()
    text = file.read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr(facts, "_sources", lambda: "others")
        assert made(matrix(), 2) == (2, True)
    for wrong in (text[:-3], text.replace(b"a fact", b"no fact"), b"", b"\n", b"{}"):
        file.write_bytes(wrong)
        assert made(matrix(), 2) == (2, True)
    file.write_bytes(text)
    assert made(matrix(), 2) == (1, False)


def test_sources_are_known_by_their_sizes_and_times(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for place in facts._FOLDERS:
        (tmp_path / place).mkdir(parents=True, exist_ok=True)
    source = tmp_path / facts._FOLDERS[-1] / "one.py"
    source.write_text("1")
    os.utime(source, ns=(0, 0))
    monkeypatch.setattr(facts, "_PACKAGE", tmp_path)

    def digest() -> str:
        facts._sources.cache_clear()
        return facts._sources()

    try:
        found = [digest()]
        assert digest() == found[0]
        os.utime(source, ns=(0, 1))
        found.append(digest())
        source.write_text("12")
        os.utime(source, ns=(0, 1))
        found.append(digest())
        source.rename(source.with_name("another.py"))
        found.append(digest())
        assert len(set(found)) == 4
        (source.parent / "notes.txt").touch()
        assert digest() == found[-1]
    finally:
        facts._sources.cache_clear()


def test_a_folder_that_cannot_be_written_is_done_without(folder: Path) -> None:
    folder.write_text("a file")
    first = matrix()
    made(first, 1)
    keep(first)
    assert made(first, 2) == (1, False)


@pytest.mark.parametrize("is_raised", [True, False])
def test_without_a_home_nothing_is_kept(is_raised: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def no_home(*_: Any, **__: Any) -> Path:
        if is_raised:
            raise RuntimeError("could not determine the home directory for '~/.cache'")
        return Path("~/.cache/akx")

    monkeypatch.setattr(platformdirs, "user_cache_path", no_home)
    monkeypatch.setattr(facts, "features_folder", features_folder)
    monkeypatch.chdir(tmp_path)
    first = matrix()
    assert made(first, 1) == (1, True)
    keep(first)
    assert made(first, 2) == (1, False)
    assert list(tmp_path.iterdir()) == []


def test_what_json_has_not_is_not_kept(folder: Path) -> None:
    first = matrix()
    made(first, 1j)
    keep(first)
    assert made(first, 2) == (1j, False)
    assert not list(folder.glob("*.json"))


def test_the_oldest_files_go(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "_MOST_FILES", 3)
    for n in range(50, 55):
        one = matrix(n)
        made(one, n)
        keep(one)
    assert len(list(folder.iterdir())) == 3
    assert made(matrix(54), 0) == (54, False)
    assert made(matrix(50), 0) == (0, True)


def test_a_plan_is_predicted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    module: Any = sys.modules["akx.tuner.model.predict"]
    calls: list[Any] = []
    predicted = module.predicted
    monkeypatch.setattr(module, "predicted", lambda model: calls.append(model) or predicted(model))
    first = predict(matrix(500), 4, backend="cpu", threads=1)
    again = matrix(500)
    assert predict(again, 4, backend="cpu", threads=1) == first
    assert len(calls) == 1
    predict(again, 8, backend="cpu", threads=1)
    predict(again, 4, backend="cpu", threads=1, start_vectors=2)
    predict(again, 4, backend="cpu", threads=1, plain=True)
    assert len(calls) == 4
    monkeypatch.setattr(registry, "has_others", lambda backend: True)
    predict(again, 4, backend="cpu", threads=1)
    predict(again, 4, backend="cpu", threads=1)
    assert len(calls) == 6


def test_values_that_can_be_stored_otherwise_have_another_plan_on_a_gpu() -> None:
    """The key of a prediction has the ways in which values can be stored."""
    from akx.backends.selection import backend_of

    general = matrix().with_values(np.random.default_rng(1).random(matrix().nnz))
    assert backend_of("cuda").told_by_values(matrix()) != backend_of("cuda").told_by_values(general)
    assert backend_of("cpu").told_by_values(general) == ()


def test_whether_a_like_plan_is_feasible_is_found_out_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from types import SimpleNamespace

    from akx.backends.host import host_device
    from akx.core.plan import Plan
    from akx.tuner.fallback import answer as ladder

    asked: list[Plan] = []
    space = SimpleNamespace(feasible=lambda plan, of: asked.append(plan) or "too large")
    monkeypatch.setattr(ladder, "_space", lambda plan, device, threads: space)
    plan = Plan("cpu", "sweep", "csr", k=4)
    for one in (matrix(), matrix(), matrix()):
        assert ladder._against(plan, one, host_device(), 1) == "too large"
    assert asked == [plan]
    ladder._against(plan, matrix(), host_device(), 2)
    assert asked == [plan, plan]
