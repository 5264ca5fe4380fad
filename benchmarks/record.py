"""The form of a result file, and the rules for adding to one.

A file is one JSON object::

    {"machine": {...}, "versions": {...}, "commit": "...", "date": "...",
     "powers": [{"matrix", "rows", "nnz", "k", "dtype",
                 "baselines": {name: seconds}, "best": {"schedule", "variant", "seconds", "spread"},
                 "speedup", "prepare_seconds", "error", ...}, ...],
     "stream": [{"matrix", "fraction", "k", "baseline_seconds", "seconds", "speedup", "bound", "redundancy",
                 ...}, ...]}

`seconds` are medians of one call that computes all k powers; `spread` is the interquartile range over the median;
`speedup` is the fastest baseline over best; `error` is the largest componentwise error over its bound, at most 1.
`stream`, where there is one, is of :mod:`benchmarks.stream`. An entry of `powers` may carry more: `group`, `plan`,
`tuning_seconds`, `sweep_reordered`, and the `commit` and `date` it was measured at, since a file may be filled in
several runs. Those of the file are of its newest entry. All entries of one file are of one machine.

On a GPU (:mod:`benchmarks.gpu`) times are those of calls in a row by the wall clock. There `speedup` is over
cuSPARSE's products in CSR alone, and `speedup_best` over the fastest baseline; `latency` {contestant: seconds} is of
calls that are waited for one by one, `untuned` {"schedule", "variant", "seconds", "spread", "plan", "stored"} of a
call without a plan in a database (`stored`, which `best` has too, says how values are kept: in full, in half or in a
table), `loop` of CuPy's (or null), `spreads` of all contestants, `refused` what is left out and why. Where a plan was
tuned: `tuner_seconds` of it and `sweep` of the fastest plain products by events, `tuned_within` the seconds that were
allowed (null: as many as the search wants), `stopped` what ended it, and `trials`. `longer` is as `untuned`, of a
longer search beside it, with its `tuning_seconds`.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from akx.backends.host import host_device

__all__ = ["Provenance", "check", "empty", "geometric_mean", "is_csr", "load", "merge", "provenance", "save"]

Json = dict[str, Any]
Provenance = Json

_FILE = {"machine": dict, "versions": dict, "commit": str, "date": str, "powers": list}
_ENTRY = {
    "matrix": str,
    "rows": int,
    "nnz": int,
    "k": int,
    "dtype": str,
    "baselines": dict,
    "best": dict,
    "speedup": float,
    "prepare_seconds": float,
    "error": float,
}
_BEST = {"schedule": str, "variant": str, "seconds": float, "spread": float}
#: What an entry of a GPU has besides, told by its `speedup_best`.
_GPU = {"speedup_best": float, "spreads": dict, "latency": dict, "untuned": dict, "refused": list, "plan": str}
_STREAMED = {
    "matrix": str,
    "fraction": float,
    "k": int,
    "baseline_seconds": float,
    "seconds": float,
    "speedup": float,
    "bound": float,
    "redundancy": float,
}
_ROOT = Path(__file__).resolve().parents[1]


def provenance(threads: int) -> Provenance:
    """Machine, versions, commit and date of a run that starts now with `threads` threads."""
    device = host_device()
    machine = {
        "processor": device.name,
        "cores": device.cores,
        "threads": threads,
        "l2_bytes": device.l2_bytes,
        "l3_bytes": device.l3_bytes,
        "system": f"{platform.system()} {platform.machine()}",
    }
    versions = {"python": platform.python_version()}
    for name in ("numpy", "scipy", "numba", "mkl", "pymetis", "optuna"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    date = datetime.now(UTC).isoformat(timespec="seconds")
    return {"machine": machine, "versions": versions, "commit": _commit(), "date": date}


def _commit() -> str:
    """The commit checked out, ``+changes`` where akx or benchmarks differ from it; ``unknown`` without a checkout."""
    try:
        head = _git("rev-parse", "HEAD")
        changed = _git("status", "--porcelain", "--", "akx", "benchmarks/*.py", "benchmarks/*.cu")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{head}+changes" if changed else head


def _git(*arguments: str) -> str:
    command = ["git", "-C", str(_ROOT), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def empty(origin: Provenance) -> Json:
    """A file without entries."""
    return {**origin, "powers": []}


def load(path: Path) -> Json | None:
    """The file at `path`, or None where there is none. Raises ValueError where it is not of the form."""
    if not path.exists():
        return None
    try:
        document = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path} is not JSON: {error}; move it away or choose another file with -o") from error
    problems = check(document)
    if problems:
        raise ValueError(f"{path} is not a result file: {problems[0]}; move it away or choose another file with -o")
    return dict(document)


def merge(document: Json | None, origin: Provenance, entries: Iterable[Mapping[str, Any]]) -> Json:
    """`document` with `entries` added, replacing those of the same matrix, k and dtype.

    Raises ValueError where `document` holds figures of another machine.
    """
    if document is not None and document["powers"] and document["machine"] != origin["machine"]:
        raise ValueError(
            f"the file holds figures of another machine ({document['machine']}, here {origin['machine']}); "
            "choose another file with -o"
        )
    added = [{**entry, "commit": origin["commit"], "date": origin["date"]} for entry in entries]
    replaced = {_key(entry) for entry in added}
    kept = [entry for entry in (document or empty(origin))["powers"] if _key(entry) not in replaced]
    others = {"stream": document["stream"]} if document is not None and "stream" in document else {}
    return {**origin, "powers": sorted(kept + added, key=_order), **others}


def save(path: Path, document: Json) -> None:
    """Write `document`, checked, in one step: a reader finds the old file or the new one. Raises ValueError."""
    problems = check(document)
    if problems:
        raise ValueError(f"result not of the form: {'; '.join(problems)}")
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_text(json.dumps(document, indent=1) + "\n")
    draft.replace(path)


def check(document: Any) -> list[str]:
    """What is wrong with the form of a result file; empty where nothing."""
    problems = _missing(document, _FILE, "file")
    if problems:
        return problems
    for number, entry in enumerate(document["powers"]):
        where = f"powers[{number}]"
        found = _missing(entry, _ENTRY, where)
        found = found or _missing(entry["best"], _BEST, f"{where}.best")
        if "speedup_best" in entry:
            found = found or _missing(entry, _GPU, where) or _missing(entry["untuned"], _BEST, f"{where}.untuned")
        found = found or _wrong_figures(entry, where)
        problems += found
    for number, entry in enumerate(document.get("stream", [])):
        where = f"stream[{number}]"
        found = _missing(entry, _STREAMED, where)
        if not found and not abs(entry["baseline_seconds"] / entry["seconds"] - entry["speedup"]) <= 1e-6:
            found = [f"{where}.speedup is not the baseline over seconds"]
        problems += found
    return problems


def _missing(data: Any, form: Mapping[str, type], where: str) -> list[str]:
    if not isinstance(data, dict):
        return [f"{where} is not an object"]
    return [
        f"{where}.{name} is not {kind.__name__}"
        for name, kind in form.items()
        if isinstance(data.get(name), bool) or not isinstance(data.get(name), (int, float) if kind is float else kind)
    ]


def _wrong_figures(entry: Json, where: str) -> list[str]:
    times = [*entry["baselines"].values(), entry["best"]["seconds"]]
    if not entry["baselines"] or not all(isinstance(t, (int, float)) and t > 0 for t in times):
        return [f"{where} has a time that is not positive, or no baseline"]
    fastest, name = min(entry["baselines"].values()), "speedup"
    if "speedup_best" in entry:
        csr = [seconds for name, seconds in entry["baselines"].items() if is_csr(name)]
        if not csr or not _is_ratio(entry["speedup"], min(csr), entry["best"]["seconds"]):
            return [f"{where}.speedup is not the fastest product in CSR over best"]
        name = "speedup_best"
    if not _is_ratio(entry[name], fastest, entry["best"]["seconds"]):
        return [f"{where}.{name} is not the fastest baseline over best"]
    if not 0 <= entry["error"] <= 1:
        return [f"{where}.error is beyond the bound"]
    return []


def _is_ratio(said: float, above: float, below: float) -> bool:
    return abs(above / below - said) <= 1e-6 * above / below


def is_csr(name: str) -> bool:
    """Whether a baseline is cuSPARSE's product of a matrix in CSR, over which a speed-up on a GPU is."""
    return name.startswith("cusparse_alg")


def geometric_mean(values: Iterable[float]) -> float:
    """Geometric mean of at least one positive value."""
    from statistics import geometric_mean as mean

    return mean(values)


def _key(entry: Mapping[str, Any]) -> tuple[str, int, str]:
    return entry["matrix"], entry["k"], entry["dtype"]


def _order(entry: Mapping[str, Any]) -> tuple[int, str, str, int]:
    """Gallery in its own order, constant and large ones too, then real matrices by name, each by k."""
    from benchmarks.gallery import CONSTANT, GALLERY, LARGE

    names = list(GALLERY | CONSTANT | LARGE)
    name = entry["matrix"]
    return names.index(name) if name in names else len(names), name.lower(), entry["dtype"], entry["k"]
