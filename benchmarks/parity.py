"""Do communication-avoiding solvers take as many steps as classic ones? On real matrices, at rtol = 1e-8.

    python -m benchmarks.parity                    every matrix, into benchmarks/results/parity.json, then the table
    python -m benchmarks.parity --only wang4       one matrix, merged into the file
    python -m benchmarks.parity --table            the table of docs/parity.md from the file

Each system is solved by the classic solver and by the communication-avoiding one with s = 4 and s = 8, without a
preconditioner and, but for minres, with Jacobi's; a step is one product, of bicgstab two. Right-hand side: random. The
classic solver is akx's, or SciPy's where akx has none; a solver that is not there is left out.

BiCGStab's steps depend on the last bits of everything, and one right-hand side says little. Where the classic method
converges, `DRAWS` of them are solved, the first included, and medians are compared beside the single figures. How far
such figures can be trusted is seen by the classic method beside itself, each right-hand side changed in its last bits.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from akx.solvers.preconditioners import jacobi
from benchmarks import markdown, record, solving

__all__ = ["DEFINITE", "OTHERS", "compare", "main", "table"]

DEFINITE = ("bodyy5", "bcsstk16", "bcsstk18", "bcsstk25", "nasa4704", "662_bus", "G3_circuit")
OTHERS = (
    *("ex40", "cavity14", "memplus", "bayer10", "cage10", "sherman3"),
    *("sherman5", "cryg2500", "dw8192", "wang4", "helmholtz_2D", "epb0"),
)
#: Symmetric, not definite: a matrix, and what is taken off its diagonal; without one, a Laplacian of so many points.
INDEFINITE: dict[str, tuple[str | tuple[int, ...], float]] = {
    "stokes64": ("stokes64", 0.0),
    "bratu3d": ("bratu3d", 0.0),
    "662_bus - 0.1": ("662_bus", 0.1),
    "5-point - 0.5": ((100, 100), 0.5),
    "5-point - 3.7": ((50, 50), 3.7),
    "7-point - 2": ((24, 24, 24), 2.0),
}
#: Steps after which a solver has failed.
MOST = {"cg": 20_000, "minres": 20_000, "gmres": 6_000, "bicgstab": 5_000}
STEPS = (4, 8)
#: A communication-avoiding solver may take so many times the steps of the classic one.
ALLOWED = 1.1
#: Right-hand sides of the erratic method.
DRAWS = {"bicgstab": 9}
_RTOL = 1e-8
_ROOT = Path(__file__).resolve().parents[1]
_RESULTS = _ROOT / "benchmarks" / "results" / "parity.json"
_PAGE = _ROOT / "docs" / "parity.md"


def methods(name: str) -> tuple[str, ...]:
    """The methods that are for a matrix."""
    return ("cg",) if name in DEFINITE else ("minres",) if name in INDEFINITE else ("gmres", "bicgstab")


def preconditioners(method: str) -> tuple[str, ...]:
    """What each method is given: minres nothing, as the diagonals of its matrices are of both signs, or one number."""
    return ("none",) if method == "minres" else ("none", "jacobi")


def load(name: str) -> Any:
    """The matrix of a name."""
    if name not in INDEFINITE:
        return solving.load(name)
    of, shift = INDEFINITE[name]
    A = solving.load(of) if isinstance(of, str) else _laplacian(of)
    return sparse.csr_array(A - shift * sparse.eye_array(A.shape[0]))


def _laplacian(points: tuple[int, ...]) -> Any:
    """-1 for each neighbour in a grid, twice the directions on the diagonal."""
    A = sparse.csr_array((1, 1))
    for m in points:
        line = sparse.diags_array([-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(m, m))
        A = sparse.kron(A, sparse.eye_array(m)) + sparse.kron(sparse.eye_array(A.shape[0]), line)
    return A


def compare(
    name: str, A: Any, method: str, precond: str, *, threads: int | None = None, most: int | None = None
) -> dict[str, Any]:
    """One entry: ``classic``, ``ca`` by s (missing ones absent), and ``ratio`` of steps where both converged.

    For a method of :data:`DRAWS` also ``draws``: ``classic``, ``again`` (the same, right-hand sides changed in their
    last bits) and ``ca`` by s, the steps for each right-hand side, None where there was no convergence, and ``ratio``
    of the medians to those of ``classic``, by s and for ``again``.
    """
    b = _right(A, 0)
    limit = most or MOST[method]
    M = jacobi(A) if precond == "jacobi" else None
    given: dict[str, Any] = {"rtol": _RTOL, "M": M, "threads": threads}
    classic = solving.run(method, A, b, most=limit, **given)
    assert classic is not None
    ca = {str(s): solving.run(f"ca_{method}", A, b, most=int(1.5 * limit), s=s, **given) for s in STEPS}
    there = {s: found for s, found in ca.items() if found is not None}
    more: dict[str, Any] = {}
    if method in DRAWS and classic["converged"] and there:
        drawn: dict[str, list[int | None]] = {key: [] for key in ("", "again", *there)}
        for seed in range(DRAWS[method]):
            b = _right(A, seed)
            near = b * (1 + np.finfo(float).eps * np.random.default_rng(seed).choice([-1, 1], b.shape))
            drawn["again"].append(_count(solving.run(method, A, near, most=int(1.5 * limit), **given)))
            drawn[""].append(_count(classic if seed == 0 else solving.run(method, A, b, most=limit, **given)))
            for s, first in there.items():
                again = {"most": int(1.5 * limit), "s": int(s), **given}
                drawn[s].append(_count(first if seed == 0 else solving.run(f"ca_{method}", A, b, **again)))
        medians = {key: float(np.median([np.inf if n is None else n for n in counts])) for key, counts in drawn.items()}
        base = medians.pop("")
        more["draws"] = {
            "classic": drawn.pop(""),
            "again": drawn.pop("again"),
            "ca": drawn,
            "ratio": {s: median / base for s, median in medians.items() if np.isfinite(median / base)},
        }
    return {
        **more,
        "matrix": name,
        "rows": A.shape[0],
        "nnz": int(A.nnz),
        "method": method,
        "precond": precond,
        "classic": classic,
        "ca": there,
        "ratio": {
            s: found["iterations"] / max(1, classic["iterations"])
            for s, found in there.items()
            if found["converged"] and classic["converged"]
        },
    }


def _right(A: Any, seed: int) -> Any:
    """A random right-hand side."""
    rng = np.random.default_rng(seed)
    b = rng.standard_normal(A.shape[0])
    return b + 1j * rng.standard_normal(A.shape[0]) if A.dtype.kind == "c" else b


def _count(found: dict[str, Any] | None) -> int | None:
    """The steps of a solve that converged."""
    return int(found["iterations"]) if found is not None and found["converged"] else None


def table(document: dict[str, Any]) -> str:
    """The table of the page: steps, ratios, and what failed."""
    parts = []
    for method in MOST:
        entries = [entry for entry in document["parity"] if entry["method"] == method]
        if not entries:
            continue
        by = sorted({entry["classic"]["by"] for entry in entries})
        head = ["matrix", "M", f"{method} ({', '.join(by)})"]
        head += [text for s in STEPS for text in (f"ca_{method}, s = {s}", "ratio", "steps a pass")]
        drawn = [entry for entry in entries if "draws" in entry]
        head += [*(f"median ratio, s = {s}" for s in STEPS), "median ratio to itself"] * bool(drawn)
        body, kept, failed, compared = [], 0, 0, 0
        for entry in entries:
            line = [entry["matrix"], entry["precond"], _steps(entry["classic"])]
            for s in map(str, STEPS):
                found, ratio = entry["ca"].get(s), entry["ratio"].get(s)
                line += ["" if found is None else _steps(found), "" if ratio is None else f"{ratio:.2f}"]
                line.append("" if found is None or ratio is None else f"{found['iterations'] / found['passes']:.1f}")
                if found is not None and entry["classic"]["converged"]:
                    compared += 1
                    failed += not found["converged"]
                    kept += ratio is not None and ratio <= ALLOWED
            for s in (*map(str, STEPS), "again") if drawn else ():
                median = entry.get("draws", {}).get("ratio", {}).get(s)
                line.append("" if median is None else f"{median:.2f}")
            body.append(line)
        text = [f"### {method}", markdown.rows(head, body, left=2)]
        if compared:
            text.append(
                f"Of {compared} systems and s where `{method}` converges, `ca_{method}` converges in "
                f"{compared - failed}, and takes at most {round(100 * (ALLOWED - 1))}% more steps in {kept}."
            )
        if drawn:
            text.append(_draws(method, [entry["draws"] for entry in drawn]))
        parts.append("\n\n".join(text))
    return "\n\n".join([f"{solving.origin(document, document['parity'])}.", *parts])


def _draws(method: str, drawn: Sequence[dict[str, Any]]) -> str:
    """A line for each s, and one for the classic method beside itself."""
    lines = []
    for key in (*map(str, STEPS), "again"):
        medians = [one["ratio"][key] for one in drawn if key in one["ratio"]]
        single = [
            np.inf if more is None else more / less
            for one in drawn
            for less, more in zip(one["classic"], one["again"] if key == "again" else one["ca"][key], strict=True)
            if less is not None
        ]
        who = f"`{method}` beside itself, b changed by eps" if key == "again" else f"`ca_{method}`, s = {key}"
        mean = record.geometric_mean(medians)
        lines.append(
            f"- {who}: at most {round(100 * (ALLOWED - 1))}% more steps for {sum(r <= ALLOWED for r in single)} of "
            f"{len(single)} right-hand sides, the worst {max(single):.2f} times as many; by medians in "
            f"{sum(r <= ALLOWED for r in medians)} of {len(medians)} systems, {mean:.2f} times as many in their mean"
        )
    return f"{len(drawn[0]['classic'])} right-hand sides for each system:\n\n" + "\n".join(lines)


def _steps(found: dict[str, Any]) -> str:
    count = f"{found['iterations']:,}"
    return count if found["converged"] else f"no ({found['residual']:.0e} after {count})"


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, write the file and the table; the exit code is 0."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.parity", description="Steps of CA and classic solvers.")
    parser.add_argument("--only", action="append", metavar="MATRIX")
    parser.add_argument("--method", action="append", choices=sorted(MOST))
    parser.add_argument("--precond", action="append", choices=("none", "jacobi"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--most", type=int, help="steps at most, of every method")
    parser.add_argument("--table", action="store_true", help="compare nothing")
    parser.add_argument("-o", "--output", type=Path, default=_RESULTS)
    parser.add_argument("--docs", type=Path, default=_PAGE)
    options = parser.parse_args(arguments)
    document = json.loads(options.output.read_text()) if options.output.exists() else {"parity": []}
    origin = record.provenance(options.threads)
    for name in () if options.table else options.only or (*DEFINITE, *INDEFINITE, *OTHERS):
        A = load(name)
        for method in methods(name):
            for precond in options.precond or preconditioners(method):
                if options.method and method not in options.method:
                    continue
                entry = compare(name, A, method, precond, threads=options.threads, most=options.most)
                ca = " ".join(f"s={s}: {_steps(found)}" for s, found in entry["ca"].items())
                print(f"{name} {method} {precond}: {_steps(entry['classic'])} {ca}", file=sys.stderr)
                entry |= {"commit": origin["commit"], "date": origin["date"]}
                kept = [e for e in document["parity"] if _key(e) != _key(entry)]
                document = {**origin, "rtol": _RTOL, "parity": sorted([*kept, entry], key=_order)}
                solving.save(options.output, document)
    if options.docs.exists() and document["parity"]:
        options.docs.write_text(markdown.replace_block(options.docs.read_text(), "parity", table(document)))
    return 0


def _key(entry: dict[str, Any]) -> tuple[str, str, str]:
    return entry["matrix"], entry["method"], entry["precond"]


def _order(entry: dict[str, Any]) -> tuple[int, str, str, bool]:
    names = (*DEFINITE, *INDEFINITE, *OTHERS)
    name = entry["matrix"]
    place = names.index(name) if name in names else len(names)
    return place, name, entry["method"], entry["precond"] == "jacobi"


if __name__ == "__main__":
    sys.exit(main())
