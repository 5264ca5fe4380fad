"""Render the figures of the GPU as Markdown, into docs/cuda.md and README.md between two comment lines.

    python -m benchmarks.gpu_table            rewrite them
    python -m benchmarks.gpu_table --check    exit code 1 where a page is not what the results say

The figures of powers are those of h200.json, written by :mod:`benchmarks.gpu`; streams are those of that file or else
of h100.json, and exhaustive_brick_gpu.json has a search of a whole space; all in benchmarks/results/. None is typed by
hand.
"""

from __future__ import annotations

import argparse
import json
import sys
import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks import record
from benchmarks.gallery import IRREGULAR
from benchmarks.gpu import HISTORY, RESULTS
from benchmarks.markdown import replace_block, rows
from benchmarks.record import is_csr

__all__ = ["main", "powers_table", "search_text", "sentence", "streams_table"]

PAGE = Path(__file__).resolve().parents[1] / "docs" / "cuda.md"
README = PAGE.parents[1] / "README.md"
SEARCH = RESULTS.with_name("exhaustive_brick_gpu.json")
_KINDS: dict[str, Callable[[str], bool]] = {
    "CSR": is_csr,
    "BSR": lambda name: name.startswith("cusparse_bsr"),
    "SpMVOp": lambda name: name.startswith("cusparse_op"),
}

Json = dict[str, Any]
Entries = list[Json]


def parts_of(document: Json) -> dict[str, Entries]:
    """Entries of matrices with general values, of such in no order, of real ones, and of such with few values."""
    found: dict[str, Entries] = {"gallery": [], "in no order": [], "real": [], "constant": []}
    for one in document["powers"]:
        kind = "in no order" if one["matrix"] in IRREGULAR else one["group"]
        found[kind if kind in found else "gallery"].append(one)  # large ones have general values, too
    return found


def powers_table(entries: Entries) -> str:
    """Microseconds of a step for every matrix and k, beside every baseline; means at the end of each k."""
    kinds = {
        name: keep for name, keep in _KINDS.items() if any(keep(one) for entry in entries for one in entry["baselines"])
    }
    head = ["k", "matrix", *kinds, "CuPy's loop", "untuned", "tuned", "spread", "one call", "one graph"]
    head += ["untuned over CSR", "over CSR", "over the best", "events", "schedule", "values", "tuned in"]
    is_longer = any("longer" in one for one in entries)
    head += ["of a longer search's speed"] * is_longer
    body = []
    for k in sorted({one["k"] for one in entries}, reverse=True):
        mine = [one for one in entries if one["k"] == k]
        body += [_line(one, kinds) + [_of_longer(one)] * is_longer for one in mine]
        means = [_mean([gain(one) for one in mine]) for gain in (_untuned, _over_csr, _over_best)]
        body.append([str(k), "*geometric mean*", *[""] * (len(kinds) + 6), *means, "", "", "", "", *[""] * is_longer])
    return rows(head, body, left=(1, head.index("schedule"), head.index("values")))


def _line(one: Json, kinds: dict[str, Callable[[str], bool]]) -> list[str]:
    k, best, is_tuned = one["k"], one["best"], "tuner_seconds" in one
    times = [_least(one["baselines"], keep) for keep in kinds.values()]
    times += [one["loop"], one["untuned"]["seconds"], best["seconds"] if is_tuned else None]
    waited = [one["latency"]["akx" if is_tuned else "untuned"], _least(one["latency"], is_csr)]
    calls = ["" if seconds is None else f"{seconds * 1e6:.0f}" for seconds in waited]
    gains = [f"{_untuned(one):.2f}", f"**{_over_csr(one):.2f}**", f"{_over_best(one):.2f}"]
    way = f"`{best['schedule']}`, `{best['variant']}`"
    took = f"{one['tuning_seconds']:.0f} s" if is_tuned else ""
    shown = [_step(seconds, k) for seconds in times]
    events = _step(one.get("tuner_seconds"), k)
    return [
        str(k),
        one["matrix"],
        *shown,
        f"{best['spread']:.1%}",
        *calls,
        *gains,
        events,
        way,
        best.get("stored", "full"),
        took,
    ]


