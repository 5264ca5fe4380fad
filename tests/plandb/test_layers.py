"""The layers of a project and of a system: where they are, in which order they answer, and how changes are seen."""

from __future__ import annotations

import os
import pickle
import shutil
import sys
import tempfile
import time as real_time
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
from forked import succeeds_in_a_child

from akx.core.errors import ArgumentError, DatabaseError
from akx.plandb import (
    PlanDatabase,
    PlanDatabaseWarning,
    PlanRecord,
    ShippedPlans,
    project_directory,
    project_plans,
    system_directories,
)
from akx.plandb import folder as folder_module
from akx.plandb import layers as layer_module
from akx.plandb.bundle import bundle_text

from .samples import make_key, make_record, without_root


@pytest.fixture(autouse=True)
def _own_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A home and a system of the test's own; nobody stands in a project."""
    for name in ("AKX_PROJECT_PLANS", "AKX_SYSTEM_PLANS"):
        monkeypatch.delenv(name)
    (tmp_path / "home").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_DATA_DIRS", f"{tmp_path / 'local'}:{tmp_path / 'share'}")
    shipped = ShippedPlans(tmp_path / "shipped")
    monkeypatch.setattr("akx.plandb.reader.shipped_plans", lambda: shipped)
    monkeypatch.chdir(tmp_path / "home")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Let so many seconds go by for what looks at files."""
    time = [0.0]

    class Clock:
        time_ns = staticmethod(real_time.time_ns)

        @staticmethod
        def monotonic() -> float:
            return time[0]

    for module in (folder_module, layer_module):
        monkeypatch.setattr(module, "time", Clock)
        monkeypatch.setattr(module, "_found", None, raising=False)

    def wait(seconds: float) -> None:
        time[0] += seconds

    return wait


def put(folder: Path, *records: PlanRecord, name: str = "plans.json") -> Path:
    """A bundle in a folder, which is made, written long enough ago."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(bundle_text(records))
    os.utime(folder / name, (1.7e9, 1.7e9))
    return folder


def project(tmp_path: Path, *records: PlanRecord) -> Path:
    """A project with these plans, and its directory."""
    put(tmp_path / "project" / ".akx" / "plans", *records)
    return tmp_path / "project"


