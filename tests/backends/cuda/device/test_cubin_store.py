"""The store of compiled kernels: what is read from it is what was written, or it is compiled again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from akx.backends.cuda.device import compile as compiling

SOURCE = next(compiling.ROOT.rglob("sweep.cu"))


@pytest.mark.parametrize("spoil", [lambda text: text[:-1], lambda _: b"", lambda text: b"x" + text[1:]])
def test_a_spoilt_file_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spoil: Any) -> None:
    made: list[str] = []

    def compiled(source: Path, arguments: Any, arch: str) -> bytes:
        made.append(arch)
        return b"machine code"

    monkeypatch.setenv("AKX_CUBIN_DIR", str(tmp_path))
    monkeypatch.setattr(compiling, "compile_cubin", compiled)
    device: Any = type("Device", (), {"arch": "sm_90"})()

    def load() -> bytes:
        compiling._modules.clear()
        return compiling.load(SOURCE, {"A": 1}, device=device).cubin

    monkeypatch.setattr(compiling, "_modules", {})
    assert load() == load() == b"machine code"
    assert made == ["sm_90"]
    (kept,) = tmp_path.iterdir()
    kept.write_bytes(spoil(kept.read_bytes()))
    assert load() == b"machine code"
    assert load() == b"machine code"
    assert made == ["sm_90"] * 2
