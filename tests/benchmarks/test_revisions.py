"""The lock of kernel sources: it is as the sources are, and what counts as a change of one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from akx.backends import registry
from akx.backends.revisions import ALL, LOCK, SOLVERS
from benchmarks import revisions
from benchmarks.revisions import digests, is_of_searches, tokens

_PACKAGE = LOCK.parents[1]


def test_the_lock_is_as_the_sources_are() -> None:
    changed, _ = revisions.changes(json.loads(LOCK.read_text()))
    assert not changed, (
        f"{', '.join(changed)}: not as in akx/backends/revisions.json. Where plans would be chosen anew raise "
        "`revision` of the schedule, or that of the variant in REVISIONS, and run "
        "`python -m benchmarks.revisions --write`; else bless the change: `--equal` where it runs the same plans as "
        "well, `--aged` where they should be raced again"
    )


_SOURCE = """
# of all
def f(x, y):
    \"\"\"What it is.\"\"\"
    if x:  # a case
        return [1, 2]
    return f"{x!r} {y}"


class Sweep:
    revision = 1
    name = "sweep"
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("# of all", "# of none"),
        ("  # a case", ""),
        ("What it is.", "What it was, and\n    will be."),
        ("[1, 2]", "[\n            1,  2\n        ]"),
        ("revision = 1", "revision = 2"),
        ("\n\n\nclass", "\n\nclass"),
        ("    ", "  "),
        ("\n", "\r\n"),
    ],
)
def test_comments_and_layout_do_not_count(old: str, new: str) -> None:
    assert old in _SOURCE
    assert tokens(_SOURCE.replace(old, new), ".py") == tokens(_SOURCE, ".py")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[1, 2]", "[1, 2.0]"),
        ("{y}", "{x}"),
        ("!r", ""),
        ('"sweep"', '"swept"'),
        ('    return f"', '        return f"'),
        ("if x", "if not x"),
    ],
)
def test_what_python_sees_counts(old: str, new: str) -> None:
    assert old in _SOURCE
    assert tokens(_SOURCE.replace(old, new), ".py") != tokens(_SOURCE, ".py")


_KERNEL = """// of all
#define AKX_N 4
#if AKX_N > 2  /* many */
__global__ void f(double *x) { x[0] = 1.0 - -x[1]; /* no // end */ }
#endif
"""


@pytest.mark.parametrize(
    ("old", "new", "is_same"),
    [
        ("// of all\n", "", True),
        ("/* many */", "", True),
        ("/* no // end */", "// yes", False),
        (" { x[0]", "\n{\n    x [0]", True),
        ("#if AKX_N", "# if AKX_N", True),
        ("AKX_N > 2", "AKX_N \\\n > 2", True),
        ("- -x", "--x", False),
        ("AKX_N 4\n", "AKX_N ", False),
        ("1.0", "1.0f", False),
    ],
)
def test_the_same_of_cuda(old: str, new: str, is_same: bool) -> None:
    assert old in _KERNEL
    assert (tokens(_KERNEL.replace(old, new), ".cu") == tokens(_KERNEL, ".cu")) is is_same


def test_a_comment_mark_in_a_string_is_none() -> None:
    assert tokens('x = "http://a"', ".cu") != tokens('x = "http://b"', ".cu")


_MODULES = {"gpu": {"sweep": "akx.backends.gpu.sweep", "front": "akx.backends.gpu.front"}}
_TEXTS = {
    "backends/schedule.py": "",
    "backends/registry.py": "",
    "backends/gpu/__init__.py": "",
    "backends/gpu/sweep.py": "from akx.formats import csr\nfrom akx.backends.gpu.program import (\n    run,\n)\n",
    "backends/gpu/front.py": 'if f:\n    from akx.backends.gpu import late\n_S = P(__file__).with_name("front.cu")\n',
    "backends/gpu/late.py": "from akx.formats.dia import Dia as D\nfrom akx.backends.host.rows import own\n",
    "backends/gpu/program.py": "from akx.backends.schedule import Program\nfrom akx.backends.gpu.front_work import x\n",
    "backends/gpu/front_work.py": "from akx.backends.gpu.late import f\n",
    "backends/gpu/front.cu": '#include "front.cuh"\n#include <math.h>\n',
    "backends/gpu/front.cuh": '  # include "common.cuh"\n',
    "backends/gpu/common.cuh": "",
    "backends/gpu/nobodys.py": "from akx.backends.gpu import sweep, front\n",
    "backends/host/__init__.py": "",
    "backends/host/rows.py": "",
    "backends/host/other.py": "",
    "formats/__init__.py": "",
    "formats/base.py": "",
    "formats/csr.py": "from akx.formats.base import Format  # of all\n",
    "formats/dia.py": "from akx.formats.base import Format\n",
}
_OF_BOTH = {"backends/schedule.py", "backends/gpu/__init__.py", "formats/__init__.py", "formats/base.py"}
_SWEEP = {"backends/gpu/sweep.py", "backends/gpu/program.py", "formats/csr.py"}
_FRONT = {f"backends/gpu/{one}" for one in ("front.py", "late.py", "front.cu", "front.cuh", "common.cuh")}
_DEPENDS = {
    "gpu/sweep": _OF_BOTH | _SWEEP,
    "gpu/front": _OF_BOTH | _FRONT | {"formats/dia.py", "backends/host/__init__.py", "backends/host/rows.py"},
    f"gpu/{SOLVERS}": {"backends/gpu/nobodys.py"},
}
_DEPENDS[f"gpu/{ALL}"] = _DEPENDS["gpu/sweep"] | _DEPENDS["gpu/front"]


