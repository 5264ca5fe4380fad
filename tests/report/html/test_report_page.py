"""The report page: whole, alone, escaped, with the figures of its records, whatever these lack."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from plandb.samples import make_key, make_plan, make_record

from akx.core.plan import Plan
from akx.plandb import PlanDatabase, PlanRecord, TrialRecord
from akx.report.html.page import Subject, report_page
from akx.report.html.plan_charts import progress_chart, roofline_chart, speedup_chart
from akx.report.matrix.ghost_growth import GhostCurve, GhostGrowth
from akx.report.plans.plan_facts import explain_roofline, plan_facts
from akx.report.plans.plan_summary import PlanSummary, group_summaries, read_summaries

_WHEN = datetime(2024, 5, 6, 7, 8, 9, tzinfo=UTC)
_NASTY = '<b>&"'


class Reader(HTMLParser):
    """Elements, text and whether every element that begins also ends."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.words: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def read(page: str) -> Reader:
    """The page, once it is known to be whole and to need nothing else."""
    reader = Reader()
    reader.feed(page)
    reader.close()
    assert reader.open == []
    assert page.startswith("<!doctype html>")
    for word in ("http:", "https:", "src=", "@import", "url(", "<script", "<link", "javascript:"):
        assert word not in page
    ids = [attributes["id"] for _, attributes in reader.found if "id" in attributes]
    assert len(ids) == len(set(ids))
    links = [attributes["href"] for tag, attributes in reader.found if tag == "a"]
    assert {f"#{name}" for name in ids} == set(links)
    pictures = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert len(pictures) == page.count("<svg")
    for picture in pictures:
        root = ET.fromstring(picture)
        assert root.get("role") == "img"
        assert root.findtext("title")
    return reader


def write(*summaries: PlanSummary, growth: GhostGrowth | None = None, title: str = "brick") -> str:
    return report_page(Subject(title, "plans.sqlite"), summaries, growth, version="1.2.3", written=_WHEN)


def finalist(plan: Plan, seconds: float) -> dict[str, Any]:
    return {"seconds": seconds, "spread": 0.01, "rounds": 30, "label": plan.label(), "plan": plan.to_json()}


def summary(k: int = 8, **changes: Any) -> PlanSummary:
    """A plan that takes 1 ms beside a baseline of 4 ms, found in a search of six trials."""
    plan, sweep = make_plan(k, schedule="wavefront"), make_plan(k, schedule="sweep", k_per_pass=1)
    ghost = make_plan(k, schedule="ghost", block_bytes=2**16)
    provenance = {
        "machine": {"system": "Linux-9", "device": "cpu/Some Processor"},
        "versions": {"numpy": "2.9.9"},
        "matrix": {"rows": 12345, "nnz": 67890},
        "spreads": [0.012, 0.034],
        "finalists": [finalist(plan, 1e-3), finalist(sweep, 2e-3)],
        "roofline": {
            "bound_seconds": 5e-4, "share": 0.5, "limit": "memory", "bytes": 1e7, "flops": 2e6, "redundancy": 1.25,
        },
        "stopped": "no improvement",
        "interrupted": False,
    }  # fmt: skip
    trials = (
        TrialRecord(sweep, (2.1e-3, 2.2e-3, 2.3e-3)),
        TrialRecord(ghost, (3.0e-3, 5.0e-3, 4.0e-3)),
        TrialRecord(ghost, (), "failed", "wrong result at row 7"),
        TrialRecord(plan, (1.1e-3,)),
        TrialRecord(ghost, (), "pruned", "block too large"),
        TrialRecord(ghost, (), "pruned", "block too large"),
    )
    fields = {
        "key": make_key(k=k, revisions="other"),
        "plan": plan,
        "baseline_seconds": 4e-3,
        "provenance": provenance,
        "matrix_name": "brick",
    }
    record = make_record(**{**fields, **changes})
    return PlanSummary("user", record, trials)


def test_the_page_is_whole_alone_and_fits_any_screen() -> None:
    page = write(summary(4), summary(8))
    reader = read(page)
    metas = [attributes for tag, attributes in reader.found if tag == "meta"]
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in metas
    assert {"name": "color-scheme", "content": "light dark"} in metas
    assert "@media (prefers-color-scheme: dark)" in page
    assert "color-scheme: light dark" in page
    assert page.count("overflow-x: auto") == 1
    assert [attributes["lang"] for tag, attributes in reader.found if tag == "html"] == ["en"]


