"""Render the result files as Markdown, into docs/benchmarks.md between two comment lines.

    python -m benchmarks.table            rewrite it
    python -m benchmarks.table --check    exit code 1 where it is not what the results say

Everything between ``<!-- bench:begin -->`` and ``<!-- bench:end -->`` is replaced, everything else is left alone. No
figure is typed by hand: each comes from benchmarks/results/.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import markdown, record
from benchmarks.gallery import GALLERY
from benchmarks.powers import RESULTS

__all__ = ["full_tables", "main"]

BLOCK = "bench"
_ROOT = Path(__file__).resolve().parents[1]
_EXHAUSTIVE = RESULTS.with_name("exhaustive_brick.json")
_NAMES = {
    "scipy": "SciPy",
    "mkl": "MKL",
    "mkl_1_thread": "MKL, 1 thread",
    "mkl_bsr": "MKL, block CSR",
    "sweep": "own `sweep`",
    "sweep_reordered": "`sweep`, reordered",
}

Json = dict[str, Any]


def full_tables(document: Json, exhaustive: Json | None = None) -> str:
    """The tables of docs/benchmarks.md: one for each k with every baseline, and the check of the tuner."""
    entries = document["powers"]
    parts = [f"Measured on {_machine(document)}.", "Versions: " + _versions(document) + "."]
    for k in sorted({entry["k"] for entry in entries}):
        mine = [entry for entry in entries if entry["k"] == k]
        names = list(dict.fromkeys(name for entry in mine for name in entry["baselines"]))
        extra = ["sweep_reordered"] if any("sweep_reordered" in entry for entry in mine) else []
        head = [
            "matrix", *(_NAMES.get(name, name) for name in [*names, *extra]), "akx", "spread", "speed-up", "plan",
            "prepare", "pays after", "error / bound",
        ]  # fmt: skip
        rows = []
        for entry in mine:
            times = [_ms(entry["baselines"].get(name)) for name in names] + [_ms(entry.get(name)) for name in extra]
            best = entry["best"]
            rows.append([
                _label(entry), *times, _ms(best["seconds"]), f"{best['spread']:.1%}", _ratio(entry, bold=True),
                f"`{entry.get('plan', best['schedule'] + '/' + best['variant'])}`", _ms(entry["prepare_seconds"]),
                _break_even(entry), f"{entry['error']:.2g}",
            ])  # fmt: skip
        for group in ("gallery", "real"):
            if any(_group(entry) == group for entry in mine):
                mean = _mean([entry for entry in mine if _group(entry) == group], bold=True)
                blank = [""] * (len(names) + len(extra) + 2)
                rows.append([f"*geometric mean, {group}*", *blank, mean, "", "", "", ""])
        plan_column = len(names) + len(extra) + 4
        parts += [f"### k = {k}", markdown.rows(head, rows, left=(0, plan_column))]
    if exhaustive is not None:
        parts += ["### The tuner against an exhaustive search", _exhaustive_text(exhaustive)]
    return "\n\n".join(parts)


def main(arguments: Sequence[str] | None = None) -> int:
    """Rewrite or check the page; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.table", description="Render the results as Markdown.")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--exhaustive", type=Path, default=_EXHAUSTIVE)
    parser.add_argument("--docs", type=Path, default=_ROOT / "docs" / "benchmarks.md")
    parser.add_argument("--check", action="store_true", help="change nothing; exit code 1 where a file is out of date")
    options = parser.parse_args(arguments)
    try:
        document = record.load(options.results)
    except ValueError as problem:
        parser.error(str(problem))
    if document is None:
        parser.error(f"{options.results} is not there yet: run python -m benchmarks.powers")
    exhaustive = json.loads(options.exhaustive.read_text()) if options.exhaustive.exists() else None
    page = options.docs
    try:
        text = markdown.replace_block(page.read_text(), BLOCK, full_tables(document, exhaustive))
    except (OSError, ValueError) as problem:
        parser.error(f"{page}: {problem}")
    stale = markdown.keep(page, text, check=options.check)
    if stale:
        print(f"{page}: out of date, run python -m benchmarks.table", file=sys.stderr)
    return stale


def _exhaustive_text(found: Json) -> str:
    tuned, best = found["tuned"], found["best"]
    measured = f"{found['feasible']} feasible plans of {found['space']}"
    measured = f"all {measured}" if found["complete"] else f"{measured} looked at, not the whole space,"
    return (
        f"`{found['matrix']}`, k = {found['k']}: {measured} were measured. "
        f"`akx tune` with default settings took {found['tuning_seconds']:.0f} s and found "
        f"`{tuned['plan']}`: {_ms(tuned['seconds'])} ms. The best of all is `{best['plan']}`: "
        f"{_ms(best['seconds'])} ms. "
        f"Both measured again in turns: the tuned plan takes {found['ratio']:.3f} times the best one's time "
        f"({_short(found['commit'])}, {found['date'][:10]})."
    )


def _machine(document: Json) -> str:
    machine = document["machine"]
    threads = machine.get("threads", machine.get("cores"))
    made = dict.fromkeys(entry.get("commit", document["commit"]) for entry in document["powers"])
    commits = [_short(commit) for commit in made] or [_short(document["commit"])]
    label = "commit" if len(commits) == 1 else "commits"
    return (
        f"{machine.get('processor', 'unknown processor')}, {threads} threads, {label} {', '.join(commits)}, "
        f"{document['date'][:10]}"
    )


def _short(commit: str) -> str:
    head, plus, _ = commit.partition("+")
    return head[:10] + (" with changes" if plus else "")


def _versions(document: Json) -> str:
    return ", ".join(f"{name} {version}" for name, version in document["versions"].items())


def _group(entry: Json) -> str:
    return str(entry.get("group", "gallery" if entry["matrix"] in GALLERY else "real"))


def _fastest(entry: Json) -> tuple[str, float]:
    name = min(entry["baselines"], key=entry["baselines"].__getitem__)
    return name, entry["baselines"][name]


def _label(entry: Json) -> str:
    return entry["matrix"] if entry["dtype"] == "float64" else f"{entry['matrix']} ({entry['dtype']})"


def _count(value: int) -> str:
    return f"{value:,}"


def _ms(seconds: float | None) -> str:
    if seconds is None:
        return ""
    digits = max(0, 2 - math.floor(math.log10(seconds * 1e3))) if seconds > 0 else 0
    return f"{seconds * 1e3:.{min(digits, 4)}f}"


def _ratio(entry: Json | None, *, bold: bool) -> str:
    if entry is None:
        return ""
    return f"**{entry['speedup']:.2f}**" if bold else f"{entry['speedup']:.2f}"


def _mean(entries: Iterable[Json], *, bold: bool) -> str:
    values = [entry["speedup"] for entry in entries]
    if not values:
        return ""
    mean = f"{record.geometric_mean(values):.2f}"
    return f"**{mean}**" if bold else mean


def _break_even(entry: Json) -> str:
    """Calls after which tuning and preparing have paid; a dash where nothing was gained or the time is not known."""
    gain = _fastest(entry)[1] - entry["best"]["seconds"]
    if gain <= 0 or "tuning_seconds" not in entry:
        return "-"
    return _count(max(1, math.ceil((entry["tuning_seconds"] + entry["prepare_seconds"]) / gain)))


if __name__ == "__main__":
    sys.exit(main())