def test_the_nearest_to_the_user_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four layers, and each in turn is the first that has the key."""
    monkeypatch.chdir(project(tmp_path, make_record(1, seconds=0.1)))
    put(tmp_path / "local" / "akx" / "plans", *(make_record(number, seconds=0.3) for number in (1, 2, 3)))
    put(tmp_path / "share" / "akx" / "plans", *(make_record(number, seconds=0.4) for number in (1, 2, 3, 4)))
    put(tmp_path / "shipped", *(make_record(number, seconds=0.5) for number in range(1, 6)))
    with PlanDatabase(tmp_path / "plans.sqlite") as database:
        for number in (1, 2):
            database.put(make_record(number, seconds=0.2))
        found = [database.find(make_key(number)) for number in range(1, 7)]
        assert [one.layer for one in found] == ["project", "user", "system", "system", "shipped", ""]
        assert [one.record.seconds for one in found[:5] if one.record] == [0.1, 0.2, 0.3, 0.4, 0.5]
        entries = database.entries()
        assert [(layer, record.seconds) for layer, record in entries] == [
            ("project", 0.1), ("user", 0.2), ("system", 0.3), ("system", 0.4), ("shipped", 0.5),
        ]  # fmt: skip
        # Neighbours of every layer are named, where none has the key.
        other = database.find(make_key(1, ranks=9))
        assert len(other.mismatches) == 5
        copy = pickle.loads(pickle.dumps(database))
        assert copy.find(make_key(1)).layer == "project"


def test_layers_that_are_given_are_the_only_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project(tmp_path, make_record(1)))
    with PlanDatabase(tmp_path / "plans.sqlite", layers=()) as database:
        assert database.find(make_key(1)).record is None
    above = ShippedPlans(tmp_path / "project" / ".akx" / "plans", "project")
    with PlanDatabase(tmp_path / "plans.sqlite", layers=(), above=(above,)) as database:
        assert database.find(make_key(1)).layer == "project"
        assert pickle.loads(pickle.dumps(database)).find(make_key(1)).layer == "project"


def test_what_a_project_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    top = project(tmp_path, make_record(1))
    deep = top / "src" / "solver"
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    assert project_directory() == top / ".akx" / "plans"
    inner = top / "src" / ".akx" / "plans"
    inner.mkdir(parents=True)
    monkeypatch.chdir(top)
    assert project_directory() == top / ".akx" / "plans"
    monkeypatch.chdir(deep)
    assert project_directory() == inner
    os.chdir("..")
    assert project_directory() == inner
    repository = top / "vendored"
    (repository / "lib").mkdir(parents=True)
    (repository / ".git").write_text("gitdir: elsewhere")  # as in a worktree or a submodule
    monkeypatch.chdir(repository / "lib")
    assert project_directory() is None
    put(repository / ".akx" / "plans")
    monkeypatch.chdir(repository)
    assert project_directory() == repository / ".akx" / "plans"
    (top / "file").mkdir()
    (top / "file" / ".akx").mkdir()
    (top / "file" / ".akx" / "plans").touch()
    monkeypatch.chdir(top / "file")
    assert project_directory() == top / ".akx" / "plans"


def test_the_home_of_the_user_is_no_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "home" / ".akx" / "plans")
    (tmp_path / "home" / "work").mkdir()
    monkeypatch.chdir(tmp_path / "home" / "work")
    assert project_directory() is None
    put(tmp_path / "home" / "work" / ".akx" / "plans")
    monkeypatch.chdir(tmp_path / "home")
    assert project_directory() is None
    monkeypatch.chdir(tmp_path / "home" / "work")
    assert project_directory() == tmp_path / "home" / "work" / ".akx" / "plans"


def test_variables_name_other_directories_or_turn_layers_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project(tmp_path, make_record(1)))
    put(tmp_path / "elsewhere", make_record(2))
    put(tmp_path / "local" / "akx" / "plans", make_record(3))
    with PlanDatabase(tmp_path / "plans.sqlite") as database:

        def layers() -> list[str]:
            return [database.find(make_key(number)).layer for number in (1, 2, 3)]

        assert layers() == ["project", "", "system"]
        monkeypatch.setenv("AKX_PROJECT_PLANS", "")
        assert layers() == ["", "", "system"]
        monkeypatch.setenv("AKX_PROJECT_PLANS", "../elsewhere")
        assert layers() == ["", "project", "system"]
        monkeypatch.setenv("AKX_PROJECT_PLANS", str(tmp_path / "nowhere"))
        monkeypatch.setenv("AKX_SYSTEM_PLANS", str(tmp_path / "elsewhere"))
        assert layers() == ["", "system", ""]
        monkeypatch.setenv("AKX_SYSTEM_PLANS", "")
        assert layers() == ["", "", ""]


def test_where_the_systems_plans_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    assert system_directories() == (tmp_path / "local" / "akx" / "plans", tmp_path / "share" / "akx" / "plans")
    monkeypatch.setenv("XDG_DATA_DIRS", f"relative:{tmp_path}:{tmp_path}:")
    assert system_directories() == (tmp_path / "akx" / "plans",)
    for unset in ("", None):
        if unset is None:
            monkeypatch.delenv("XDG_DATA_DIRS")
        else:
            monkeypatch.setenv("XDG_DATA_DIRS", unset)
        assert system_directories() == (Path("/usr/local/share/akx/plans"), Path("/usr/share/akx/plans"))
    layer_module._system.cache_clear()
    monkeypatch.setattr(sys, "platform", "darwin")
    (only,) = system_directories()
    assert only.parts[-2:] == ("akx", "plans")
    layer_module._system.cache_clear()


def test_another_current_directory_is_seen_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Callable[[float], None]
) -> None:
    """The clock stands still: it is not the second that makes the change seen."""
    one, other = project(tmp_path, make_record(1, seconds=0.1)), tmp_path / "other"
    put(other / ".akx" / "plans", make_record(1, seconds=0.2))
    with PlanDatabase(tmp_path / "plans.sqlite") as database:
        monkeypatch.chdir(one)
        stamp = database.file_stamp()
        assert database.find(make_key(1)).record == make_record(1, seconds=0.1)
        monkeypatch.chdir(other)
        assert database.file_stamp() != stamp
        assert database.find(make_key(1)).record == make_record(1, seconds=0.2)
        monkeypatch.chdir(tmp_path)
        assert database.find(make_key(1)).record is None
        monkeypatch.chdir(one)
        assert database.find(make_key(1)).record == make_record(1, seconds=0.1)
        assert database.file_stamp() == stamp


def test_a_current_directory_that_is_gone_has_no_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with PlanDatabase(tmp_path / "plans.sqlite") as database:
        assert database.find(make_key(1)).record is None
    monkeypatch.setenv("AKX_PROJECT_PLANS", str(put(tmp_path / "named", make_record(1))))
    assert project_directory() == tmp_path / "named"


def test_changed_files_are_seen_and_others_not_read_again(
    tmp_path: Path, clock: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    real = folder_module._read_file
    monkeypatch.setattr(folder_module, "_read_file", lambda path, stamp: read.append(path.name) or real(path, stamp))
    folder = put(tmp_path / "folder", make_record(1, seconds=0.1))
    put(folder, make_record(2), name="other.json")
    layer = ShippedPlans(folder, "system")
    with PlanDatabase(tmp_path / "plans.sqlite", layers=(layer,)) as database:

        def seconds(number: int = 1) -> float | None:
            found = database.find(make_key(number)).record
            return None if found is None else found.seconds

        assert seconds() == 0.1
        assert read == ["other.json", "plans.json"]
        put(folder, make_record(1, seconds=0.025), make_record(3, seconds=0.3))
        assert seconds() == 0.1  # for a second files are taken to be as they were
        clock(1.0)
        assert (seconds(), seconds(3)) == (0.025, 0.3)
        assert read == ["other.json", "plans.json", "plans.json"]
        clock(1.0)
        assert seconds() == 0.025
        assert len(read) == 3
        (folder / "plans.json").unlink()
        clock(1.0)
        assert (seconds(), seconds(3), seconds(2)) == (None, None, 1e-3)
        put(folder, make_record(1, seconds=0.5), name="new.json")
        clock(1.0)
        assert seconds() == 0.5
        assert read[3:] == ["new.json"]


def test_a_change_within_the_resolution_of_times_is_seen(
    tmp_path: Path, clock: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Same size, same time, same file: what was written a moment ago is read again until that can no longer be."""
    folder = put(tmp_path / "folder", make_record(1, seconds=0.125))
    file = folder / "plans.json"
    moment = 1.7e9
    monkeypatch.setattr(folder_module.time, "time_ns", staticmethod(lambda: 1_700_000_001 * 10**9))  # a second ago
    os.utime(file, (moment, moment))
    layer = ShippedPlans(folder)
    assert [record.seconds for record in layer.records()] == [0.125]
    stamp = layer.stamp()
    clock(1.0)
    assert layer.stamp() == stamp  # read again, and the same
    text = file.read_text()
    with file.open("r+") as stream:
        stream.write(text.replace("0.125", "0.375"))
    os.utime(file, (moment, moment))
    clock(1.0)
    assert [record.seconds for record in layer.records()] == [0.375]
    assert layer.stamp() != stamp


