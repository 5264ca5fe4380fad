"""What a report page says of a plan, in words: as pairs of a name and a text, or as sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from akx.core.errors import shown
from akx.report.plans.plan_summary import Group, PlanSummary, mapping
from akx.report.units import BEYOND_BOUND, count, counted, duration, half_width, over_untuned, ratio, share
from akx.tuner.space import is_baseline

if TYPE_CHECKING:
    from akx.plandb import SolverTiming

__all__ = ["best_s", "explain_roofline", "explain_search", "plan_environment", "plan_facts", "value_text"]

#: The most characters of a reason, or of what a provenance holds.
_MOST_TEXT = 600
#: Parts of the provenance that have a place of their own on the page.
_TOLD = (
    "finalists", "roofline", "spreads", "baseline_plan", "versions", "machine", "matrix", "stopped", "interrupted",
    "disturbed", "starved", "untuned", "untried", "calls",
)  # fmt: skip


def plan_facts(summary: PlanSummary) -> list[tuple[str, object]]:
    """What a plan is, what it gains, why it is the plan, and what it cost."""
    record, plan = summary.record, summary.record.plan
    spread, baseline_spread = summary.spreads
    meaning = plan.traits.meaning
    seconds = f"{duration(record.seconds)}{half_width(spread)} a call"
    baseline = f"{record.baseline_name or 'unnamed'}, {duration(record.baseline_seconds)}{half_width(baseline_spread)}"
    return [
        ("schedule", plan.schedule + (f": {meaning}" if meaning else "")),
        ("in words", _in_words(summary)),
        ("time", f"{seconds}, {ratio(record.speedup)} over the baseline"),
        ("baseline", baseline),
        ("why", _why(summary)),
        ("cost", _cost(summary)),
        ("roofline", _roofline_words(summary)),
        ("search", _search_words(summary)),
        *(("not tried", f"{name}: {value_text(reason)}") for name, reason in summary.untried.items()),
        ("state", summary.state),
        *((f"for {one.key.solver}", best_s(one)) for one in summary.timings),
    ]


def best_s(timing: SolverTiming) -> str:
    """The s that was found best for a solver, such as ``"s = 8, 1.82 ms a step"``."""
    return f"s = {timing.best_s}, {duration(timing.step(timing.key.solver))} a step"


def plan_environment(summary: PlanSummary) -> list[tuple[str, object]]:
    """What the figures were measured with; anything else that the provenance holds comes last, as it is."""
    record, key = summary.record, summary.record.key
    given = record.provenance
    pairs: list[tuple[str, object]] = [("id", record.id), ("layer", summary.layer), ("created", record.created)]
    pairs += [(name.replace("_", " "), value) for name, value in key.to_json().items()]
    pairs += [(f"machine: {name}", value) for name, value in mapping(given.get("machine")).items()]
    pairs += [(f"version: {name}", value) for name, value in mapping(given.get("versions")).items()]
    pairs += [(f"option: {name}", value) for name, value in record.plan.options.items()]
    pairs += [(name, value_text(value)) for name, value in sorted(given.items()) if name not in _TOLD]
    return pairs


def explain_search(summary: PlanSummary) -> str:
    """What the chart of a search shows, and how many searches it was."""
    searches = summary.searches
    chosen = "in a run-off afterwards"
    if summary.is_by_trials:
        why = "search was interrupted" if summary.is_interrupted else "run-off was disturbed"
        chosen = f"by these figures: the {why}"
    scaled = ", scaled so that the baseline takes the same in every search" if summary.is_scaled else ""
    words = f"Medians of single trials{scaled}; the plan was chosen among the best {chosen}."
    if len(searches) > 1:
        begins = ", ".join(str(number) for number in searches)
        words += f" {len(searches)} searches, beginning with trials {begins}."
    return words


def explain_roofline(group: Group) -> str:
    """What the roofline of a group shows, and what it does not."""
    found = [summary.roofline for summary in group.summaries]
    told = [
        "A dot is what was measured, the stroke above it the bound by the model's traffic at the bandwidths "
        "that it was tuned with. Flops count redundant work."
    ]
    beyond = sum(roofline is not None and roofline.is_beyond for roofline in found)
    if beyond:
        told.append(f"{count(beyond)} {'dot has' if beyond == 1 else 'dots have'} no stroke, being {BEYOND_BOUND}.")
    within = [roofline for roofline in found if roofline is not None and not roofline.is_beyond]
    if within and not any(roofline.bandwidth for roofline in within):
        told.append("No other plan" if beyond else "No plan")
        told[-1] += " here is bound by slow memory, so the records do not tell its ceiling."
    missing = sum(roofline is None for roofline in found)
    if missing:
        told.append(f"{count(missing)} of {count(len(found))} records have no such figures, and no dot.")
    return " ".join(told)


def value_text(value: Any) -> str:
    """`value` as text, cut where it is long."""
    return shown(_as_words(value), _MOST_TEXT)


def _as_words(value: Any) -> str:
    """What JSON holds, without its marks: ``rows 9, nnz 25`` of an object."""
    if value is None or isinstance(value, bool):
        return {None: "none", True: "yes", False: "no"}[value]
    if isinstance(value, dict):
        return ", ".join(f"{str(name).replace('_', ' ')} {_as_words(item)}" for name, item in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_as_words, value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _in_words(summary: PlanSummary) -> str:
    plan = summary.record.plan
    passes = -(-plan.k // plan.k_per_pass)
    words = [
        f"variant {plan.variant}",
        "rows in their own order" if plan.partitioner == "natural" else f"rows ordered by {plan.partitioner}",
        f"{plan.k_per_pass} of {plan.k} powers in each of {passes} passes over the matrix"
        if passes > 1
        else f"all {plan.k} powers in one pass over the matrix",
        *([f"blocks of {plan.block_bytes / 1024:g} KiB"] if plan.block_bytes else []),
        counted(plan.threads, "thread"),
    ]
    return f"{plan.backend}: " + ", ".join(words)


def _why(summary: PlanSummary) -> str:
    """As :mod:`akx.tuner.select` has it: within the noise the simpler plan wins, and the baseline before all others."""
    found, own = summary.finalists, summary.record.plan.label()
    if summary.is_baseline:
        return _why_the_baseline(summary)
    if not found and summary.record.provenance.get("online"):
        return "tuned online: the fastest so far of those that did a user's calls in turns"
    if not found:
        return "not recorded"
    few = summary.few_calls
    told = "" if few is None else f"; it was sought for {_calls(few)}, too few to search on"
    one, many, timed = "one in the run-off", f"{len(found)} in the run-off", ", timed in turns"
    if summary.is_by_trials:
        one, many, timed = "trial", f"the best {len(found)} trials", ""
        why = "search was interrupted, so there was no run-off" if summary.is_interrupted else "run-off was disturbed"
        told = f"; the {why}"
    if len(found) == 1:
        return f"the only {one}{told}"
    if found[0].label != own:
        behind = summary.record.seconds / found[0].seconds - 1
        return f"as fast as the fastest of {many} within the noise ({100 * behind:.1f}%), and simpler{told}"
    behind = found[1].seconds / found[0].seconds - 1
    return f"the fastest of {many}{timed}; the next took {100 * behind:.1f}% longer{told}"


def _why_the_baseline(summary: PlanSummary) -> str:
    """Why a plan is the baseline: only a search that ran to its end has tried what there is to try."""
    few, tried = summary.few_calls, sum(summary.record.trials.values())
    if summary.is_interrupted:
        return "the search was interrupted, and nothing had beaten the baseline by then"
    if few is None:
        return "nothing beat the baseline beyond doubt, so it is the plan"
    told = f"it was sought for {_calls(few)}, too few to search on"
    if tried == 1 or (summary.trials and all(is_baseline(trial.plan) for trial in summary.trials)):
        return f"{told}: nothing was tried but the baseline"
    return f"{told}: nothing that was tried beat the baseline beyond doubt"


def _calls(number: int) -> str:
    return counted(number, "call")


def _cost(summary: PlanSummary) -> str:
    record, calls = summary.record, summary.record.break_even_calls
    spent = f"{duration(record.tuning_seconds)} of tuning, {duration(record.prepare_seconds)} of preparing"
    words = f"{spent}; " + (
        "nothing is gained over the baseline" if calls is None else f"paid back after {_calls(calls)}"
    )
    untuned = summary.untuned
    if untuned is None:
        return words
    same = untuned.plan == record.plan
    return f"{words}; {over_untuned(untuned.speedup, untuned.break_even_calls, is_same=same)}"


def _roofline_words(summary: PlanSummary) -> str:
    found, redundancy = summary.roofline, summary.redundancy
    if found is None:
        return "not recorded"
    words = f"{share(found.share)} of the bound that {found.limit} sets ({duration(found.bound_seconds)})"
    if found.is_beyond:
        words += f", {BEYOND_BOUND}"
    return words + ("" if redundancy is None else f"; flops done over flops needed {redundancy:.3f}")


def _search_words(summary: PlanSummary) -> str:
    record = summary.record
    words = ", ".join(f"{number} {state}" for state, number in record.trials.items()) or "no trials recorded"
    if stopped := record.provenance.get("stopped"):
        words += f"; ended by: {stopped}"
    words += "; the run-off was disturbed" if summary.is_disturbed else ""
    return words + ("; interrupted" if summary.is_interrupted else "")
