"""Modules are made once for a source, its macros and an architecture."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from forked import succeeds_in_a_child

from akx.backends.cuda.device import compile as compiling
from akx.core.errors import CompileError
from akx.core.fork_safety import ForkSafeLock

NEW: Any = SimpleNamespace(arch="sm_90")


@pytest.fixture
def compiled_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[Path], bytes]], list[str]]:
    """Replace the compiler, in an empty store; the list has the names of what is compiled, in order."""
    monkeypatch.setattr(compiling, "Module", lambda cubin, name: SimpleNamespace(cubin=cubin, name=name))
    monkeypatch.setattr(compiling, "_modules", {})
    monkeypatch.setattr(compiling, "_coming", {})
    monkeypatch.setenv("AKX_CUBIN_DIR", str(tmp_path / "cubins"))
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.cu").write_text(name)

    def replace(make: Callable[[Path], bytes]) -> list[str]:
        compiled: list[str] = []

        def compile_cubin(source: Path, arguments: tuple[str, ...], arch: str) -> bytes:
            compiled.append(source.stem)
            return make(source)

        monkeypatch.setattr(compiling, "compile_cubin", compile_cubin)
        return compiled

    return replace


def test_a_source_is_read_once_in_a_process_and_compiled_once_on_a_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[Any] = []
    read: list[Path] = []
    texts = compiling._texts

    def compile_cubin(source: Path, arguments: tuple[str, ...], arch: str) -> bytes:
        compiled.append((arguments[-1], arch))
        return b"code of " + arguments[-1].encode()

    monkeypatch.setattr(compiling, "compile_cubin", compile_cubin)
    monkeypatch.setattr(compiling, "compiler_name", lambda: pytest.fail("the compiler is loaded"))
    monkeypatch.setitem(sys.modules, "cuda.bindings", SimpleNamespace(__version__="1.0"))
    monkeypatch.setattr(compiling, "Module", lambda cubin, name: SimpleNamespace(cubin=cubin, name=name))
    monkeypatch.setattr(compiling, "_texts", lambda source, given: read.append(source) or texts(source, given))
    monkeypatch.setattr(compiling, "_modules", {})
    monkeypatch.setenv("AKX_CUBIN_DIR", str(tmp_path / "cubins"))
    source = tmp_path / "a.cu"
    source.write_text("one")
    old: Any = SimpleNamespace(arch="sm_80")
    new: Any = SimpleNamespace(arch="sm_90")
    first = compiling.load(source, {"B": 2, "A": 1}, device=new)
    assert compiling.load(source, {"A": 1, "B": 2}, device=new) is first
    assert len(read) == len(compiled) == 1
    assert compiling.load(source, {"A": 1, "B": 3}, device=new) is not first
    assert compiling.load(source, {"A": 1, "B": 2}, device=old) is not first
    assert compiled == [("-DB=2", "sm_90"), ("-DB=3", "sm_90"), ("-DB=2", "sm_80")]
    monkeypatch.setattr(compiling, "_modules", {})  # another process
    assert compiling.load(source, {"A": 1, "B": 2}, device=new).cubin == b"code of -DB=2"
    assert len(compiled) == 3
    monkeypatch.setattr(compiling, "_modules", {})
    source.write_text("another")
    compiling.load(source, {"A": 1, "B": 2}, device=new)
    assert len(compiled) == 4
    monkeypatch.setattr(compiling, "_modules", {})
    monkeypatch.setitem(sys.modules, "cuda.bindings", SimpleNamespace(__version__="1.1"))
    compiling.load(source, {"A": 1, "B": 2}, device=new)
    assert len(compiled) == 5


def test_what_is_begun_is_compiled_at_a_time_and_once(tmp_path: Path, compiled_by: Any) -> None:
    together = threading.Barrier(3)

    def make(source: Path) -> bytes:
        together.wait(20.0)
        assert threading.current_thread() is not threading.main_thread()
        return source.read_bytes()

    compiled = compiled_by(make)
    wanted: list[Any] = [(tmp_path / f"{name}.cu", {}) for name in "abc"]
    compiling.begin(wanted, device=NEW)
    compiling.begin(wanted, device=NEW)
    modules = [compiling.load(*one, device=NEW) for one in reversed(wanted)]
    assert [module.cubin for module in modules] == [b"c", b"b", b"a"]
    compiling.begin(wanted, device=NEW)
    assert compiling.load(*wanted[0], device=NEW) is modules[-1]
    assert sorted(compiled) == ["a", "b", "c"]
    assert not compiling._coming
    assert not any(thread.name == "akx-nvrtc" for thread in threading.enumerate())


def test_what_is_kept_takes_no_thread(tmp_path: Path, compiled_by: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = compiled_by(Path.read_bytes)
    source = tmp_path / "a.cu"
    compiling.load(source, {}, device=NEW)
    compiling._modules.clear()
    monkeypatch.setattr(compiling._Coming, "start", lambda self: pytest.fail("a thread"))
    compiling.begin([(source, {})], device=NEW)
    assert compiling.load(source, {}, device=NEW).cubin == b"a"
    assert compiled == ["a"]


def test_an_error_comes_to_who_loads_it(tmp_path: Path, compiled_by: Any) -> None:
    def fail(source: Path) -> bytes:
        raise CompileError(f"{source.name} does not compile")

    compiled_by(fail)
    source = tmp_path / "a.cu"
    compiling.begin([(source, {})], device=NEW)
    for _ in range(2):
        with pytest.raises(CompileError, match=r"a\.cu does not compile"):
            compiling.load(source, {}, device=NEW)
    compiled_by(Path.read_bytes)
    assert compiling.load(source, {}, device=NEW).cubin == b"a"


def test_where_no_thread_can_be_had_it_is_compiled_by_who_loads_it(
    tmp_path: Path, compiled_by: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(self: Any) -> None:
        raise RuntimeError("can't start new thread")

    compiled = compiled_by(Path.read_bytes)
    monkeypatch.setattr(compiling._Coming, "start", none)
    compiling.begin([(tmp_path / "a.cu", {})], device=NEW)
    assert compiled == []
    assert compiling.load(tmp_path / "a.cu", {}, device=NEW).cubin == b"a"
    assert compiled == ["a"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_compiles_itself_what_was_begun(tmp_path: Path, compiled_by: Any) -> None:
    parent, may_end = os.getpid(), threading.Event()

    def make(source: Path) -> bytes:
        if os.getpid() == parent:
            may_end.wait(20.0)
        return source.read_bytes()

    compiled_by(make)
    source = tmp_path / "a.cu"
    compiling.begin([(source, {})], device=NEW)
    try:
        assert succeeds_in_a_child(ForkSafeLock(), lambda: compiling.load(source, {}, device=NEW).cubin == b"a")
    finally:
        may_end.set()
    assert compiling.load(source, {}, device=NEW).cubin == b"a"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_begins_nothing(tmp_path: Path, compiled_by: Any) -> None:
    compiled_by(Path.read_bytes)

    def begins_nothing() -> bool:
        compiling.begin([(tmp_path / "a.cu", {})], device=NEW)
        return not compiling._coming

    assert succeeds_in_a_child(ForkSafeLock(), begins_nothing)


def test_what_has_not_started_is_not_waited_for(
    tmp_path: Path, compiled_by: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled_by(Path.read_bytes)
    monkeypatch.setattr(compiling._Coming, "begin", lambda self: seen.append(dict(compiling._coming)))
    seen: list[Any] = []
    compiling.begin([(tmp_path / "a.cu", {})], device=NEW)
    assert seen == [{}]
