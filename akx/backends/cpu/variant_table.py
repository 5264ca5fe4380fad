"""The SpMV variants of the CPU, and what they cost a core: what others must know of them, nothing compiled."""

from __future__ import annotations

from akx.backends.traits import FormatCost, VariantTraits

__all__ = ["VARIANTS"]

#: Seconds more for a row of CSR whose end was not foreseen, and for one of sliced ELL in sorted windows, on a core of
#: 2020 (Zen 3).
_UNEVEN, _SORTED = 10e-9, 0.7e-9
#: Seconds more for an entry whose entry of x is not in the nearest cache, one after another and eight at a time.
_APART, _GATHERED = 0.2e-9, 0.37e-9
#: What numbers of 4 and of 16 bytes take beside those of 8: one after another, or eight gathered at a time, most of it
#: is not their bytes. Measured on a processor of 2022 (Zen 4) for rows of 6 to 48 entries; complex numbers of 8 bytes
#: take what real ones do.
_CSR, _SELL, _DIA = {4: 1.0, 8: 1.0, 16: 1.15}, {4: 0.9, 8: 1.0, 16: 1.35}, {4: 0.9, 8: 1.0, 16: 1.6}
_BELL, _INODE = {4: 0.75, 8: 1.0, 16: 1.55}, {4: 1.1, 8: 1.0, 16: 1.2}

#: What four (Zen 4, 2022), eight and sixteen vectors at once (Sapphire Rapids, 2023) cost: real numbers of 8 bytes,
#: 4 to 60 entries a row.
_TOGETHER = {
    4: FormatCost(0.6e-9, 1e-9, uneven=_UNEVEN, scattered=0.3e-9),
    8: FormatCost(0.75e-9, 5e-9, uneven=_UNEVEN, scattered=0.5e-9),
    16: FormatCost(1.1e-9, 9e-9, uneven=_UNEVEN, scattered=1e-9),
}

#: By name, in the order in which ties are decided. Costs are those of a core of a server, as calibrated on one of 2022
#: (Zen 4): the guess for all others.
VARIANTS = {
    "csr": VariantTraits(
        "compressed sparse rows",
        narrow="csr16",
        cost=FormatCost(0.36e-9, 0.9e-9, uneven=_UNEVEN, scattered=_APART),
        sizes=_CSR,
        together=_TOGETHER,
    ),
    "csr-ahead": VariantTraits(
        "compressed sparse rows, entries of x asked for ahead of use, for columns far apart", asks_ahead=True
    ),
    "csr16": VariantTraits(
        "compressed sparse rows, 16-bit column indices relative to a base per 64 rows",
        cost=FormatCost(0.36e-9, 0.8e-9, uneven=_UNEVEN, scattered=_APART),
        sizes=_CSR,
    ),
    "sell": VariantTraits(
        "sliced ELL with a sorting window",
        narrow="sell16",
        sorts=True,
        cost=FormatCost(0.30e-9, 0.7e-9, sorted=_SORTED, scattered=_GATHERED),
        sizes=_SELL,
    ),
    "sell16": VariantTraits(
        "sliced ELL with a sorting window, 16-bit column indices relative to a base per chunk",
        sorts=True,
        cost=FormatCost(0.29e-9, 0.5e-9, sorted=_SORTED, scattered=_GATHERED),
        sizes=_SELL,
    ),
    "dia": VariantTraits(
        "sliced diagonals, no column indices", has_columns=False, cost=FormatCost(0.19e-9, 0.1e-9), sizes=_DIA
    ),
    "bell": VariantTraits(
        "block sliced ELL, one index per dense block",
        narrow="bell16",
        cost=FormatCost(0.12e-9, 0.6e-9),
        sizes=_BELL,
    ),
    "bell16": VariantTraits(
        "block sliced ELL, one 16-bit index per dense block", cost=FormatCost(0.12e-9, 0.6e-9), sizes=_BELL
    ),
    "inode": VariantTraits(
        "rows of a node share one list of columns, nodes of 1 to 8 rows",
        narrow="inode16",
        cost=FormatCost(0.085e-9, 1.4e-9),
        sizes=_INODE,
    ),
    "inode16": VariantTraits(
        "the same, 16-bit column indices relative to a base per 64 rows",
        cost=FormatCost(0.085e-9, 1.4e-9),
        sizes=_INODE,
    ),
}
