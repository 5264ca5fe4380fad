"""What a report page says of a plan, in words: as pairs of a name and a text, or as sentences."""

from __future__ import annotations

from typing import Any

from akx.report.story import Group, PlanStory, mapping
from akx.report.text import count, duration, half_width, ratio, share

__all__ = ["brief", "explain_roofline", "explain_search", "plan_environment", "plan_facts"]

#: The most characters of a reason, or of what a provenance holds.
_MOST_TEXT = 600
_SCHEDULES = {
    "sweep": "k products one after another",
    "ghost": "each block takes the rows around it along and does its steps alone; some work is done twice",
    "resident": "the matrix stays in fast memory for all steps, and blocks exchange the edges of their vectors",
    "wavefront": "blocks of levels run diagonally through the powers, so that each is loaded once and used in cache",
    "stream": "the matrix comes through the memory block by block, several steps at a time",
}
#: Parts of the provenance that have a place of their own on the page.
_TOLD = ("finalists", "roofline", "spreads", "baseline_plan", "versions", "machine", "matrix", "stopped", "interrupted")


def plan_facts(story: PlanStory) -> list[tuple[str, object]]:
    """What a plan is, what it gains, why it is the plan, and what it cost."""
    record, plan = story.record, story.record.plan
    spread, baseline_spread = story.spreads
    meaning = _SCHEDULES.get(plan.schedule)
    seconds = f"{duration(record.seconds)}{half_width(spread)} a call"
    baseline = f"{record.baseline_name or 'unnamed'}, {duration(record.baseline_seconds)}{half_width(baseline_spread)}"
    return [
        ("schedule", plan.schedule + ("" if meaning is None else f": {meaning}")),
        ("in words", _in_words(story)),
        ("time", f"{seconds}, {ratio(record.speedup)} over the baseline"),
        ("baseline", baseline),
        ("why", _why(story)),
        ("cost", _cost(story)),
        ("roofline", _roofline_words(story)),
        ("search", _search_words(story)),
        ("state", story.state),
    ]


def plan_environment(story: PlanStory) -> list[tuple[str, object]]:
    """What the figures were measured with; anything else that the provenance holds comes last, as it is."""
    record, key = story.record, story.record.key
    given = record.provenance
    pairs: list[tuple[str, object]] = [("id", record.id), ("layer", story.layer), ("created", record.created)]
    pairs += [(name.replace("_", " "), value) for name, value in key.to_json().items()]
    pairs += [(f"machine: {name}", value) for name, value in mapping(given.get("machine")).items()]
    pairs += [(f"version: {name}", value) for name, value in mapping(given.get("versions")).items()]
    pairs += [(f"option: {name}", value) for name, value in record.plan.options.items()]
    pairs += [(name, brief(value)) for name, value in sorted(given.items()) if name not in _TOLD]
    return pairs


def explain_search(story: PlanStory) -> str:
    """What the chart of a search shows, and how many searches it was."""
    searches = story.searches
    words = "Medians of single trials; the plan was chosen among the best in a run-off afterwards."
    if len(searches) > 1:
        begins = ", ".join(str(number) for number in searches)
        words += f" {len(searches)} searches, beginning with trials {begins}."
    return words


def explain_roofline(group: Group) -> str:
    """What the roofline of a group shows, and what it does not."""
    found = [story.roofline for story in group.stories]
    told = [
        "A dot is what was measured, the stroke above it the bound by the model's traffic at the bandwidths "
        "that it was tuned with. Flops count redundant work."
    ]
    if not any(roofline is not None and roofline.bandwidth for roofline in found):
        told.append("No plan here is bound by slow memory, so the records do not tell its ceiling.")
    missing = sum(roofline is None for roofline in found)
    if missing:
        told.append(f"{count(missing)} of {count(len(found))} records have no such figures, and no dot.")
    return " ".join(told)


def brief(value: Any) -> str:
    """`value` as text, cut where it is long."""
    words = str(value)
    return words if len(words) <= _MOST_TEXT else words[:_MOST_TEXT] + " ..."


def _in_words(story: PlanStory) -> str:
    plan = story.record.plan
    passes = -(-plan.k // plan.k_per_pass)
    words = [
        f"variant {plan.variant}",
        "rows in their own order" if plan.partitioner == "natural" else f"rows ordered by {plan.partitioner}",
        f"{plan.k_per_pass} of {plan.k} powers in each of {passes} passes over the matrix"
        if passes > 1
        else f"all {plan.k} powers in one pass over the matrix",
        *([f"blocks of {plan.block_bytes / 1024:g} KiB"] if plan.block_bytes else []),
        "1 thread" if plan.threads == 1 else f"{plan.threads} threads",
    ]
    return f"{plan.backend}: " + ", ".join(words)


def _why(story: PlanStory) -> str:
    """As :mod:`akx.tuner.choice` has it: within the noise the simpler plan wins, and the baseline before all others."""
    found, own = story.finalists, story.record.plan.label()
    if story.is_baseline:
        return "nothing beat the baseline beyond doubt, so it is the plan"
    if not found:
        return "not recorded"
    if len(found) == 1:
        return "the only one in the run-off"
    if found[0].label != own:
        behind = story.record.seconds / found[0].seconds - 1
        return (
            f"as fast as the fastest of {len(found)} in the run-off within the noise ({100 * behind:.1f}%), and simpler"
        )
    behind = found[1].seconds / found[0].seconds - 1
    return f"the fastest of {len(found)} in the run-off, timed in turns; the next took {100 * behind:.1f}% longer"


def _cost(story: PlanStory) -> str:
    record, calls = story.record, story.record.break_even_calls
    spent = f"{duration(record.tuning_seconds)} of tuning, {duration(record.prepare_seconds)} of preparing"
    return f"{spent}; " + ("nothing is gained" if calls is None else f"paid back after {count(calls)} calls")


def _roofline_words(story: PlanStory) -> str:
    found, redundancy = story.roofline, story.redundancy
    if found is None:
        return "not recorded"
    words = f"{share(found.share)} of the bound that {found.limit} sets ({duration(found.bound_seconds)})"
    return words + ("" if redundancy is None else f"; flops done over flops needed {redundancy:.3f}")


def _search_words(story: PlanStory) -> str:
    record = story.record
    words = ", ".join(f"{number} {state}" for state, number in record.trials.items()) or "no trials recorded"
    if stopped := record.provenance.get("stopped"):
        words += f"; ended by {stopped}"
    return words + ("; interrupted" if record.provenance.get("interrupted") else "")