def test_colours_of_the_charts_are_those_of_the_page() -> None:
    page = write(summary(4), summary(8))
    style = page[page.index("<style>") : page.index("</style>")]
    assert style.count("{") == style.count("}")
    used = set(re.findall(r'class="([^"]*)"', page))
    for kind, colour in {(k, c) for names in used for k, c in re.findall(r"(bar|dot|line|key) (c\d)", names)}:
        assert f".{kind}.{colour}" in style
    named = set(re.findall(r"var\((--\w+)\)", style))
    light, dark = style.split("@media (prefers-color-scheme: dark)")
    for name in named:
        assert f"{name}:" in light
        assert f"{name}:" in dark


def test_it_holds_the_figures_of_a_record() -> None:
    words = " ".join(read(write(summary(8))).words)
    for fact in (
        "1.00 ms +-1.2% a call, 4.00x over the baseline",
        "sweep/csr, 4.00 ms +-3.4%",
        "the fastest of 2 in the run-off, timed in turns; the next took 100.0% longer",
        "31.5 s of tuning, 250 ms of preparing; paid back after 10,584 calls",  # 31.75 s over 3 ms
        "50% of the bound that memory sets (500 us); flops done over flops needed 1.250",
        "20 complete, 3 pruned, 1 failed; ended by: no improvement",
        "stale, never used again: revisions changed",
        "12,345 rows, 67,890 entries; monomial basis, float64, on cpu/Some Processor/2 cores",
        "block too large",
        "wrong result at row 7",
        "Linux-9",
        "2.9.9",
        "Written by akx 1.2.3",
        "2024-05-06 07:08:09+00:00",
        "revisions other",
    ):
        assert fact in words, fact


def test_why_it_is_the_plan() -> None:
    def why(*finals: tuple[Plan, float], **changes: Any) -> str:
        found = [finalist(plan, seconds) for plan, seconds in finals]
        one = summary(provenance={"finalists": found}, **changes)
        return str(dict(plan_facts(one))["why"])

    own, other = make_plan(8, schedule="wavefront"), make_plan(8, schedule="ghost")
    assert why((own, 1e-3), (other, 1.2e-3)).startswith("the fastest of 2 in the run-off")
    assert why((own, 1e-3), (other, 0.99e-3)) == (
        "as fast as the fastest of 2 in the run-off within the noise (1.0%), and simpler"
    )
    assert why((own, 1e-3)) == "the only one in the run-off"
    assert why() == "not recorded"
    online = summary(provenance={"online": True})
    assert str(dict(plan_facts(online))["why"]).startswith("tuned online")
    assert why((own, 1e-3), (other, 0.99e-3), baseline_seconds=1e-3).startswith("nothing beat the baseline")


def facts(one: PlanSummary, **provenance: Any) -> dict[str, str]:
    """What is said of a plan whose record says this, too."""
    record = replace(one.record, provenance={**one.record.provenance, **provenance})
    return {name: str(value) for name, value in plan_facts(replace(one, record=record))}


def test_an_interrupted_search_had_no_run_off() -> None:
    one, cut = summary(), {"interrupted": True, "stopped": "interrupted"}
    why = facts(one, **cut)["why"]
    assert why == (
        "the fastest of the best 2 trials; the next took 100.0% longer; the search was interrupted, so there was no "
        "run-off"
    )
    own, other = make_plan(8, schedule="wavefront"), make_plan(8, schedule="ghost")
    near = [finalist(own, 1e-3), finalist(other, 0.99e-3)]
    assert facts(one, **cut, finalists=near)["why"].startswith(
        "as fast as the fastest of the best 2 trials within the noise (1.0%), and simpler; the search was interrupted"
    )
    assert facts(one, **cut, finalists=near[:1])["why"].startswith("the only trial; the search was interrupted")
    baseline = summary(baseline_seconds=1e-3)
    assert facts(baseline, **cut)["why"] == "the search was interrupted, and nothing had beaten the baseline by then"

    page = write(replace(one, record=replace(one.record, provenance={**one.record.provenance, **cut})))
    words = " ".join(read(page).words)
    assert "The best trials, without a run-off" in words
    assert "chosen among the best by these figures: the search was interrupted" in words
    for claim in ("The run-off", "in the run-off", "in turns", "in a run-off", "of the run-off"):
        assert claim not in words
    assert "The run-off" in " ".join(read(write(one)).words)


