"""The Python blocks of the pages on solvers run, one after another, as a reader would paste them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

_DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize("page", ["solvers", "gmres", "preconditioners", "krylov"])
def test_blocks_run_in_their_order(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AKX_DB", str(tmp_path / "plans.db"))
    known: dict[str, Any] = {}
    blocks = re.findall(r"^```python\n(.*?)^```", (_DOCS / f"{page}.md").read_text(), re.DOTALL | re.MULTILINE)
    assert blocks
    for block in blocks:
        if "cuda" in block:
            continue
        if "import pyamg" in block:
            pytest.importorskip("pyamg")
        few = block.replace("seconds=5", "seconds=0.1, trials=2, choices=[4]")
        few = few.replace("150", "40") if page == "solvers" else few  # no kernels of single precision to compile
        exec(compile(few, f"docs/{page}.md", "exec"), known)
        assert known.get("info", 0) == 0
