"""Files that may go: what was used longest ago goes first, and no more than has to."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from akx.backends.cuda.device import compile as compiling
from akx.core.disk_cache import HOST_CODE, DiskCache, used


def _filled(folder: Path, *sizes: int) -> list[Path]:
    """Files of some bytes, the first used longest ago."""
    folder.mkdir(exist_ok=True)
    files = [folder / f"{number}.kernel" for number in range(len(sizes))]
    for age, (path, size) in enumerate(zip(files, sizes, strict=True)):
        path.write_bytes(bytes(size))
        os.utime(path, (10_000.0 * (age + 1),) * 2)
    return files


def test_what_was_used_longest_ago_goes_first(tmp_path: Path) -> None:
    one, other = _filled(tmp_path / "a", 100, 200, 300), _filled(tmp_path / "b", 50)
    (tmp_path / "a" / "README").write_bytes(bytes(1000))  # not of the cache
    cache = DiskCache("code", lambda: [tmp_path / "a", tmp_path / "b", tmp_path / "none"], ("kernel",), 500)
    assert cache.sizes() == {str(tmp_path / "a"): 600, str(tmp_path / "b"): 50}
    cache.make_room()
    assert [path.exists() for path in (*one, *other)] == [False, True, True, False]
    used(one[1])
    assert time.time() - one[1].stat().st_mtime < 60
    DiskCache("code", cache.folders, cache.endings, 250).make_room()
    assert [path.exists() for path in one] == [False, True, False]
    assert (tmp_path / "a" / "README").exists()


def test_the_store_of_kernels_keeps_within_its_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = _filled(tmp_path, 400, 400)
    small = DiskCache("code", lambda: [tmp_path], ("kernel",), 500)
    monkeypatch.setenv("AKX_CUBIN_DIR", str(tmp_path))
    monkeypatch.setattr(compiling, "STORE", small)
    monkeypatch.setattr(compiling, "compile_cubin", lambda *_: b"machine code")
    monkeypatch.setattr(compiling, "_modules", {})
    device = type("Device", (), {"arch": "sm_90"})()
    compiling.load(next(compiling.ROOT.rglob("sweep.cu")), {"A": 1}, device=device)
    assert [path.exists() for path in old] == [False, True]
    assert sum(small.sizes().values()) <= 500


def test_numba_keeps_code_of_akx_where_it_is_looked_for() -> None:
    from akx.core.features import count_diagonals

    compiled = getattr(count_diagonals, "compiled", count_diagonals)
    assert Path(compiled.stats.cache_path) in list(HOST_CODE.folders())
