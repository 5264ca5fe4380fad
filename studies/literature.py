"""Published tables of padding, blocks and FPGA packets beside what akx counts, as docs/literature.md.

    python -m studies.literature            write the page from studies/results/literature.json
    python -m studies.literature --check    exit code 1 where the page is not what the results say
    python -m studies.literature --count    first count again: packets and layouts of all matrices (a minute)

Counts are the same on every machine. The tables of matrix powers are on docs/thesis.md (:mod:`benchmarks.thesis`).
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from akx.core.matrix import Matrix
from akx.report.matrix.format_storage import format_storages
from akx.report.matrix.fpga_packets import LEAST_SET, SLOTS, schedule_rows
from benchmarks import markdown, planned, products
from benchmarks.matrices import available
from studies import padded, pcg_steps

__all__ = [
    "READINGS",
    "TABLE_II",
    "count_matrix",
    "main",
    "most_packets",
    "most_utilised",
    "packets_between",
    "page",
    "readings",
]

RESULTS = Path(__file__).resolve().parent / "results" / "literature.json"
PAGE = Path(__file__).resolve().parents[1] / "docs" / "literature.md"
CLOCK = 170e6
#: Zhang et al., table II: matrix, rows, entries, utilisation and Gflop/s of five slots, and of so many times as many.
TABLE_II = (
    ("TSOPF_RS_b162_c3", 15374, 610299, 0.941, 1.60, 6, 0.940, 9.59),
    ("E40r1000", 17281, 553562, 0.970, 1.65, 6, 0.968, 9.87),
    ("olafu", 16146, 1015156, 0.984, 1.67, 6, 0.983, 10.03),
    ("garon2", 13535, 373235, 0.965, 1.64, 5, 0.963, 8.18),
    ("lhr11c", 10964, 233741, 0.875, 1.49, 4, 0.873, 5.94),
    ("mark3jac020sc", 9129, 52883, 0.646, 1.10, 3, 0.643, 3.28),
    ("dw8192", 8192, 41746, 0.637, 1.08, 3, 0.635, 3.24),
    ("psse1", 14318, 57376, 0.498, 0.85, 3, 0.497, 2.54),
    ("ncvxqp1", 12111, 73963, 0.663, 1.13, 3, 0.662, 3.38),
)
#: Thesis, table 3.1: matrix, entries, entries a row as printed, filling ratios for n = 2, 4, 8; and ours for it.
TABLE_3_1 = (
    ("consph", 6010480, "72.1", 98.8, 96.4, 92.2, ""),
    ("cant", 4007383, "64.1", 99.2, 98.0, 93.3, "brick"),
    ("shipsec1", 7813404, "55.4", 98.0, 97.3, 96.1, ""),
    ("mac-econ", 1273389, "21.24", 93.8, 80.0, 44.0, ""),
    ("s3dkt3m2", 3843910, "6.1", 97.8, 97.7, 68.69, "shell"),
)
#: Rennich: side of a block, bytes an entry, Gflop/s at 144 GB/s.
BLOCKS = ((1, 20.0, 14.4), (2, 13.0, 22.2), (3, 11.1, 25.9), (6, 9.4, 30.5))
_BLOCK_BANDWIDTH = 144e9
#: Rennich, measured: what, Gflop/s, and ours for it; what he allows products without blocks; a translation and new
#: values in products.
MEASURED_BLOCKS = (("3 x 3 blocks", 25.0, "brick"), ("6 x 6 blocks", 27.0, "shell"), ("ship model", 23.8, "wind"))
UNBLOCKED_BOUND = 14.4
TRANSLATION, NEW_VALUES = 200, 40
#: The ways that the text on packets can be read, by name; the first is akx's.
READINGS = (
    "the termination is one of at least eight",
    "a termination takes no packet",
    "at least eight, and then the termination",
    "the first, row i in slot i mod slots",
    "the first, and eight packets of padding at the end",
    "the second, and eight packets of padding at the end",
)
_SHOWN = (
    "pcsr-2",
    "pcsr-4",
    "pcsr-8",
    "pcsr-16",
    "ell",
    "sell-32",
    "sell-32-1024",
    "hyb",
    "dia",
    "blocks-2",
    "blocks-3",
)

Json = dict[str, Any]


def readings(lengths: NDArray[Any], slots: int) -> dict[str, int]:
    """Packets of a matrix with rows of these lengths, by each of `READINGS`.

    A row that takes L packets is scheduled as one of L - 1 entries with its termination.
    """
    lengths = lengths.astype(np.int64)

    def packets(taken: NDArray[np.int64]) -> int:
        return schedule_rows(np.concatenate([[0], np.cumsum(taken - 1)]), slots=slots, least=1).packets

    among = np.maximum(lengths + 1, LEAST_SET)
    free = packets(np.maximum(lengths, LEAST_SET))
    dealt = max(int(among[slot::slots].sum()) for slot in range(slots))
    first = packets(among)
    found = (first, free, packets(np.maximum(lengths, LEAST_SET) + 1), dealt, first + LEAST_SET, free + LEAST_SET)
    return dict(zip(READINGS, found, strict=True))


def most_packets(lengths: NDArray[Any], slots: int) -> int:
    """What no schedule exceeds that leaves no slot idle while there are rows, in whatever order it takes them.

    The slot that ends last began its last row when no other was idle: work / slots + (1 - 1 / slots) x longest row
    (R. L. Graham, Bounds for certain multiprocessing anomalies, 1966). By the first of `READINGS`.
    """
    taken = np.maximum(lengths.astype(np.int64) + 1, LEAST_SET)
    return int(taken.sum() + (slots - 1) * taken.max()) // slots


def packets_between(entries: int, slots: int, utilisation: float) -> tuple[int, int]:
    """The fewest and the most packets for which a utilisation is printed so, with three digits."""
    return (
        math.floor(entries / (slots * (utilisation + 0.0005))) + 1,
        math.floor(entries / (slots * (utilisation - 0.0005))),
    )


def most_utilised(rows: int, entries: int) -> tuple[float, float, float]:
    """What no matrix of that size exceeds by the first three of `READINGS`."""
    return (
        entries / max(LEAST_SET * rows, entries + rows),
        entries / max(LEAST_SET * rows, entries),
        entries / max((LEAST_SET + 1) * rows, entries + rows),
    )


def count_matrix(name: str, group: str, matrix: Matrix) -> Json:
    """Packets for 5 and 15 slots, and fill ratios with bytes an entry, of one matrix."""
    made = {slots: schedule_rows(matrix.indptr, slots=slots) for slots in (SLOTS, 3 * SLOTS)}
    layouts = format_storages(matrix.indptr, matrix.indices, matrix.dtype.itemsize)
    found: Json = {
        "matrix": name, "group": group, "rows": matrix.n, "nnz": matrix.nnz,
        "packets": {str(slots): one.packets for slots, one in made.items()},
        "fill": {one.name: round(one.fill, 6) for one in layouts},
        "bytes_per_entry": {one.name: round(one.bytes_per_entry, 4) for one in layouts},
        "far_bytes_per_entry": {one.name: round(one.far_moved / one.entries, 4) for one in layouts},
    }  # fmt: skip
    if name == "dw8192":
        lengths = np.diff(matrix.indptr)
        found["readings"] = {str(slots): readings(lengths, slots) for slots in made}
        found["most_packets"] = {str(slots): most_packets(lengths, slots) for slots in made}
    return found


def _count() -> list[Json]:
    found = []
    for case in available():
        try:
            matrix = Matrix.from_any(case.load())
        except ValueError as refusal:
            print(f"{case.name}: {refusal}", file=sys.stderr, flush=True)
            continue
        found.append(count_matrix(case.name, case.group, matrix))
        print(f"{case.name}: done", file=sys.stderr, flush=True)
    return found


def page(found: list[Json]) -> str:
    """The whole page."""
    parts = [
        "# Published tables, beside what akx counts",
        "Padding, blocks and FPGA packets of the works that akx grew from. Written by "
        "`python -m studies.literature` from `studies/results/literature.json`; no figure of akx's is typed by "
        "hand. `akx info FILE` says the same of any matrix. The tables of matrix powers are on [thesis.md](thesis.md).",
        "## FPGA packets: Zhang et al., table II",
        *_packets(found),
        "## Layouts",
        *_padded(found),
        *_layouts(found),
        "## Blocks: Rennich",
        *_blocks(found),
        *_measured_blocks(),
        "## Preconditioned conjugate gradients: the thesis' figure 4.5",
        *_gradients(),
    ]
    return "\n\n".join(_wrapped(part) for part in parts) + "\n"


def _wrapped(part: str) -> str:
    """A paragraph in lines of 120 characters; tables and headings as they are."""
    if part.startswith(("|", "#")):
        return part
    return textwrap.fill(part, 120, break_on_hyphens=False, break_long_words=False)


def _packets(found: list[Json]) -> list[str]:
    ours = {one["matrix"]: one for one in found}
    rows = []
    for name, n, entries, used, gflops, times, scaled, scaled_gflops in TABLE_II:
        mine = ours.get(name)
        cells = ["", "", "", ""]
        if mine is not None:
            five, more = (entries / (s * mine["packets"][str(s)]) for s in (SLOTS, times * SLOTS))
            rates = (2 * five * SLOTS * CLOCK / 1e9, 2 * more * times * SLOTS * CLOCK / 1e9)
            cells = [f"{five:.3f}", f"{rates[0]:.2f}", f"{more:.3f}", f"{rates[1]:.2f}"]
        most = most_utilised(n, entries)
        published = [f"{used:.3f}", f"{gflops:.2f}", f"x{times}", f"{scaled:.3f}", f"{scaled_gflops:.2f}"]
        rows.append([name, *published, *cells, *(f"{value:.3f}" for value in most)])
    head = [
        "matrix", "published", "Gflop/s", "scaled", "published", "Gflop/s",
        "akx", "Gflop/s", "akx, scaled", "Gflop/s", "at most (1)", "(2)", "(3)",
    ]  # fmt: skip
    dw8192 = ours["dw8192"]
    published = next(line for line in TABLE_II if line[0] == "dw8192")
    entries, tables = published[2], []
    between = [packets_between(entries, s, u) for s, u in ((SLOTS, published[3]), (3 * SLOTS, published[6]))]
    for number, reading in enumerate(READINGS, 1):
        cells = []
        for slots, bounds in zip((SLOTS, 3 * SLOTS), between, strict=True):
            packets = dw8192["readings"][str(slots)][reading]
            within = "yes" if bounds[0] <= packets <= bounds[1] else "no"
            cells += [f"{packets:,}", f"{entries / (slots * packets):.4f}", within]
        tables.append([str(number), reading, *cells])
    heads = ["", "reading", "packets of 5", "used", "as published", "packets of 15", "used", "as published"]
    rest = [
        [
            one["matrix"],
            f"{one['rows']:,}",
            f"{one['nnz']:,}",
            *(f"{one['nnz'] / (s * one['packets'][str(s)]):.3f}" for s in (SLOTS, 3 * SLOTS)),
        ]
        for one in found
    ]
    low, high = (f"{a:,} to {b:,}" for a, b in between)
    return [
        "Rows go through the slots of 400-bit packets (`akx.report.matrix.fpga_packets`): five slots, rows handed out "
        "as slots become free, each with a termination and eight packets at least, at 170 MHz. Of the nine matrices "
        "dw8192 is at hand; akx's figures are from running its scheduler. The last columns are what no matrix of that "
        "size can exceed by the first three readings below; they need no more than rows and entries.",
        markdown.rows(head, rows),
        "How the text is read, with dw8192. Published are 0.637, which is "
        f"{low} packets of 5, and 0.635, which is {high} packets of 15.",
        markdown.rows(heads, tables, left=(0, 1, 4, 7)),
        "The paper does not say whether the termination is one of the eight. That it is follows from the table: beside "
        "eight (3), dw8192, mark3jac020sc and psse1 could not be used as well as published; for nothing (2), olafu, "
        "E40r1000 and garon2, whose rows are long, would be used better, while by (1) their published figures are "
        "entries / (entries + rows) to all three digits: a termination for each row, and hardly any padding. So akx "
        "takes (1). With five slots it gets the published utilisation of dw8192 to three digits; with 15 it is one "
        f"unit of the last digit above it, {between[1][0] - dw8192['packets']['15']} packets short of the published "
        "range. No schedule that leaves no slot idle while there are rows can get there, whatever the order of the "
        f"rows: it takes {dw8192['most_packets']['15']:,} packets of 15 at most, with the longest row at the end "
        "(Graham 1966). None of these readings gives both figures; what else the larger packets held, the text does "
        "not tell, and nothing is fitted here. Gflop/s are as published for both.",
        "What the same scheduler does with the other matrices:",
        markdown.rows(["matrix", "rows", "entries", "5 slots", "15 slots"], rest),
    ]


def _padded(found: list[Json]) -> list[str]:
    measured = json.loads(padded.RESULTS.read_text())
    ours = {one["matrix"]: one for one in found}
    rows = []
    for name, entries, mean, two, four, eight, mine in TABLE_3_1:
        cells = [""] * 6
        if mine:
            one = ours[mine]
            cells = [
                mine,
                f"{one['nnz'] / one['rows']:.1f}",
                *(f"{100 * one['fill'][f'pcsr-{m}']:.1f}" for m in (2, 4, 8, 16)),
            ]
        rows.append([name, f"{entries:,}", mean, f"{two:g}", f"{four:g}", f"{eight:g}", *cells])
    head = [
        "thesis", "entries", "a row", "n = 2", "n = 4", "n = 8",
        "akx", "a row", "n = 2", "n = 4", "n = 8", "n = 16",
    ]  # fmt: skip
    return [
        "### Padded CSR: the thesis' table 3.1",
        "Filling ratios in per cent: entries over values stored, rows padded to multiples of n (M. Mehri Dehnavi, "
        "McGill 2012, ch. 3).",
        markdown.rows(head, rows, left=(0, 6)),
        "The thesis' matrices are files of a collection and are not at hand: `brick`, with three unknowns a node, "
        "stands for cant, and `shell`, with six, for s3dkt3m2. Their rows are multiples of three and of six long, so "
        "whether n = 4 or n = 8 costs more is a matter of these lengths: `brick` agrees with cant for n = 2 and n = 8, "
        "`shell` with s3dkt3m2 for neither. The 6.1 entries a row of s3dkt3m2 are as the thesis prints them.",
        "Figures 3.6 and 3.7 are at hand as text alone: n = 4 is up to 60 % faster than no padding on a GT8800, larger "
        "n are slower, and fetching four partitions ahead gains 16 %. By bytes alone padding never gains: what it buys "
        "is that n values next to each other are of one row and can be summed together.",
        f"On an {measured['recorded_on']} the same layout, one product of {_powers(measured)} in a graph "
        "(`python -m studies.padded` over recordings of all plans; columns n = 2 to 8: so many times as fast as "
        "n = 1, with two partitions on their way; ahead: as one partition, n = 4):",
        padded.table(measured),
        "So padding still pays, and no longer stops at n = 4, though values that are padded move as well. Fetching "
        "ahead gains about as much as then where the matrix is beyond L2 (brick, shell, tetrahedra), and loses where "
        "it is in L2 and small: a block that takes several partitions leaves multiprocessors without one.",
    ]


def _powers(measured: Json) -> str:
    return " or ".join(str(k) for k in sorted({one["k"] for one in measured["matrices"]}))


def _layouts(found: list[Json]) -> list[str]:
    rows = []
    for one in found:
        fill = one["fill"]
        rows.append([one["matrix"], *(f"{100 * fill[name]:.1f}" for name in _SHOWN)])
    best = []
    for one in found:
        least = min(one["bytes_per_entry"], key=lambda name, of=one["bytes_per_entry"]: of[name])
        best.append(
            [one["matrix"], f"{one['bytes_per_entry']['csr']:.2f}", least, f"{one['bytes_per_entry'][least]:.2f}"]
        )
    return [
        "### All layouts, all matrices",
        "Entries over values stored, in per cent (`akx.report.matrix.format_storage` says how each is laid out).",
        markdown.rows(["matrix", *_SHOWN], rows),
        "Bytes an entry, values of 8 bytes (16 where they are complex), indices of 4, pointers included: CSR, and the "
        "layout that takes least.",
        markdown.rows(["matrix", "csr", "least", "bytes"], best, left=(0, 2)),
    ]


def _blocks(found: list[Json]) -> list[str]:
    ours = {one["matrix"]: one for one in found}
    rows = []
    for side, nbytes, gflops in BLOCKS:
        name = "csr" if side == 1 else f"blocks-{side}"
        cells = []
        for matrix in ("brick", "shell"):
            taken = ours[matrix]["far_bytes_per_entry"][name]
            cells += [
                f"{100 * ours[matrix]['fill'][name]:.1f}",
                f"{taken:.2f}",
                f"{2 * _BLOCK_BANDWIDTH / taken / 1e9:.1f}",
            ]
        rows.append([f"{side} x {side}", f"{nbytes:g}", f"{gflops:g}", *cells])
    head = ["block", "published", "Gflop/s", "brick: full", "bytes", "Gflop/s", "shell: full", "bytes", "Gflop/s"]
    return [
        "Bytes an entry and the Gflop/s that 144 GB/s allow (S. Rennich, Block SpMV on GPU, NVIDIA): 8 for the value, "
        "4 / b^2 for the index of a b x b block, 8 / b for x, which is loaded anew for every block.",
        markdown.rows(head, rows),
        "Published figures are of full blocks, and without pointers. `brick` has three unknowns a node and `shell` "
        "six: at these sizes the blocks are full, and at others, which cut through nodes, they are not; a pointer for "
        "every row of blocks is counted here.",
    ]


def _measured_blocks() -> list[str]:
    """Products in blocks: what Rennich measured, and what akx does."""
    measured = json.loads(products.RESULTS.read_text())
    ours = {}
    for entry in measured["products"]:
        blocks = min(one["seconds"] for label, one in entry["times"].items() if label.startswith("vbell"))
        csr = min(
            one["seconds"]
            for label, one in entry["times"].items()
            if label.startswith("cusparse") and "bsr" not in label
        )
        costs = (entry["translate_products"], entry["update_products"])
        ours[entry["matrix"]] = (2 * entry["nnz"] / blocks / 1e9, csr / blocks, *costs)

    def of_each(key: str, scale: float, digits: int) -> str:
        found = {entry["matrix"]: scale * entry[key] for entry in measured["products"]}
        return ", ".join(f"{found[name]:.{digits}f} ({name})" for *_, name in MEASURED_BLOCKS)

    rows = []
    for what, gflops, name in MEASURED_BLOCKS:
        rate, gain, made, updated = ours[name]
        published = [what, f"{gflops:g}", f"{gflops / UNBLOCKED_BOUND:.2f}"]
        rows.append([*published, name, f"{rate:.0f}", f"{gain:.2f}", f"{made:,.0f}", f"{updated:.1f}"])
    head = ["Rennich", "Gflop/s", "over the bound of CSR", "akx", "Gflop/s", "over cuSPARSE CSR"]
    head += ["translated in, products", "new values in, products"]
    origin = planned.measured_on(measured, "products")
    return [
        "### Products in blocks, measured",
        "Rennich measured on a Tesla C2070 without ECC (144 GB/s), and sets that beside the "
        f"{UNBLOCKED_BOUND:g} Gflop/s that this bandwidth allows products in CSR whose x is loaded anew for every "
        f"entry. {origin[0].upper()}{origin[1:]} (`python -m benchmarks.products`): the best plain product of akx in "
        "blocks of natural nodes, eight in a row in a graph, and cuSPARSE's CSR beside it in the same rounds.",
        markdown.rows(head, rows, left=(0, 3)),
        "`brick` stands for his matrices of 3 x 3 blocks, `shell` for those of 6 x 6, and `wind`, with one to six "
        "unknowns a node, for the ship section and the wind tunnel: his are files of a collection or of customers. "
        "`brick` is in the L2 cache of an H100, so that its rate is beyond what memory allows. His translation takes "
        f"some {TRANSLATION} products on the GPU, and {NEW_VALUES} where the structure is there already. akx's is made "
        "there too: the table says how many products pass from a CSR pattern in GPU memory until its blocks are there, "
        f"seen by the host; with values placed it is {of_each('translate_and_place_products', 1, 0)}. From a matrix in "
        f"the host's memory, which is first sent, a program is ready in {of_each('prepare_seconds', 1e3, 1)} ms, or "
        f"{of_each('prepare_products', 1, 0)} products: what the GPU does of that is the table's. New values that "
        "are in GPU memory, where a solver's are, go to their places there, timed on the device, one update right "
        "behind the other; a host that queues one and waits for it sees "
        f"{of_each('update_and_wait_seconds', 1e6, 0)} us.",
        "Two things are done in another way. He has a kernel for each column extent, pads x for each so that an index "
        "needs no table, and adds up what the kernels find; here a warp does one extent after another, the index of a "
        "block is its first column, so that there is nothing to pad, and nothing to add up. His sections have 64 rows; "
        "a slice here has as many whole nodes of one size as a warp has lanes for, 30 rows of nodes of six, so that no "
        "node's rows are of two warps. On a processor, whose lanes are not to run in step, `inode` has one list of "
        "columns for all rows of a node: nodes of any numbers of unknowns, in any order of the rows, without padding.",
        "On a processor the same matrices are beside MKL in [kernels.md](kernels.md#blocks-beside-mkl).",
        "His hybrid computing, a portion of a large matrix for the GPU and the rest for the processor, is `share` of "
        "`stream` ([cuda.md](cuda.md#the-schedule-stream)).",
    ]


def _gradients() -> list[str]:
    document = json.loads(pcg_steps.RESULTS.read_text())
    rates = pcg_steps.rates(document)
    queued = [one["akx cg"] / one["best product"] for one in rates.values()]
    scaled = [one["scaled"] / one["akx cg"] for one in rates.values()]
    several = [one["akx ca_cg"] / one["akx cg"] for one in rates.values()]
    return [
        "On a GT8800 (M. Mehri Dehnavi, section 4.5; the figure is at hand as its text alone): the conjugate gradients "
        "of Chronopoulos and Gear are faster than Shewchuk's for all matrices, padded CSR in partitions gains up to "
        "60 % over a row for each warp, texture memory 50 %, one kernel for all updates 6 %, and the two other fusions "
        "6 % together. The same one after another on an H100, with a Jacobi preconditioner, in Gflop/s of 2 nnz + 14 n "
        "flops a step (`python -m studies.pcg_steps`, whose head says what each stage is):",
        *pcg_steps.table(document).split("\n\n"),
        "The order of the gains is another today. A step of the small ones takes as long as its launches and the "
        "inner products that the host waits for, whatever the kernels do, so that products hardly matter there. On "
        "7-point and G3_circuit the row for each warp, of which most lanes have nothing to do in rows of seven and "
        "five entries, and the separate updates cost about as much. What gains most is in none of the thesis' steps: "
        "to leave the inner products on the device and to queue steps ahead, as `akx.solvers.cg` does with "
        f"`M=jacobi(A)` too: {min(queued):.1f} to {max(queued):.1f} times the stage before. The same steps on a matrix "
        f"that was scaled beforehand are {min(scaled):.2f} to {max(scaled):.2f} times as fast as these, and `ca_cg`, "
        f"which reads the matrix once for several steps, {min(several):.2f} to {max(several):.2f} times.",
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Parse the command line, do it, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m studies.literature", description="Write docs/literature.md.")
    parser.add_argument("--count", action="store_true", help="count packets and layouts first")
    parser.add_argument(
        "--check", action="store_true", help="change nothing; exit code 1 where the page is out of date"
    )
    options = parser.parse_args(arguments)
    if options.count:
        lines = ",\n".join(json.dumps(one) for one in _count())
        RESULTS.write_text(f"[\n{lines}\n]\n")
    return markdown.keep(PAGE, page(json.loads(RESULTS.read_text())), check=options.check)


if __name__ == "__main__":
    sys.exit(main())
