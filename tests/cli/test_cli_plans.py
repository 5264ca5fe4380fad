"""``akx plans``: list, show, trials, export, import and rm over a real database."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import pytest

from akx.backends.revisions import SOLVERS, revision
from akx.core.io import read_matrix
from akx.core.matrix import Matrix
from akx.core.plan import Plan
from akx.plandb import (
    PlanDatabase,
    PlanKey,
    PlanRecord,
    ShippedPlans,
    SolverTiming,
    TimingKey,
    TrialRecord,
    layers,
)
from akx.plandb.bundle import bundle_text
from akx.tuner import plan_key
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
        revisions="plan 1, wavefront 0, csr16 1" if stale else "",
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
    assert listed["shell"]["stale"] == ["revisions"]
    assert listed["brick"]["speedup"] == pytest.approx(1.5)
    check_shape("plans_list.json", {**data, "plans": [listed["brick"]]})
    text = akx("plans", "list").out
    assert records[0].id[:12] in text
    assert "user (stale)" in text


def test_stale_plans_that_are_shipped_are_listed_where_asked(
    akx: Callable[..., Ran], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shipped").mkdir()
    current = _record("current", fingerprint="cc" * 20)
    old = [_record(name, fingerprint=name, stale=True) for name in ("old", "older")]
    (tmp_path / "shipped" / "a.json").write_text(bundle_text([current, *old]))
    monkeypatch.setattr(layers, "_SHIPPED", ShippedPlans(tmp_path / "shipped"))
    with PlanDatabase(tmp_path / "plans.sqlite", layers=()) as database:
        database.put(_record("mine", fingerprint="mine", stale=True))
    data = akx("plans", "list", "--json").json
    assert ({plan["matrix"] for plan in data["plans"]}, data["hidden"]) == ({"mine", "current"}, 2)
    data = akx("plans", "list", "--all", "--json").json
    assert ({plan["matrix"] for plan in data["plans"]}, data["hidden"]) == ({"mine", "current", "old", "older"}, 0)
    ran = akx("plans", "list")
    assert "older" not in ran.out
    assert "current" not in ran.out
    assert "3 plans for 3 matrices shipped with akx left out; --all lists them too" in ran.err
    ran = akx("plans", "list", "--all")
    assert ("shipped (stale)" in ran.out, ran.err) == (True, "")
    removed = akx("plans", "rm", "--stale", "--json").json
    assert removed["removed"] == [_record("mine", fingerprint="mine", stale=True).id]
    check_shape("plans_rm_stale.json", removed)
    assert akx("plans", "show", old[0].id).code == 0, "nothing is hidden from who knows the id"


def test_show_takes_the_beginning_of_an_id(akx: Callable[..., Ran], records: tuple[PlanRecord, PlanRecord]) -> None:
    data = akx("plans", "show", records[0].id[:12], "--json").json
    assert PlanRecord.from_json(data["record"]) == records[0]
    check_shape("plans_show.json", data)
    text = akx("plans", "show", records[1].id[:12]).out
    assert "stale, never used again: revisions changed" in text
    assert "1.50x over the baseline" in text
    assert "sweep/csr16, 3.00 ms" in text
    for mark in '{"}':
        assert mark not in text, "JSON is for --json"


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
    check_shape("plans_trials_of.json", data)
    assert (data["id"], data["trials"]) == (records[0].id, [one.stamped().to_json() for one in made])
    assert data["trials"][0].pop("provenance") == data["trials"][1].pop("provenance") == made[0].stamped().provenance
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
    assert first.split()[:9] == ["2025-01-02", "03:04", "*", "2.00", "ms", "3", "2.45", "GHz", "complete"]
    assert second.split()[:6] == ["2025-01-02", "03:04", "-", "0", "-", "failed"]
    assert "wrong result by 3" in second
    assert akx("plans", "trials", "zzzz").code == 2


def test_timings_of_solvers(akx: Callable[..., Ran], records: tuple[PlanRecord, PlanRecord], tmp_path: Path) -> None:
    ran = akx("plans", "timings")
    assert (ran.code, ran.out) == (0, "")
    assert "no timings of solvers yet" in ran.err
    assert akx("plans", "timings", "--json").json["timings"] == []
    brick = records[0]
    where = {name: getattr(brick.key, name) for name in ("fingerprint", "dtype", "index_type", "device_class")}
    number = revision("cpu", SOLVERS)
    best = SolverTiming(
        TimingKey(**where, solver="ca_cg", basis="monomial", revision=number), {"ca_cg": 2e-3}, 8, brick.created,
        matrix_name="brick",
    )  # fmt: skip
    special = {"asked_s": 8, "restart": 20, "preconditioner": "Jacobi 144"}
    key = TimingKey(**where, solver="gmres", basis="newton", revision=number, **special)  # type: ignore[arg-type]
    compared = SolverTiming(key, {"gmres": 3e-3, "ca_gmres": None}, created="2999-01-01T00:00:00+00:00")
    stale = SolverTiming(replace(key, revision=number + 1), {"gmres": 1.0, "ca_gmres": 2.0})
    with PlanDatabase(tmp_path / "plans.sqlite", layers=()) as database:
        for timing in (best, compared, stale):
            database.put_timing(timing)
    shown = akx("plans", "timings", "--json").json
    check_shape("plans_timings.json", {**shown, "timings": sorted(shown["timings"], key=lambda one: one["created"])})
    listed = {item["id"]: item for item in shown["timings"]}
    for one in (best, compared, stale):
        assert listed[one.id] == {"layer": "user", **one.to_json(), "stale": one is stale, "aged": []}
    text = " ".join(akx("plans", "timings").out.split())
    assert f"{best.id[:12]} brick float64 monomial ca_cg: best s s = 8, 2.00 ms a step user" in text
    asked = "gmres: s = 8, restart 20, M Jacobi 144"
    assert f"{compared.id[:12]} {'a' * 12} float64 newton {asked} gmres 3.00 ms, ca_gmres of no use user" in text
    assert "user (stale)" in text
    assert len(akx("plans", "list", "--json").json["plans"]) == 2
    assert "for ca_cg s = 8, 2.00 ms a step" in " ".join(akx("plans", "show", brick.id).out.split())
    (check,) = (one for one in akx("doctor", "--json").json["checks"]["database"] if one["name"] == "plans")
    assert "2 plans, 3 timings of solvers, " in check["found"]
    bundle = tmp_path / "bundle.json"
    assert akx("plans", "export", bundle).code == 0
    assert "removed 1 stale plan and 1 stale timing of solvers of" in akx("plans", "rm", "--stale").err
    assert "removed timing" in akx("plans", "rm", compared.id[:12]).err
    assert akx("plans", "rm", brick.id).code == 0
    assert akx("plans", "timings", "--json").json["timings"] == [], "what was found with a plan goes with it"
    assert "3 timings of solvers taken" in akx("plans", "import", bundle).err
    assert len(akx("plans", "timings", "--json").json["timings"]) == 3


def test_every_trial_of_the_database(
    akx: Callable[..., Ran], records: tuple[PlanRecord, PlanRecord], tmp_path: Path
) -> None:
    ran = akx("plans", "trials", "--all")
    assert (ran.code, ran.out) == (0, "")
    assert "no trials yet" in ran.err
    assert akx("plans", "trials", "--all", "--json").json["trials"] == []
    plan, at = records[0].plan, "2025-01-02T05:04:05.123456+02:00"
    killed = _record("killed", fingerprint="dd" * 20).key
    with PlanDatabase(tmp_path / "plans.sqlite", layers=()) as database:
        database.add_trials(killed, [TrialRecord(plan, (1e-3,), created=at, clock_hz=3e9)])
        database.add_trials(records[1].key, [TrialRecord(plan, (2e-3,), created=at)])
        found = database.all_trials()
    data = akx("plans", "trials", "--all", "--json").json
    check_shape("plans_trials.json", data)
    assert data["id"] is None
    for (key, trial), item in zip(found, data["trials"], strict=True):
        assert {**trial.to_json(), "key_id": key.id}.items() <= item.items()
        expected = (key.fingerprint, 8, "monomial", "float64", 1, "cpu/Test/2 cores")
        names = ("fingerprint", "k", "basis", "dtype", "start_vectors", "device")
        assert tuple(item[name] for name in names) == expected
    header, first, second = akx("plans", "trials", "--all").out.splitlines()
    assert header.split()[:3] == ["matrix", "k", "created"]
    assert first.split()[:6] == ["d" * 12, "8", "2025-01-02", "03:04", "1.00", "ms"]
    assert second.split()[:7] == ["b" * 12, "8", "2025-01-02", "03:04", "*", "2.00", "ms"]


def test_one_plan_or_all_of_them(akx: Callable[..., Ran], records: tuple[PlanRecord, PlanRecord]) -> None:
    for command, option in (("trials", "--all"), ("rm", "--stale")):
        for arguments, found in (((), "neither"), ((records[1].id, option), "both")):
            ran = akx("plans", command, *arguments)
            assert (ran.code, ran.out) == (2, "")
            assert f"ID or {option}" in ran.error
            assert found in ran.error
    assert len(akx("plans", "list", "--json").json["plans"]) == 2


def test_stale_plans_are_removed_at_once(
    akx: Callable[..., Ran], records: tuple[PlanRecord, PlanRecord], tmp_path: Path
) -> None:
    with PlanDatabase(tmp_path / "plans.sqlite", layers=()) as database:
        for record in records:
            provenance = {"revisions": record.key.revisions}
            database.add_trials(record.key, [TrialRecord(record.plan, provenance=provenance)])
    ran = akx("plans", "rm", "--stale")
    assert (ran.code, ran.out) == (0, "")
    assert "removed 1 stale plan of" in ran.err
    assert [plan["id"] for plan in akx("plans", "list", "--json").json["plans"]] == [records[0].id]
    assert {item["fingerprint"] for item in akx("plans", "trials", "--all", "--json").json["trials"]} == {"aa" * 20}
    data = akx("plans", "rm", "--stale", "--json").json
    assert data["removed"] == []


def test_a_plan_that_the_next_search_improves_says_why(
    akx: Callable[..., Ran], records: tuple[PlanRecord, PlanRecord], tmp_path: Path
) -> None:
    with PlanDatabase(tmp_path / "plans.sqlite", layers=()) as database:
        database.put(replace(records[0], provenance={**records[0].provenance, "disturbed": True, "starved": True}))
    why = "disturbed, too little time"
    assert "provisional" in akx("plans", "list").out
    assert {plan["id"]: plan["provisional"] for plan in akx("plans", "list", "--json").json["plans"]}[
        records[0].id
    ] == why
    assert f"provisional ({why})" in " ".join(akx("plans", "show", records[0].id).out.split())
    assert akx("plans", "show", records[0].id, "--json").json["provisional"] == why


def test_plans_that_are_aged_are_told_of_and_why(
    akx: Callable[..., Ran],
    records: tuple[PlanRecord, PlanRecord],
    tmp_path: Path,
) -> None:
    provenance = {"kernels": "0" * 16, "versions": {"numba": "0.1.2"}}
    now = ".".join(version("numba").split(".")[:2])
    with PlanDatabase(tmp_path / "plans.sqlite", layers=()) as database:
        database.put(replace(records[0], provenance=provenance))
    why = ["other kernel sources", f"numba 0.1, now {now}"]
    listed = {plan["matrix"]: plan for plan in akx("plans", "list", "--json").json["plans"]}
    assert (listed["brick"]["aged"], listed["brick"]["stale"]) == (why, [])
    assert (listed["shell"]["aged"], listed["shell"]["stale"]) == ([], ["revisions"])
    ran = akx("plans", "list")
    assert "(aged)" in ran.out
    assert f"1 plan aged: numba 0.1, now {now}" in ran.err
    shown = akx("plans", "show", records[0].id, "--json").json
    assert shown["aged"] == why
    check_shape("plans_show_aged.json", shown)
    assert f"aged, raced before it is used: other kernel sources; numba 0.1, now {now}" in " ".join(
        akx("plans", "show", records[0].id).out.split()
    )
    assert "removed 1 stale plan of" in akx("plans", "rm", "--stale").err
    assert [plan["matrix"] for plan in akx("plans", "list", "--json").json["plans"]] == ["brick"]


def test_some_plans_are_exported(
    akx: Callable[..., Ran], records: tuple[PlanRecord, PlanRecord], tmp_path: Path
) -> None:
    bundle = tmp_path / "plans.json"

    def written() -> list[str]:
        return [record["matrix_name"] for record in json.loads(bundle.read_text())["records"]]

    ran = akx("plans", "export", bundle, "--id", records[1].id[:6])
    assert (ran.code, written()) == (0, ["shell"])
    assert f"wrote 1 plan to {bundle}" in ran.err
    both = [part for record in records for part in ("--id", record.id)]
    assert akx("plans", "export", bundle, *both, "--id", records[0].id, "--json").json["exported"] == 2
    assert written() == ["brick", "shell"]
    ran = akx("plans", "export", bundle, "--id", records[0].id, "--id", "zzzz")
    assert (ran.code, written()) == (2, ["brick", "shell"])
    assert "no such plan" in ran.error


def test_export_remove_and_import_again(
    akx: Callable[..., Ran], records: tuple[PlanRecord, PlanRecord], tmp_path: Path
) -> None:
    bundle = tmp_path / "plans.json"
    written = akx("plans", "export", bundle, "--json").json
    assert written["exported"] == 2
    check_shape("plans_export.json", written)
    assert {record["id"] for record in json.loads(bundle.read_text())["records"]} == {r.id for r in records}
    removed = akx("plans", "rm", records[0].id[:12], "--json").json
    assert removed["removed"] == records[0].id
    check_shape("plans_rm.json", removed)
    assert akx("plans", "show", records[0].id).code == 2
    report = akx("plans", "import", bundle, "--json").json
    assert (report["added"], report["unchanged"]) == (1, 1)
    check_shape("plans_import.json", report)
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
    monkeypatch.setattr("akx.plandb.layers._found", None)  # as a second later
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


_HOSTILE = "\x1b]0;pwn\x07\x1b[2J[bold]name[/]\n\u202edlrow\u2066\x9b2J\r\u2028end" + "x" * 5000


def _is_harmless(text: str) -> bool:
    return all(c.isprintable() or c == "\n" for c in text) and max(map(len, text.splitlines()), default=0) <= 4100


def test_what_others_have_written_is_shown_and_not_obeyed(
    akx: Callable[..., Ran], poisson: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    matrix = Matrix.from_any(read_matrix(poisson))
    key = plan_key(matrix, 4, backend="cpu")
    plan = Plan("cpu", "sweep", _HOSTILE[:150], k=4, options={_HOSTILE[:60]: _HOSTILE[:100]})
    provenance = {_HOSTILE: {_HOSTILE: _HOSTILE}, "spreads": [_HOSTILE, None], "stopped": _HOSTILE, "calls": _HOSTILE}
    other = dataclasses.replace(key, k=5, device_class=key.device_class + _HOSTILE[:800])
    records = [
        PlanRecord(key, plan, 1e-9, _HOSTILE, 1e-3, matrix_name=_HOSTILE, provenance=provenance),
        PlanRecord(other, plan.replace(k=5), 1e-9, _HOSTILE, 1e-3, matrix_name=_HOSTILE),
    ]
    trial = TrialRecord(plan, (1e-3,), "failed", _HOSTILE)
    bundle = tmp_path / "bundle.json"
    bundle.write_text(bundle_text(records))
    assert akx("plans", "import", bundle).code == 0
    with PlanDatabase() as database:
        database.add_trials(key, [trial])
    number = records[0].id
    for command in (
        ("plans", "list"), ("plans", "show", number), ("plans", "trials", number), ("plans", "trials", "--all"),
        ("plans", "verify", poisson, "--time", 0.1), ("plans", "export", tmp_path / "out.json", "--id", number),
        ("plans", "rm", number), ("info", poisson, "--k", 4), ("info", poisson, "--k", 5), ("doctor",),
    ):  # fmt: skip
        ran = akx(*command)
        assert ran.code in (0, 3), ran.err
        assert _is_harmless(ran.out), command
        assert _is_harmless(ran.err), command
        if command[:2] == ("plans", "list"):
            assert r"\x1b]0;pwn\x07\x1b[2J[bold]name[/]\n\u202e" in ran.out.replace("\n", "")
    bundle.write_text(json.dumps({"akx": _HOSTILE}))
    assert _is_harmless(akx("plans", "import", bundle).err)
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "\x1b[2J.json").write_text("no bundle")
    monkeypatch.setenv("AKX_PROJECT_PLANS", str(tmp_path / "project"))
    ran = akx("doctor")
    assert r"\x1b[2J.json" in ran.out.replace("\n", "")
    assert _is_harmless(ran.out)
    assert _is_harmless(akx("info", tmp_path / _HOSTILE[:90].replace("/", "")).err)
