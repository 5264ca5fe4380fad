"""Modules are made once for a source, its macros and an architecture."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from akx.device.cuda import compile as compiling


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