def test_where_the_run_off_was_disturbed_trials_have_decided() -> None:
    one, marked = summary(), {"disturbed": True}
    assert facts(one, **marked)["why"] == (
        "the fastest of the best 2 trials; the next took 100.0% longer; the run-off was disturbed"
    )
    assert "the run-off was disturbed" in facts(one, **marked)["search"]
    page = write(replace(one, record=replace(one.record, provenance={**one.record.provenance, **marked})))
    words = " ".join(read(page).words)
    assert "The best trials, the run-off was disturbed" in words
    assert "chosen among the best by these figures: the run-off was disturbed" in words
    for claim in ("without a run-off", "in turns", "in a run-off", "of the run-off"):
        assert claim not in words


def test_a_search_for_few_calls_has_not_tried_everything() -> None:
    few = {"stopped": "too few calls", "calls": 1000}
    told = "it was sought for 1,000 calls, too few to search on"
    one = summary(baseline_seconds=1e-3)
    sweep = one.trials[0].plan
    assert facts(one, **few)["why"] == f"{told}: nothing that was tried beat the baseline beyond doubt"
    alone = replace(one, trials=(TrialRecord(sweep, (1e-3,)), TrialRecord(sweep.replace(variant="csr"), (2e-3,))))
    assert facts(alone, **few)["why"] == f"{told}: nothing was tried but the baseline"
    elsewhere = replace(one, trials=(), record=replace(one.record, trials={"complete": 1, "pruned": 0}))
    assert facts(elsewhere, **few)["why"] == f"{told}: nothing was tried but the baseline"
    assert "sought for 1 call, too few" in facts(one, **{**few, "calls": 1})["why"]
    assert facts(summary(), **few)["why"].endswith(f"100.0% longer; {told}")
    assert facts(one, stopped="too few calls")["why"].startswith("nothing beat the baseline"), "of a record that is cut"


def test_what_is_gained_over_an_untuned_call() -> None:
    one = summary()
    own, other = one.record.plan, make_plan(8, schedule="ghost")
    for plan, seconds, said in (
        (other, 1.5e-3, "over an untuned call: 1.50x, paid back after 63,500 calls"),  # 31.75 s over 0.5 ms
        (own, 1e-3, "over an untuned call: nothing gained, it would take the same plan"),
        (other, 0.99e-3, "over an untuned call: nothing gained, it would take a plan that is as fast"),
    ):
        cost = facts(one, untuned={"plan": plan.to_json(), "seconds": seconds})["cost"]
        assert cost == f"31.5 s of tuning, 250 ms of preparing; paid back after 10,584 calls; {said}"
    for given in (None, 3, {}, {"seconds": 1.0}, {"seconds": 0, "plan": other.to_json()}, {"seconds": 1, "plan": {}}):
        assert "untuned" not in facts(one, untuned=given)["cost"]
    page = write(replace(one, record=replace(one.record, provenance={"untuned": {"seconds": 1e-3}})))
    assert "untuned" not in page, "neither among the figures nor as it is"


def test_why_a_schedule_was_not_tried() -> None:
    one = summary()
    given = {"resident": f"no room {_NASTY}", "ghost": "too many rows", "stream": 7}
    assert one.untried == {}
    told = replace(one, record=replace(one.record, provenance={**one.record.provenance, "untried": given}))
    assert told.untried == {"resident": f"no room {_NASTY}", "stream": "7"}, "there are trials of ghost"
    words = read(write(told)).words
    assert [words[at + 1] for at, word in enumerate(words) if word == "not tried"] == [
        f"resident: no room {_NASTY}",
        "stream: 7",
    ]
    assert "untried" not in words, "nor as it is"
    for wrong in (None, 3, ["ghost"]):
        assert replace(one, record=replace(one.record, provenance={"untried": wrong})).untried == {}


def test_reasons_are_counted() -> None:
    assert summary().reasons == [("pruned", "block too large", 2), ("failed", "wrong result at row 7", 1)]


def test_speed_ups_are_the_run_offs_where_there_is_one() -> None:
    (group,) = group_summaries([summary(8)])
    best = group.summaries[0].by_schedule
    assert {name: seconds for name, (seconds, _) in best.items()} == {"wavefront": 1e-3, "sweep": 2e-3, "ghost": 4e-3}
    bars = {
        (e.findtext("title") or "").split(", ")[1]: float(e.get("height", 0))
        for e in ET.fromstring(speedup_chart(group).svg).iter("rect")
    }
    assert bars["sweep: 2.00x"] == pytest.approx(2 * bars["ghost: 1.00x"], abs=0.03)
    assert bars["wavefront: 4.00x"] == pytest.approx(2 * bars["sweep: 2.00x"], abs=0.03)