def _least(times: dict[str, float], keep: Callable[[str], bool]) -> float | None:
    return min((seconds for name, seconds in times.items() if keep(name)), default=None)


def _of_longer(one: Json) -> str:
    longer = one.get("longer")
    return (
        "" if longer is None else f"{longer['seconds'] / one['best']['seconds']:.0%} ({longer['tuning_seconds']:.0f} s)"
    )


def _untuned(one: Json) -> float:
    csr = _least(one["baselines"], is_csr)
    assert csr is not None
    return float(csr / one["untuned"]["seconds"])


def _over_csr(one: Json) -> float:
    return float(one["speedup"])


def _over_best(one: Json) -> float:
    return float(one["speedup_best"])


def _mean(values: Sequence[float]) -> str:
    return f"**{record.geometric_mean(values):.2f}**"


def sentence(document: Json) -> str | None:
    """What README says of tuned plans: general values at the most powers, and real matrices; None without any."""
    parts = parts_of({"powers": [one for one in document["powers"] if "tuner_seconds" in one]})
    k = max((one["k"] for one in parts["gallery"]), default=0)
    mine = [one for one in parts["gallery"] if one["k"] == k]
    if not mine:
        return None
    gains, best = ([gain(one) for one in mine] for gain in (_over_csr, _over_best))
    untuned = record.geometric_mean([_untuned(one) for one in mine])
    text = (
        f"{min(gains):.1f} to {max(gains):.1f} times as fast as CSR products of cuSPARSE "
        f"{document['versions']['cusparse']} in a graph on {_number(len(gains))} matrices with general values "
        f"(geometric mean {record.geometric_mean(gains):.1f}, untuned {untuned:.1f}; over its fastest product, SpMVOp "
        f"included, {record.geometric_mean(best):.1f}), one {document['machine']['gpu']}, float64, k = {k}, by the "
        "wall clock of public calls"
    )
    if real := [_over_csr(one) for one in parts["real"]]:
        text += (
            f"; with k = {parts['real'][0]['k']}, {min(real):.1f} to {max(real):.1f} times on {len(real)} real matrices"
        )
    return _wrapped(f"A tuned `P(x, out=V)` is {text}.")


def _number(count: int) -> str:
    words = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
    return words[count] if count < len(words) else str(count)


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 119, break_long_words=False, break_on_hyphens=False)


def streams_table(document: Json) -> str:
    """The best k of every matrix that was streamed."""
    head = [
        "matrix",
        "k",
        "streamed products, ms",
        "`stream`, ms",
        "a whole call, ms",
        "speed-up",
        "bound",
        "of it",
        "chunks",
    ]
    body = []
    for name in dict.fromkeys(one["matrix"] for one in document["stream"]):
        best = max((one for one in document["stream"] if one["matrix"] == name), key=lambda one: one["speedup"])
        times = [best["baseline_seconds"], best["seconds"], best.get("call_seconds")]
        body.append([name, str(best["k"]), *("" if time is None else f"{time * 1e3:.2f}" for time in times)])
        body[-1] += [f"**{best['speedup']:.2f}**", f"{best['bound']:.2f}", f"{best['speedup'] / best['bound']:.0%}"]
        body[-1].append(str(best["chunks"]))
    return rows(head, body)


