"""Keys: every field counts, nothing heavy is imported, and the hash of the kernels follows their sources."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import akx
from akx.errors import ArgumentError, DatabaseError, PlanError
from akx.kernels import registry
from akx.plandb import FIELD_MEANINGS, PlanKey, kernel_hash, key_of_plan, keys, schedule_hashes, versions
from akx.plandb import make_key as key_of
from akx.plandb.keys import _OF_SOLVERS, _hash_schedules, _hash_sources

from .samples import make_key, make_plan

_CPU_SOURCES = ("kernels/base.py", "kernels/cpu/sweep.py", "kernels/cpu/deep/x.cuh", "formats/csr.py")
_OTHER: dict[str, Any] = {"k": 9, "start_vectors": 2}
_PACKAGE = Path(next(iter(akx.__path__)))


@pytest.mark.parametrize("name", [field.name for field in fields(PlanKey)])
def test_every_field_is_a_mismatch_and_another_id(name: str) -> None:
    key, other = make_key(), make_key(**{name: _OTHER.get(name, "other")})
    assert key.mismatch(other) == [name]
    assert other.mismatch(key) == [name]
    assert key.id != other.id
    assert name in FIELD_MEANINGS


def test_mismatches_are_named_together_in_order() -> None:
    assert make_key().mismatch(make_key(7, dtype="float32", versions="none")) == ["fingerprint", "dtype", "versions"]
    assert make_key().mismatch(make_key()) == []


def test_ids_do_not_run_fields_together() -> None:
    assert make_key(dtype="ab", index_type="c").id != make_key(dtype="a", index_type="bc").id


def test_json_round_trip() -> None:
    key = make_key(basis="Čebyšëv ☃")
    assert PlanKey.from_json(json.loads(json.dumps(key.to_json()))) == key
    assert len(key.id) == 32
    assert int(key.id, 16) >= 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"k": 0}, "'k' is out of range"),
        ({"k": True}, "'k' is out of range"),
        ({"k": 2.0}, "'k' is out of range"),
        ({"k": 2**63}, "'k' is out of range"),
        ({"start_vectors": -1}, "'start_vectors' is out of range"),
        ({"dtype": ""}, "'dtype' is not a name"),
        ({"dtype": None}, "'dtype' is not a name"),
        ({"versions": "\udc80"}, "'versions' is not a name"),
    ],
)
def test_wrong_fields_are_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        make_key(**change)


def test_unknown_and_missing_fields_are_named() -> None:
    data = make_key().to_json()
    with pytest.raises(PlanError, match="colour"):
        PlanKey.from_json({**data, "colour": "red"})
    data.pop("basis")
    with pytest.raises(PlanError, match="basis"):
        PlanKey.from_json(data)
    with pytest.raises(PlanError, match="list"):
        PlanKey.from_json([])  # type: ignore[arg-type]


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    for name in (*_CPU_SOURCES, "kernels/cuda/a.cu"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode() + b"\n")
    return tmp_path


@pytest.mark.parametrize("name", _CPU_SOURCES)
def test_a_changed_source_changes_the_hash(sources: Path, name: str) -> None:
    before = _hash_sources(sources, "cpu")
    (sources / name).write_bytes(b"changed\n")
    assert _hash_sources(sources, "cpu") != before


def test_new_and_renamed_sources_change_the_hash(sources: Path) -> None:
    hashes = {_hash_sources(sources, "cpu")}
    (sources / "formats/csr.py").rename(sources / "formats/other.py")
    hashes.add(_hash_sources(sources, "cpu"))
    (sources / "kernels/cpu/new.py").write_bytes(b"")
    hashes.add(_hash_sources(sources, "cpu"))
    assert len(hashes) == 3


def test_what_is_no_source_of_the_backend_does_not_count(sources: Path) -> None:
    before = _hash_sources(sources, "cpu")
    (sources / "kernels/cuda/a.cu").write_bytes(b"changed")
    (sources / "kernels/registry.py").write_bytes(b"changed")
    (sources / "kernels/cpu/__pycache__").mkdir()
    (sources / "kernels/cpu/__pycache__/sweep.cpython-311.pyc").write_bytes(b"changed")
    (sources / "kernels/cpu/sweep.py").write_bytes(b"kernels/cpu/sweep.py\r\n")
    assert _hash_sources(sources, "cpu") == before
    assert _hash_sources(sources, "cuda") != before


@pytest.mark.parametrize(("backend", "name"), [("cpu", "vectors.py"), ("cuda", "vectors.cuh"), ("cuda", "spai.py")])
def test_work_of_solvers_leaves_plans_as_they_are(sources: Path, backend: str, name: str) -> None:
    before = _hash_sources(sources, backend)
    (sources / "kernels" / backend / name).write_bytes(b"changed\n")
    after = _hash_sources(sources, backend, solvers=True)
    assert _hash_sources(sources, backend) == before
    (sources / "kernels" / backend / name).write_bytes(b"again\n")
    assert _hash_sources(sources, backend, solvers=True) != after


@pytest.mark.parametrize("backend", ["cpu", "cuda"])
def test_no_schedule_runs_what_the_hash_leaves_out(backend: str) -> None:
    """From the schedules by imports, sources of kernels and what these include."""
    folder = _PACKAGE / "kernels" / backend
    schedules = ("sweep", "ghost", "resident", "wavefront", "stream")
    reached, left = set(), [path for name in schedules for path in folder.glob(f"{name}.py")]
    assert len(left) >= 3
    while left:
        path = left.pop()
        if path in reached:
            continue
        reached.add(path)
        text = path.read_text()
        names = re.findall(rf"akx\.kernels\.{backend}\.(\w+)", text)
        names += [
            one.strip()
            for many in re.findall(rf"from akx\.kernels\.{backend} import (.*)", text)
            for one in many.split(",")
        ]
        left += [folder / f"{name}.py" for name in names if (folder / f"{name}.py").exists()]
        left += [folder / name for name in re.findall(r"\w+\.cuh?\b", text) if (folder / name).exists()]
    out = {path for path in folder.iterdir() if path.stem in _OF_SOLVERS[backend]}
    assert out
    assert not out & reached
    assert {path.stem for path in out} == set(_OF_SOLVERS[backend])


_SCHEDULES = {"sweep": "akx.kernels.gpu.sweep", "front": "akx.kernels.gpu.front"}
_TEXTS = {
    "kernels/base.py": "",
    "kernels/registry.py": "",
    "kernels/gpu/__init__.py": "",
    "kernels/gpu/sweep.py": "from akx.formats import csr\nfrom akx.kernels.gpu.program import (\n    run,\n)\n",
    "kernels/gpu/front.py": 'if f:\n    from akx.kernels.gpu import late\n_S = Path(__file__).with_name("front.cu")\n',
    "kernels/gpu/late.py": "from akx.formats.dia import Dia as D\nfrom akx.kernels.host.rows import own\n",
    "kernels/gpu/program.py": "from akx.kernels.base import Program\nfrom akx.kernels.gpu.prices import price\n",
    "kernels/gpu/prices.py": "from akx.kernels.gpu.late import f\n",
    "kernels/gpu/front.cu": '#include "front.cuh"\n#include <math.h>\n',
    "kernels/gpu/front.cuh": '  # include "common.cuh"\n',
    "kernels/gpu/common.cuh": "",
    "kernels/gpu/nobodys.py": "from akx.kernels.gpu import sweep, front\n",
    "kernels/host/__init__.py": "",
    "kernels/host/rows.py": "",
    "kernels/host/other.py": "",
    "formats/__init__.py": "",
    "formats/base.py": "",
    "formats/csr.py": "from akx.formats.base import Format  # of all\n",
    "formats/dia.py": "from akx.formats.base import Format\n",
}
_OF_BOTH = {"kernels/base.py", "formats/base.py"}
_DEPENDS = {
    "sweep": _OF_BOTH | {"kernels/gpu/sweep.py", "kernels/gpu/program.py", "formats/csr.py", "formats/__init__.py"},
    "front": _OF_BOTH
    | {f"kernels/gpu/{name}" for name in ("__init__.py", "front.py", "late.py", "front.cu", "front.cuh", "common.cuh")}
    | {"formats/dia.py", "kernels/host/rows.py"},
}


def test_the_hash_of_a_schedule_is_of_what_it_depends_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(keys.OF_SEARCHES, "gpu", frozenset({"prices"}))
    for name, text in _TEXTS.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(text.encode())
    before = _hash_schedules(tmp_path, "gpu", _SCHEDULES)
    assert before["sweep"] != before["front"]
    for name, text in _TEXTS.items():
        (tmp_path / name).write_bytes(text.replace("\n", "\r\n").encode())
        assert _hash_schedules(tmp_path, "gpu", _SCHEDULES) == before
        (tmp_path / name).write_bytes(text.encode() + b"# changed\n")
        after = _hash_schedules(tmp_path, "gpu", _SCHEDULES)
        assert {one for one in before if after[one] != before[one]} == {
            one for one, depends in _DEPENDS.items() if name in depends
        }, name
        (tmp_path / name).write_bytes(text.encode())
    (tmp_path / "kernels/gpu/front.py").unlink()
    with pytest.raises(DatabaseError, match="front"):
        _hash_schedules(tmp_path, "gpu", _SCHEDULES)


@pytest.mark.parametrize("schedule", sorted(registry.modules("cpu")))
def test_the_hash_of_a_schedule_is_of_all_that_it_loads(schedule: str, tmp_path: Path) -> None:
    module = registry.modules("cpu")[schedule]
    program = (
        f"import sys, {module}\n"
        "for name in sorted(sys.modules):\n"
        "    if name.startswith(('akx.kernels.cpu.', 'akx.formats.')): print(name)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=_PACKAGE.parent, check=True
    )
    loaded = [name for name in done.stdout.split() if name.rpartition(".")[2] not in keys.OF_SEARCHES["cpu"]]
    assert module in loaded
    assert len(loaded) > 5
    for part in ("kernels", "formats"):
        shutil.copytree(_PACKAGE / part, tmp_path / part)
    before = _hash_schedules(tmp_path, "cpu", {schedule: module})
    for name in loaded:
        path = tmp_path.joinpath(*name.split(".")[1:]).with_suffix(".py")
        text = path.read_bytes()
        path.write_bytes(text + b"# changed\n")
        assert _hash_schedules(tmp_path, "cpu", {schedule: module}) != before, name
        path.write_bytes(text)


@pytest.mark.parametrize("backend", registry.backends())
def test_no_hash_is_of_what_a_search_chooses_from(backend: str, tmp_path: Path) -> None:
    modules, folder = registry.modules(backend), tmp_path / "kernels" / backend
    for part in ("kernels", "formats"):
        shutil.copytree(_PACKAGE / part, tmp_path / part)
    before = _hash_schedules(tmp_path, backend, modules), _hash_sources(tmp_path, backend)
    for name in keys.OF_SEARCHES[backend]:
        path = folder / f"{name}.py"
        path.write_bytes(path.read_bytes() + b"# one more choice\n")
    assert (_hash_schedules(tmp_path, backend, modules), _hash_sources(tmp_path, backend)) == before
    for schedule, module in modules.items():  # it is there, and says what there is to choose from
        text = (folder / f"{module.rpartition('.')[2]}.py").read_text()
        assert "Parameter(" not in text, schedule
        assert "Parameter(" in (folder / f"{schedule}_space.py").read_text() + (folder / "choices.py").read_text()


def test_plans_are_kept_under_the_sources_of_their_schedules() -> None:
    search = make_key(kernel_hash=kernel_hash("cpu"))
    assert sorted(schedule_hashes("cpu")) == ["ghost", "sweep", "wavefront"]
    assert len({kernel_hash("cpu"), *schedule_hashes("cpu").values()}) == 4
    for schedule, digest in schedule_hashes("cpu").items():
        plan = make_plan(schedule=schedule, k_per_pass=1 if schedule == "sweep" else 4)
        key = key_of_plan(search, plan)
        assert (key.mismatch(search), key.kernel_hash) == (["kernel_hash"], digest)
        assert keys.search_key(key, plan) == search
    assert key_of_plan(make_key(), make_plan()) == make_key()  # of other sources than these
    assert key_of_plan(search, make_plan(schedule="unheard_of")) == search
    assert schedule_hashes("abacus") == {}


def test_missing_sources_are_an_error(sources: Path) -> None:
    for backend in ("gpu", "..", ""):
        with pytest.raises(ArgumentError, match="unknown backend"):
            _hash_sources(sources, backend)
    shutil.rmtree(sources / "formats")
    with pytest.raises(DatabaseError, match="formats"):
        _hash_sources(sources, "cpu")


def test_the_installed_kernels_have_a_hash() -> None:
    assert kernel_hash("cpu") == _hash_sources(_PACKAGE, "cpu")
    assert len(kernel_hash("cpu")) == 16
    with pytest.raises(ArgumentError, match="cpu"):
        kernel_hash("abacus")


def test_versions_name_the_compiler_by_minor() -> None:
    numba = pytest.importorskip("numba")
    assert versions("cpu") == f"plan 1, numba {'.'.join(numba.__version__.split('.')[:2])}"


def test_make_key_takes_the_matrix_and_the_device_as_they_are() -> None:
    matrix: Any = SimpleNamespace(fingerprint="abc", dtype="float32", indices=SimpleNamespace(dtype="int64"))
    device: Any = SimpleNamespace(device_class="cpu/x", cores=4)
    key = key_of(matrix, 3, basis="newton", start_vectors=2, device=device)
    assert (key.fingerprint, key.dtype, key.index_type, key.basis) == ("abc", "float32", "int64", "newton")
    assert (key.k, key.start_vectors, key.device_class) == (3, 2, "cpu/x")
    assert (key.kernel_hash, key.versions) == (kernel_hash("cpu"), versions("cpu"))
    assert key_of(matrix, 3, device=device, threads=4).device_class == "cpu/x"
    assert key_of(matrix, 3, device=device, threads=1).mismatch(key_of(matrix, 3, device=device)) == ["device_class"]


def test_a_lookup_imports_neither_compiler_nor_tuner(tmp_path: Path) -> None:
    program = (
        "import json, sys\n"
        "from akx.plandb import PlanDatabase, PlanKey, kernel_hash, versions\n"
        "key = PlanKey('f', 'd', 'i', 'b', 8, 1, 'c', kernel_hash('cpu'), versions('cpu'))\n"
        f"print(PlanDatabase({str(tmp_path / 'plans.sqlite')!r}).find(key).explain())\n"
        "print(json.dumps(sorted({'numba', 'llvmlite', 'optuna', 'sqlalchemy'} & set(sys.modules))))\n"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, cwd=_PACKAGE.parent, check=True)
    first, second = done.stdout.splitlines()
    assert first == "no plan for this matrix"
    assert json.loads(second) == []