def searched_twice() -> PlanSummary:
    """A search, and one on a machine that had become four times slower, which found a plan 1.2 times as fast."""
    one = summary()
    sweep, ghost = one.trials[0].plan, one.trials[1].plan
    then, now = "2024-01-01T00:00:00+00:00", "2024-02-01T00:00:00+00:00"
    trials = (
        TrialRecord(sweep, (1e-3,), created=then),
        TrialRecord(ghost, (0.9e-3,), created=then),
        TrialRecord(sweep, (4e-3,), created=now),
        TrialRecord(ghost.replace(block_bytes=2**15), (3e-3,), created=now),
    )
    provenance = {**one.record.provenance, "baseline_plan": sweep.to_json()}
    return replace(one, record=replace(one.record, provenance=provenance), trials=trials)


def test_searches_on_a_slower_machine_are_compared_by_their_baselines() -> None:
    one = searched_twice()
    ghost = one.trials[1].plan
    known = {**one.record.provenance, "finalists": []}
    for provenance, expected in ((known, 3e-3), ({**known, "baseline_plan": {"k": 1}}, 0.9e-3)):
        found = replace(one, record=replace(one.record, provenance=provenance)).by_schedule
        assert found["ghost"][0] == pytest.approx(expected)
        assert found["ghost"][1] == ghost.replace(block_bytes=2**15 if expected == 3e-3 else 2**16).label()


def test_a_group_is_what_differs_in_k_alone() -> None:
    other = summary(8)
    other = replace(other, record=replace(other.record, key=replace(other.record.key, dtype="float32")))
    single = summary(4)
    single = replace(single, record=replace(single.record, key=replace(single.record.key, basis="newton")))
    groups = group_summaries([summary(8), summary(2), other, single])
    assert [[one.record.key.k for one in group.summaries] for group in groups] == [[8], [2, 8], [4]]


def test_the_roofline_is_that_of_the_record() -> None:
    roofline = summary().roofline
    assert roofline is not None
    assert roofline.intensity == pytest.approx(0.2)
    assert roofline.rate == pytest.approx(2e9)
    assert roofline.bound_rate == pytest.approx(4e9)
    assert roofline.bandwidth == pytest.approx(2e10)
    (group,) = group_summaries([summary()])
    chart = roofline_chart(group)
    assert chart is not None
    root = ET.fromstring(chart.svg)
    (dot,) = root.iter("circle")
    (ceiling,) = [e for e in root.iter("path") if "dash" in (e.get("class") or "")]
    (bound,) = [e for e in root.iter("path") if "dash" not in (e.get("class") or "")]
    assert float(dot.get("cy", 0)) > float(re.findall(r"[\d.]+", bound.get("d", ""))[1]), "measured is below its bound"
    # The ceiling goes through the bound of a plan that memory limits: the middle of the line, on logarithmic axes.
    ends = [float(number) for number in re.findall(r"[\d.]+", ceiling.get("d", ""))]
    middle = [float(number) for number in re.findall(r"[\d.]+", bound.get("d", ""))]
    assert (ends[0] + ends[2]) / 2 == pytest.approx(middle[0] + 9, abs=0.2)
    assert (ends[1] + ends[3]) / 2 == pytest.approx(middle[1], abs=0.2)
    assert "memory at 20 GB/s" in [name for name, _, _ in chart.legend]


def test_a_plan_that_caches_limit_has_no_ceiling_of_the_memory() -> None:
    one = summary()
    roofline = {**one.record.provenance["roofline"], "limit": "cache"}
    one = replace(one, record=replace(one.record, provenance={"roofline": roofline}))
    page = write(one)
    read(page)
    assert "bound by cache" in page
    assert "the records do not tell its ceiling" in page
    assert "GB/s" not in page


def beyond(one: PlanSummary) -> PlanSummary:
    """The same with a bound that it is 1.25 times as fast as."""
    roofline = {**one.record.provenance["roofline"], "bound_seconds": 1.25e-3, "share": 1.25}
    return replace(one, record=replace(one.record, provenance={**one.record.provenance, "roofline": roofline}))