def test_a_malformed_file_is_reported_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Callable[[float], None]
) -> None:
    folder = project(tmp_path, make_record(1)) / ".akx" / "plans"
    (folder / "bad.json").write_text("{")
    monkeypatch.chdir(tmp_path / "project")
    with PlanDatabase(tmp_path / "plans.sqlite") as database:
        with pytest.warns(PlanDatabaseWarning, match="project plans skipped: .*bad.json"):
            assert database.find(make_key(1)).layer == "project"
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            clock(5.0)
            assert database.find(make_key(2)).record is None
            (folder / "another.json").write_text(bundle_text([make_record(2)]))
            clock(5.0)
            assert database.find(make_key(2)).layer == "project"
        (layer,) = database.above
        assert (layer.name, layer.directory, len(layer.records())) == ("project", folder, 2)
        assert ["bad.json" in problem for problem in layer.problems] == [True]
        assert [one.name for one in database.layers] == ["system", "system", "shipped"]
        (folder / "bad.json").unlink()
        clock(5.0)
        assert layer.problems == ()


def test_a_folder_that_cannot_be_read_stops_nothing() -> None:
    public = Path(tempfile.mkdtemp(prefix="akx-test-"))  # every user can reach it; pytest's own are private
    public.chmod(0o755)
    folder = put(public / "plans", make_record(1))
    folder.chmod(0o000)

    def look() -> tuple[int, tuple[str, ...]]:
        layer = ShippedPlans(folder, "system")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return len(layer.records()), layer.problems

    try:
        number, problems = without_root(look)
    finally:
        folder.chmod(0o755)
        shutil.rmtree(public)
    assert number == 0
    assert len(problems) == 1
    assert "Permission denied" in problems[0]


