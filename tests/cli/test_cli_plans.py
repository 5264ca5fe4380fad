"""``akx plans``: list, show, trials, export, import and rm over a real database."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from akx.plan import Plan
from akx.plandb import PlanDatabase, PlanKey, PlanRecord, TrialRecord, kernel_hash, versions
from cli.golden import check_shape
from cli.running import Ran


def _record(name: str, *, fingerprint: str, stale: bool = False) -> PlanRecord:
    key = PlanKey(
        fingerprint=fingerprint,
        dtype="float64",
        index_type="int32",
        basis="monomial",
        k=8,
        start_vectors=1,
        device_class="cpu/Test/2 cores",
        kernel_hash="0123456789abcdef" if stale else kernel_hash("cpu"),
        versions=versions("cpu"),
    )
    plan = Plan("cpu", "wavefront", "csr16", k=8, k_per_pass=8, threads=2)
    return PlanRecord(
        key, plan, 2e-3, "sweep/csr16", 3e-3, 0.1, 20.0, created="2025-01-02T03:04:05+00:00", matrix_name=name,
        provenance={"machine": {"system": "Test"}}, trials={"complete": 9, "pruned": 1, "failed": 0},
    )  # fmt: skip


@pytest.fixture
def records(tmp_path: Path) -> tuple[PlanRecord, PlanRecord]:
    made = _record("brick", fingerprint="aa" * 20), _record("shell", fingerprint="bb" * 20, stale=True)
    with PlanDatabase(tmp_path / "plans.sqlite", layers=()) as database:
        for record in made:
            database.put(record)
    return made


def test_an_empty_database(akx: Callable[..., Ran], tmp_path: Path) -> None:
    ran = akx("plans", "list", "--json")
    assert ran.code == 0
    assert [plan for plan in ran.json["plans"] if plan["layer"] == "user"] == []
    assert not (tmp_path / "plans.sqlite").exists(), "looking must not make a file"


def test_list(akx: Callable[..., Ran], records: tuple[PlanRecord, PlanRecord]) -> None:
    data = akx("plans", "list", "--json").json
    listed = {plan["matrix"]: plan for plan in data["plans"] if plan["layer"] == "user"}
    assert set(listed) == {"brick", "shell"}
    assert listed["brick"]["id"] == records[0].id
    assert listed["brick"]["stale"] == []
    assert listed["shell"]["stale"] == ["kernel_hash"]
    assert listed["brick"]["speedup"] == pytest.approx(1.5)
    check_shape("plans_list.json", {**data, "plans": [listed["brick"]]})
    text = akx("plans", "list").out
    assert records[0].id[:12] in text
    assert "user (stale)" in text


def test_show_takes_the_beginning_of_an_id(akx: Callable[..., Ran], records: tuple[PlanRecord, PlanRecord]) -> None:
    data = akx("plans", "show", records[0].id[:12], "--json").json
    assert PlanRecord.from_json(data["record"]) == records[0]
    check_shape("plans_show.json", data)
    text = akx("plans", "show", records[1].id[:12]).out
    assert "stale, never used again: kernel_hash changed" in text
    assert "1.50x over sweep/csr16" in text


def test_trials_behind_a_plan(akx: Callable[..., Ran], records: tuple[PlanRecord, PlanRecord], tmp_path: Path) -> None:
    ran = akx("plans", "trials", records[0].id)
    assert (ran.code, ran.out) == (0, "")
    assert "has no trials for plan" in ran.err
    plan, at = records[0].plan, "2025-01-02T03:04:05+00:00"
    made = [
        TrialRecord(plan, (3e-3, 1e-3, 2e-3), created=at, clock_hz=2.45e9),
        TrialRecord(plan.replace(threads=1), (), "failed", "wrong result by 3", at),
    ]
    with PlanDatabase(tmp_path / "plans.sqlite", layers=()) as database:
        database.add_trials(records[0].key, made)
    data = akx("plans", "trials", records[0].id[:12], "--json").json
    assert (data["id"], data["trials"]) == (records[0].id, [one.to_json() for one in made])
    assert [(Plan.from_json(one.pop("plan")), one) for one in data["trials"]] == [
        (
            plan,
            {"seconds": [3e-3, 1e-3, 2e-3], "state": "complete", "reason": "", "created": at, "clock_hz": 2.45e9},
        ),
        (
            plan.replace(threads=1),
            {"seconds": [], "state": "failed", "reason": "wrong result by 3", "created": at, "clock_hz": None},
        ),
    ]
    _, first, second = akx("plans", "trials", records[0].id).out.splitlines()
    assert first.split()[:6] == ["2.00", "ms", "3", "2.45", "GHz", "complete"]
    assert second.split()[:4] == ["-", "0", "-", "failed"]
    assert "wrong result by 3" in second
    assert akx("plans", "trials", "zzzz").code == 2


def test_export_remove_and_import_again(
    akx: Callable[..., Ran], records: tuple[PlanRecord, PlanRecord], tmp_path: Path
) -> None:
    bundle = tmp_path / "plans.json"
    assert akx("plans", "export", bundle, "--json").json["exported"] == 2
    assert {record["id"] for record in json.loads(bundle.read_text())["records"]} == {r.id for r in records}
    assert akx("plans", "rm", records[0].id[:12], "--json").json["removed"] == records[0].id
    assert akx("plans", "show", records[0].id).code == 2
    report = akx("plans", "import", bundle, "--json").json
    assert (report["added"], report["unchanged"]) == (1, 1)
    assert akx("plans", "show", records[0].id).code == 0


def test_a_project_keeps_plans_that_go_first(
    akx: Callable[..., Ran],
    records: tuple[PlanRecord, PlanRecord],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("AKX_PROJECT_PLANS")
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    assert akx("plans", "export", ".akx/plans/both.json", "--json").json["exported"] == 2
    monkeypatch.setattr("akx.plandb.places._found", None)  # as a second later
    listed = akx("plans", "list", "--json").json["plans"]
    assert {plan["matrix"]: plan["layer"] for plan in listed} == {"brick": "project", "shell": "project"}
    assert "project (stale)" in akx("plans", "list").out
    assert akx("plans", "rm", records[0].id).code == 0  # that of the user's
    assert "project layer" in akx("plans", "rm", records[0].id).error
    assert akx("plans", "show", records[0].id).code == 0


def test_mistakes(akx: Callable[..., Ran], records: tuple[PlanRecord, PlanRecord], tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.json"
    wrong.write_text("{}")
    for arguments in (["show", "zzzz"], ["rm", "zzzz"], ["import", wrong], ["import", tmp_path / "no.json"]):
        ran = akx("plans", *arguments)
        assert ran.code == 2
        assert ran.error
    ran = akx("plans", "export", tmp_path / "no" / "such" / "folder.json")
    assert (ran.code, bool(ran.error)) == (2, True)


def test_human_messages_go_to_stderr(
    akx: Callable[..., Ran], records: tuple[PlanRecord, PlanRecord], tmp_path: Path
) -> None:
    for arguments in (["export", tmp_path / "x.json"], ["import", tmp_path / "x.json"], ["rm", records[0].id]):
        ran = akx("plans", *arguments)
        assert (ran.code, ran.out) == (0, "")
        assert ran.err.startswith("akx: ")


def test_every_command_takes_the_url_of_a_server(
    akx: Callable[..., Ran], records: tuple[PlanRecord, PlanRecord], tmp_path: Path, server_url: str
) -> None:
    bundle = tmp_path / "bundle.json"
    assert akx("plans", "export", bundle).code == 0
    login, _, rest = server_url.partition("@")
    secret = f"{login}:xyzzy@{rest}"  # whoever is trusted may have a password
    imported = akx("plans", "import", bundle, "--db", secret, "--json")
    assert (imported.json["added"], imported.json["db"]) == (2, f"{login}:***@{rest}")
    listed = akx("plans", "list", "--db", server_url, "--json").json["plans"]
    assert {plan["matrix"] for plan in listed if plan["layer"] == "user"} == {"brick", "shell"}
    assert akx("plans", "show", records[0].id, "--db", secret, "--json").json["record"] == records[0].to_json()
    report = akx("report", "--db", secret, "-o", tmp_path / "page.html")
    assert (report.code, "xyzzy" in (tmp_path / "page.html").read_text()) == (0, False)
    (check,) = (
        one for one in akx("doctor", "--db", secret, "--json").json["checks"]["database"] if one["name"] == "plans"
    )
    assert check["state"] == "ok"
    assert "2 plans, PostgreSQL" in check["found"]
    assert akx("plans", "rm", records[0].id, "--db", server_url).code == 0
    assert len(PlanDatabase(server_url, layers=()).list()) == 1
    for ran in (
        akx("plans", "list", "--db", secret.replace("?host=", "?host=/nowhere")),
        akx("doctor", "--db", secret),
    ):
        assert "xyzzy" not in ran.out + ran.err
    assert "cannot be reached" in akx("plans", "list", "--db", secret.replace("?host=", "?host=/nowhere")).error