def test_a_plan_that_is_faster_than_its_bound_has_none() -> None:
    words = " ".join(read(write(beyond(summary()))).words)
    assert "125% of the bound that memory sets (1.25 ms), faster than the model's bound: the measured" in words
    assert "1 dot has no stroke, being faster than the model's bound: the measured bandwidth was too low, or" in words
    assert "bound by" not in words.replace("bound by the model's traffic", "")
    assert "GB/s" not in words, "what was passed is no ceiling"
    (group,) = group_summaries([beyond(summary(4)), beyond(summary(8))])
    chart = roofline_chart(group)
    assert chart is not None
    root = ET.fromstring(chart.svg)
    assert len(list(root.iter("circle"))) == 2
    assert list(root.iter("path")) == []
    assert "2 dots have no stroke" in explain_roofline(group)
    assert "ceiling" not in explain_roofline(group)


def test_a_plan_beside_one_that_is_faster_than_its_bound_keeps_its_own() -> None:
    (group,) = group_summaries([beyond(summary(4)), summary(8)])
    chart = roofline_chart(group)
    assert chart is not None
    root = ET.fromstring(chart.svg)
    assert len(list(root.iter("circle"))) == 2
    (_,) = [e for e in root.iter("path") if "dash" not in (e.get("class") or "")]
    names = [name for name, _, _ in chart.legend]
    assert "k = 8 (stale), bound by memory" in names
    assert "k = 4 (stale), bound by memory" not in names
    assert "memory at 20 GB/s" in names
    assert "1 dot has no stroke" in explain_roofline(group)
    assert "no stroke" not in explain_roofline(group_summaries([summary()])[0])


def test_marks_of_trials_that_lost_say_what_they_stand_for() -> None:
    chart = progress_chart(summary())
    assert chart is not None
    names = [name for name, _, _ in chart.legend]
    assert "pruned or failed: infeasible, dropped as too slow, or wrong" in names
    assert not any("no time" in name for name in names), "one that was dropped as too slow has a time"


def test_progress_goes_down_and_is_above_nothing() -> None:
    chart = progress_chart(summary())
    assert chart is not None
    root = ET.fromstring(chart.svg)
    dots = [(float(e.get("cx", 0)), float(e.get("cy", 0))) for e in root.iter("circle")]
    assert len(dots) == 3
    assert dots[2][1] > dots[0][1] > dots[1][1], "1.1 ms below 2.2 ms below 4 ms"
    (best,) = [e for e in root.iter("path") if e.findtext("title") == "best so far"]
    across = [float(number) for number in re.findall(r"H([\d.]+)", best.get("d", ""))]
    assert across[-1] > dots[2][0], "to the last trial, timed or not"
    down = [dots[0][1], *(float(y) for y in re.findall(r"V([\d.]+)", best.get("d", "")))]
    assert down[1] == pytest.approx(down[0], abs=0.1), "the second trial was slower"
    assert down[-1] == pytest.approx(dots[2][1], abs=0.1)
    feet = [e.findtext("title") for e in root.iter("path") if (e.get("d") or "").endswith("v6")]
    assert feet == ["trial 3 failed: wrong result at row 7", *(f"trial {n} pruned: block too large" for n in (5, 6))]


def test_progress_of_searches_on_a_machine_that_became_slower_is_scaled_by_their_baselines() -> None:
    chart = progress_chart(searched_twice())
    assert chart is not None
    root = ET.fromstring(chart.svg)
    dots = [float(e.get("cy", 0)) for e in root.iter("circle")]
    assert dots[0] == pytest.approx(dots[2], abs=0.1), "the baseline takes the same in both"
    assert dots[3] > dots[1] > dots[0], "3 ms below 3.6 ms below 4 ms"
    (best,) = [e for e in root.iter("path") if e.findtext("title") == "best so far"]
    down = [float(y) for y in re.findall(r"V([\d.]+)", best.get("d", ""))]
    assert down[-1] == pytest.approx(dots[3], abs=0.1), "the second search has found a better one"
    assert "scaled so that the baseline takes the same in every search" in " ".join(read(write(searched_twice())).words)
    assert "scaled" not in write(summary())


def test_a_second_search_is_told() -> None:
    one = summary()
    times = ["2024-05-06T07:08:09+00:00"] * 4 + ["2024-05-06T09:08:09+00:00"] * 2
    trials = tuple(replace(trial, created=time) for trial, time in zip(one.trials, times, strict=True))
    assert "2 searches, beginning with trials 1, 5." in write(replace(one, trials=trials))
    two = ["2024-05-06T07:08:09+00:00", "2024-05-06T07:09:09+00:00"] * 3
    trials = tuple(replace(trial, created=time) for trial, time in zip(one.trials, two, strict=True))
    assert "2 searches, beginning with trials 1, 2." in write(replace(one, trials=trials))
    same = tuple(replace(trial, created=times[0]) for trial in one.trials)
    assert "searches, beginning" not in write(replace(one, trials=same))