def test_a_digest_is_of_what_a_schedule_depends_on(tmp_path: Path) -> None:
    for name, text in _TEXTS.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    before = digests(tmp_path, _MODULES)
    assert before.keys() == _DEPENDS.keys()
    assert len(set(before.values())) == 4
    for name, text in _TEXTS.items():
        comment = "# of no use\n" if name.endswith(".py") else "// of no use\n"
        (tmp_path / name).write_text(text + comment)
        assert digests(tmp_path, _MODULES) == before, "comments count nowhere"
        (tmp_path / name).write_text(text + "changed\n")
        after = digests(tmp_path, _MODULES)
        assert {one for one in before if after[one] != before[one]} == {
            one for one, depends in _DEPENDS.items() if name in depends
        }, name
        (tmp_path / name).write_text(text)


def test_a_digest_is_of_all_that_a_schedule_loads() -> None:
    schedule = "wavefront"
    module = registry.modules("cpu")[schedule]
    program = (
        f"import sys, {module}\n"
        "for name in sorted(sys.modules):\n"
        "    if name.startswith(('akx.backends.cpu.', 'akx.formats.')): print(sys.modules[name].__file__)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=_PACKAGE.parent, check=True
    )
    paths = [Path(line).relative_to(_PACKAGE) for line in done.stdout.splitlines()]
    loaded = [path for path in paths if not is_of_searches(path)]
    assert len(loaded) > 5
    assert {path.as_posix() for path in loaded} <= revisions._reached(revisions._sources(_PACKAGE)[1], module)


@pytest.mark.parametrize("backend", registry.backends())
def test_what_a_search_chooses_from_is_none_of_a_plan(backend: str) -> None:
    folder = _PACKAGE / "backends" / backend
    texts = {name: (folder / name).read_text() for name in revisions.of_searches(backend)}
    for schedule, module in registry.modules(backend).items():
        assert "Parameter(" not in (_PACKAGE / revisions._file_of(module)).read_text(), schedule
        assert any("Parameter(" in text for name, text in texts.items() if schedule in name or "search_space" in name)


@pytest.fixture
def changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A lock of one backend whose sweep has changed since."""
    now = {"cpu/sweep": "2" * 16, "cpu/ghost": "b" * 16, f"cpu/{ALL}": "d" * 16}
    then = {"cpu/sweep": "1" * 16, "cpu/ghost": "b" * 16, f"cpu/{ALL}": "c" * 16}
    lock = {name: {"revision": 1, "tokens": one, "equal": ["0" * 16]} for name, one in then.items()}
    path = tmp_path / "revisions.json"
    path.write_text(json.dumps({"variants": {"cpu": {}}, "sources": lock}))
    monkeypatch.setattr(revisions, "LOCK", path)
    monkeypatch.setattr(revisions, "digests", lambda: now)
    monkeypatch.setattr(revisions, "declared", lambda: ({"cpu/sweep": 1, "cpu/ghost": 1}, {"cpu": {}}))
    return path


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found["sources"]


def test_a_change_is_blessed_or_has_its_revision_raised(
    changed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = changed.read_text()
    assert revisions.main([]) == 1
    assert "cpu/sweep: changed, revision not raised" in capsys.readouterr().out
    assert revisions.main(["--write"]) == 1
    assert changed.read_text() == before
    assert revisions.main(["--equal"]) == 0
    assert _read(changed)["cpu/sweep"] == {"revision": 1, "tokens": "2" * 16, "equal": ["0" * 16, "1" * 16]}
    assert _read(changed)["cpu/ghost"] == {"revision": 1, "tokens": "b" * 16, "equal": ["0" * 16]}
    assert revisions.main([]) == 0
    changed.write_text(before)
    assert revisions.main(["--aged"]) == 0
    assert _read(changed)["cpu/sweep"] == {"revision": 1, "tokens": "2" * 16, "equal": []}
    changed.write_text(before)
    monkeypatch.setattr(revisions, "declared", lambda: ({"cpu/sweep": 2, "cpu/ghost": 1}, {"cpu": {}}))
    assert revisions.main(["--write"]) == 0
    assert _read(changed)["cpu/sweep"] == {"revision": 2, "tokens": "2" * 16, "equal": []}
    changed.write_text(before)
    monkeypatch.setattr(revisions, "declared", lambda: ({"cpu/sweep": 1, "cpu/ghost": 1}, {"cpu": {"csr": 2}}))
    assert revisions.main(["--write"]) == 0
    assert json.loads(changed.read_text())["variants"] == {"cpu": {"csr": 2}}