def test_plans_of_layers_are_read_only_and_say_where_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    top = project(tmp_path, make_record(1, seconds=0.1))
    monkeypatch.chdir(top)
    with PlanDatabase(tmp_path / "plans.sqlite") as database:
        with pytest.raises(ArgumentError, match=r"read-only.*project layer.*plans\.json"):
            database.remove(make_key(1).id)
        own = make_record(1, seconds=0.2)
        database.put(own)
        assert database.find(make_key(1)).layer == "project"
        assert database.remove(make_key(1).id) == own  # though the project's hides it
        assert database.list() == []


def test_an_export_makes_the_folder_of_a_project_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    top = tmp_path / "new"
    top.mkdir()
    monkeypatch.chdir(top)
    with PlanDatabase(tmp_path / "plans.sqlite") as database:
        database.put(make_record(1))
        assert database.export(".akx/plans/brick.json") == 1
        with pytest.raises(DatabaseError, match="mkdir -p elsewhere/plans"):
            database.export("elsewhere/plans/brick.json")
        assert not (top / "elsewhere").exists()
        layer_module._found = None
        assert [layer.directory for layer in project_plans()] == [top / ".akx" / "plans"]
        assert database.find(make_key(1)).layer == "project"


def test_a_folder_of_another_user_is_no_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(project(tmp_path, make_record(1)))
    monkeypatch.setattr(layer_module, "_found", None)
    assert project_directory() is not None
    monkeypatch.setattr(layer_module, "_found", None)
    plans = tmp_path / "project" / ".akx" / "plans"
    if os.getuid() == 0:
        os.chown(plans, 4343, -1)
    else:
        monkeypatch.setattr(os, "getuid", lambda: 4242)
    assert project_directory() is None
    monkeypatch.setenv("AKX_PROJECT_PLANS", str(plans))  # named is meant
    assert project_directory() == plans


def test_a_relative_directory_of_the_system_is_seen_from_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AKX_SYSTEM_PLANS", "plans")
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        assert system_directories() == (tmp_path / name / "plans",)
    (tmp_path / "other").rmdir()
    assert system_directories() == ()
    with PlanDatabase(tmp_path / "plans.sqlite") as database:
        assert database.find(make_key(1)).record is None


def test_what_is_wrong_with_one_entry_is_no_fault_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = put(tmp_path / "plans", make_record(1))
    (folder / "loop.json").symlink_to("loop.json")
    (folder / "folder.json").mkdir()
    layer = ShippedPlans(folder, "system")
    with pytest.warns(PlanDatabaseWarning, match="loop.json"):
        records = layer.records()
    assert records == (make_record(1),)
    (folder / "loop.json").unlink()
    (folder / "gone.json").symlink_to("nowhere")  # as a file that is removed between two looks
    layer = ShippedPlans(folder, "system")
    assert layer.records() == (make_record(1),)
    assert layer.problems == ()


def test_a_time_that_lies_ahead_is_not_read_again_and_again(
    tmp_path: Path, clock: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = put(tmp_path / "plans", make_record(1))
    ahead = real_time.time() + 3600
    os.utime(folder / "plans.json", (ahead, ahead))
    read: list[str] = []
    real = folder_module._read_file
    monkeypatch.setattr(folder_module, "_read_file", lambda path, stamp: read.append(path.name) or real(path, stamp))
    layer = ShippedPlans(folder, "system")
    for _ in range(4):
        assert layer.records() == (make_record(1),)
        clock(1.5)
    assert read == ["plans.json"]


def test_a_slow_directory_is_looked_at_rarely(
    tmp_path: Path, clock: Callable[[float], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = put(tmp_path / "plans", make_record(1))
    looks: list[int] = []
    real = folder_module._look

    def slow(directory: Path) -> object:
        looks.append(0)
        clock(1.2)
        return real(directory)

    monkeypatch.setattr(folder_module, "_look", slow)
    layer = ShippedPlans(folder, "system")
    for _ in range(10):
        layer.stamp()
        clock(2.0)
    assert len(looks) == 1  # 24 seconds are waited after one of 1.2
    clock(10.0)
    layer.stamp()
    assert len(looks) == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_is_not_kept_waiting_by_a_look_of_its_parent(tmp_path: Path) -> None:
    layer = ShippedPlans(put(tmp_path / "plans", make_record(1)), "system")
    assert succeeds_in_a_child(layer._lock, lambda: layer.records() == (make_record(1),))