def test_names_and_reasons_are_text() -> None:
    one = summary(matrix_name=_NASTY, baseline_name=_NASTY)
    plan = make_plan(8, variant=_NASTY, options={_NASTY: _NASTY})
    provenance = {**one.record.provenance, _NASTY: {_NASTY: [_NASTY]}, "stopped": _NASTY, "machine": {_NASTY: "\ud800"}}
    provenance["finalists"] = [{"label": _NASTY, "seconds": 1e-3}]
    provenance["roofline"] = {**one.record.provenance["roofline"], "limit": _NASTY}
    key = replace(one.record.key, device_class=_NASTY, revisions=_NASTY)
    record = replace(one.record, key=key, plan=plan, provenance=provenance)
    trials = tuple(replace(t, reason=_NASTY if t.state != "complete" else "") for t in one.trials)
    page = write(PlanSummary(_NASTY, record, trials), title=_NASTY)
    reader = read(page)
    assert "<b>" not in page
    assert "b" not in {tag for tag, _ in reader.found}
    assert any(_NASTY in words for words in reader.words)
    page.encode()


@pytest.mark.parametrize(
    "provenance",
    [
        {},
        {"roofline": None, "finalists": None, "spreads": None, "matrix": None, "machine": None, "versions": None},
        {"roofline": [], "finalists": {}, "spreads": {}, "matrix": [], "machine": "a", "versions": 3},
        {"roofline": {"bytes": "x", "flops": 0, "bound_seconds": -1}, "finalists": [None, {}, {"label": "a"}]},
        {"roofline": {"bytes": 1, "flops": True, "bound_seconds": 1}, "spreads": ["a", None], "matrix": {"rows": "a"}},
        {"finalists": [{"label": 3, "seconds": 1}, {"label": "x", "seconds": 10**400}], "spreads": [1], "stopped": 7},
        {"roofline": {"bytes": 1, "flops": 1, "bound_seconds": 1, "limit": {"a": 1}, "redundancy": "much"}},
    ],
)
def test_nothing_is_taken_for_granted(provenance: dict[str, Any]) -> None:
    bare = PlanSummary("user", summary(provenance=provenance, trials={}).record)
    page = write(bare, growth=GhostGrowth(4, (GhostCurve("a", (0.5,), (1.0,)),), ("a note",)))
    read(page)
    assert "The database has no trials of these plans" in page
    if not (isinstance(provenance.get("roofline"), dict) and "limit" in provenance["roofline"]):
        assert "Left out: no record of these plans has the figures of a roofline." in page


def test_a_plan_of_an_unknown_backend_is_no_more_than_of_no_use() -> None:
    page = write(summary(plan=make_plan(8, backend="abacus")))
    read(page)
    assert "cannot be used: unknown backend" in page


def test_the_baseline_as_plan_gains_nothing() -> None:
    words = " ".join(read(write(summary(baseline_seconds=1e-3))).words)
    assert "nothing beat the baseline beyond doubt, so it is the plan" in words
    assert "nothing is gained over the baseline" in words


def test_ghosts_are_shown_beside_the_plan() -> None:
    curves = (GhostCurve("in order", (0.1, 0.2), (1.0, 1.05)), GhostCurve("compact", (0.05,), (1.0,)))
    page = write(summary(), growth=GhostGrowth(7, curves, ("7 blocks.",)))
    words = " ".join(read(page).words)
    assert "7 blocks." in words
    assert re.search(r"2\s+20%\s+1\.050\s+-\s+-", words)
    assert re.search(r"k=4x2.*: 1\.25", words), "the plan's own"
    assert "Ghosts" not in write(summary()), "only of a matrix that is there"
    alone = write(summary(), growth=GhostGrowth(7, (), ("The matrix has no entries.",)))
    assert "The matrix has no entries." in " ".join(read(alone).words)


def test_stories_come_with_their_trials(tmp_path: Path) -> None:
    one = summary(key=make_key())
    with PlanDatabase(tmp_path / "plans.sqlite", layers=()) as database:
        database.put(one.record)
        database.add_trials(one.record.key, one.trials)
        found = read_summaries(database, database.entries())
    assert [item.trials for item in found] == [one.trials]
    record: PlanRecord = found[0].record
    assert record == one.record