def search_text(found: Json) -> str:
    """What a search of the whole space found, beside the tuner."""
    tuned, best, sampled, tried = found["tuned"], found["best"], found["sampled"], found["tried_by"]
    searched = [f"`{name}` ({tried.get(name, 0):,})" for name in found["schedules"]]
    measured = sum(tried.get(name, 0) for name in found["schedules"])
    listed = found["listed"] - sum(sampled.values())
    left = ", ".join(f'{count:,} for "{reason}"' for reason, count in found["left_out"].items())
    drawn = "".join(
        f" Of {count} plans of `{name}` that were drawn at random {tried.get(name, 0)} were measured as well."
        for name, count in sampled.items()
    )
    return (
        f"`{found['matrix']}`, k = {found['k']}, default settings, an empty store of compiled code: `akx tune` took "
        f"{found['tuning_seconds']:.0f} s and {found['tuning_trials']} trials, and found `{tuned['plan']}`, "
        f"{tuned['seconds'] * 1e6:.1f} us a call. A search measured {'all' if measured == listed else f'{measured:,}'} "
        f"of the {listed:,} plans of {' and '.join(searched)} that can be laid out and could win; left out were {left}."
        f"{drawn} The best in turns with "
        f"the tuned plan: `{best['plan']}`, {best['seconds'] * 1e6:.1f} us. The tuned plan takes {found['ratio']:.3f} "
        "times the best one's time."
    )


def block(document: Json | None, streams: Json, search: Json | None) -> str:
    """Everything between the comment lines."""
    parts = [] if document is None else _powers(document)
    parts += [
        f"Beyond a budget of a quarter of the matrix ({streams['machine']['gpu']}, few different values), the best of "
        "the k tried, over streamed products in the same run:",
        streams_table(streams),
        "The bound (thesis eq. 6.2) adds the bytes of both directions, which the bus carries at the same time: more "
        "than all of it can be had. A whole call is `P(x)` with NumPy arrays, by the host's clock.",
    ]
    return "\n\n".join([*parts, *([search_text(search)] if search is not None else [])])


def _powers(document: Json) -> list[str]:
    """The tables of powers, and what is said before each."""
    found = parts_of(document)
    origin = f"{document['machine']['gpu']}, cuSPARSE {document['versions']['cusparse']}, float64, one start vector"
    said = {
        "gallery": f"{origin}, general values; microseconds of a step, calls in a row by the wall clock, medians; *one "
        "call* and *one graph* are microseconds of all k when each is waited for, *events* the tuner's own time of the "
        "plan",
        "in no order": "Matrices whose rows come in no order",
        "real": "Real matrices",
        "constant": "The same patterns with few different values, which plans may keep in tables of bytes",
    }
    parts = []
    for kind, entries in found.items():
        if entries:
            within = sorted({one["tuned_within"] for one in entries if one.get("tuned_within")})
            searched = "".join(f", {seconds:g} s" for seconds in within)
            limits = f"; searches of at most{searched[1:]}" if within else ""
            parts += [f"{said[kind]} (commits {_commits(entries)}{limits}):", powers_table(entries)]
    refused = {text: None for one in document["powers"] for text in one["refused"]}
    return [*parts, *(f"Left out: {text}." for text in refused)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Rewrite or check the pages; returns the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu_table", description="Figures as Markdown.")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--search", type=Path, default=SEARCH)
    parser.add_argument("--page", type=Path, default=PAGE)
    parser.add_argument("--readme", type=Path, default=README)
    parser.add_argument("--check", action="store_true", help="change nothing; exit code 1 where it is out of date")
    options = parser.parse_args(arguments)
    document = record.load(options.results)
    streams = document if document is not None and "stream" in document else json.loads(HISTORY.read_text())
    search = json.loads(options.search.read_text()) if options.search.exists() else None
    texts = {options.page: block(document, streams, search)}
    if document is not None and (said := sentence(document)) is not None:
        texts[options.readme] = said
    is_old = False
    for page, text in texts.items():
        old = page.read_text()
        new = replace_block(old, "gpu", text)
        if new == old:
            continue
        is_old = True
        if not options.check:
            page.write_text(new)
        print(f"{page}: {'out of date' if options.check else 'written'}", file=sys.stderr)
    return int(options.check and is_old)


def _commits(entries: Entries) -> str:
    return ", ".join(dict.fromkeys(one["commit"][:10] for one in entries))


def _step(seconds: float | None, k: int) -> str:
    return "" if seconds is None else f"{seconds / k * 1e6:.2f}"


if __name__ == "__main__":
    sys.exit(main())
