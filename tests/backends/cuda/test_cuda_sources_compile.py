"""Every CUDA source compiles as it is loaded, at the ends of the ranges of its parameters: most slots in registers,
most threads, most start vectors. What is spread over every block, mode and type is in the other tests of this name.
All are compiled in the nightly run, on every push those that :func:`dealt` leaves of a source that has many.
The first of each source is compiled for both architectures, the others for one or the other.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from nvcc import KERNELS, TIDY, Macros, complaints, named, needs_nvcc

from akx.backends.cuda.variants.block_local import layout as parts_layout
from akx.backends.cuda.variants.block_local import program as parts
from akx.formats.block_local import Shape

#: By source; those of solvers and preconditioners are compiled from their own file elsewhere.
_ENDS: dict[str, list[Macros]] = {
    "parts.cu": [
        parts.macros(Shape(3, 3, 1, 8, 1, 9), np.dtype("float64"), 4, mode=parts_layout.SHARED, stream=True),
        parts.macros(Shape(1, 1, 8, 32, 8, 2), np.dtype("float32"), 1, mode=parts_layout.GLOBAL, stream=True, blocks=1),
        parts.macros(
            Shape(1, 1, 1, 16, 8, 5), np.dtype("complex64"), 2, mode=parts_layout.ALONE, stream=False, blocks=2
        ),
        *(
            parts.macros(
                shape, np.dtype(dtype), vectors, mode=mode, stream=stream, blocks=blocks, stored=np.dtype(kind)
            )
            for shape, dtype, kind, vectors, mode, stream, blocks in (
                (Shape(3, 3, 1, 8, 1, 9), "float64", "float32", 4, parts_layout.SHARED, True, 1),
                (Shape(3, 6, 8, 32, 0, 1), "complex128", "complex64", 2, parts_layout.GLOBAL, True, 1),
                (Shape(1, 1, 1, 16, 4, 9), "complex128", "complex64", 1, parts_layout.SHARED, False, 1),
                (Shape(1, 1, 1, 8, 8, 9), "float32", "uint16", 4, parts_layout.SHARED, True, 1),
                (Shape(1, 1, 8, 32, 8, 2), "float64", "uint16", 1, parts_layout.GLOBAL, True, 1),
                (Shape(1, 1, 4, 16, 6, 7), "complex64", "uint16", 2, parts_layout.GLOBAL, False, 2),
                (Shape(1, 1, 2, 8, 0, 1), "complex128", "uint16", 4, parts_layout.SHARED, True, 4),
            )
        ),
    ],
    "diagonals.cu": [
        {"AKX_VALUE": "double", "AKX_HELD_SLICES": slices, "AKX_HELD_SLOTS": slots, "AKX_VECTORS": 1}
        | {"AKX_THREADS": threads, "AKX_STREAM": 1, "AKX_BLOCKS": blocks}
        for slices, slots, threads, blocks in ((6, 4, 640, 1), (0, 0, 1024, 2))
    ],
    "sweep.cu": [
        {"AKX_VALUE": value, "AKX_STORED": stored, "AKX_VECTORS": vectors, "AKX_VARIANT": variant, "AKX_ONCE": once}
        | {"AKX_INDEX": "u16", "AKX_PAD": 8, "AKX_AHEAD": 4, "AKX_LANES": lanes}
        for value, stored, vectors, once in (
            ("cdouble", "cdouble", 8, 1),
            ("cdouble", "cfloat", 2, 2),
            ("double", "u16", 3, 2),
        )
        for variant, lanes in ((1, 32), (2, 1), (3, 1), (4, 8))
    ],
    "hubs.cu": [
        {"AKX_VALUE": value, "AKX_STORED": stored, "AKX_THREADS": 768, "AKX_ONCE": once}
        for value, stored, once in (
            ("double", "double", 2),
            ("double", "float", 1),
            ("float", "u16", 2),
            ("cfloat", "cfloat", 1),
            ("cdouble", "cdouble", 0),
            ("cdouble", "u16", 1),
        )
    ],
    "vbell.cu": [
        {"AKX_VALUE": value, "AKX_STORED": stored, "AKX_VECTORS": vectors, "AKX_ONCE": once, "AKX_THREADS": threads}
        for value, stored, vectors, once, threads in (
            ("double", "double", 1, 2, 128),
            ("double", "float", 3, 0, 512),
            ("float", "u16", 8, 2, 256),
            ("cfloat", "cfloat", 2, 0, 512),
            ("cdouble", "cdouble", 8, 2, 128),
            ("cdouble", "cfloat", 1, 0, 256),
        )
    ],
    "stream.cu": [
        {"AKX_VALUE": "double", "AKX_VECTORS": 8, "AKX_INDEX": "u16", "AKX_LANES": 8, "AKX_FLOW": 512},
        {"AKX_VALUE": "float", "AKX_VECTORS": 1, "AKX_INDEX": "u32", "AKX_LANES": 1, "AKX_FLOW": 768},
    ],
    "wavefront.cu": [
        {"AKX_VALUE": value, "AKX_STORED": stored, "AKX_LANES": lanes, "AKX_LAG": lag, "AKX_PER": per}
        | {"AKX_HELD_SLOTS": held, "AKX_SLICES": slices, "AKX_WARPS": warps, "AKX_HELPERS": helpers, "AKX_ASKS": asks}
        | {"AKX_XS": xs, "AKX_NEAR": near, "AKX_SLACK": slack, "AKX_RUNS": 0, "AKX_OWN": -1}
        for value, stored, lanes, lag, per, held, slices, warps, helpers, asks, xs, near, slack in (
            ("double", "double", 1, 3, 1, 9, 1, 16, 128, 2, 2, 0, 0),
            ("double", "double", 8, 12, 1, 0, 6, 24, 256, 4, 3, 1, 1),
            ("double", "float", 2, 3, 1, 7, 1, 16, 256, 1, 2, 1, 0),
            ("double", "u16", 1, 5, 1, 14, 2, 16, 128, 3, 4, 0, 2),
            ("float", "float", 2, 4, 4, 5, 3, 8, 128, 1, 2, 1, 1),
            ("float", "u16", 8, 3, 2, 0, 4, 12, 256, 1, 1, 1, 0),
            ("cfloat", "cfloat", 4, 3, 2, 14, 2, 8, 128, 1, 1, 0, 0),
            ("cfloat", "u16", 1, 4, 1, 3, 1, 8, 128, 2, 3, 1, 1),
            ("cdouble", "cdouble", 1, 3, 1, 2, 2, 12, 256, 3, 3, 1, 0),
            ("cdouble", "cfloat", 4, 4, 1, 4, 2, 12, 128, 2, 2, 1, 2),
            ("cdouble", "u16", 2, 3, 1, 5, 3, 16, 128, 3, 2, 1, 0),
        )
    ]
    + [
        {"AKX_VALUE": value, "AKX_STORED": stored, "AKX_LANES": 1, "AKX_LAG": lag, "AKX_PER": 1, "AKX_SLICES": 1}
        | {"AKX_HELD_SLOTS": held, "AKX_WARPS": warps, "AKX_HELPERS": 128, "AKX_ASKS": 2, "AKX_XS": 2}
        | {"AKX_NEAR": near, "AKX_SLACK": 1, "AKX_RUNS": runs, "AKX_OWN": own}
        for value, stored, lag, held, warps, near, runs, own in (
            ("double", "double", 4, 5, 16, 4, "0xc63ull", 4),
            ("cfloat", "cfloat", 5, 0, 16, 27, "0x318c6318c63ull", 13),
            ("double", "float", 3, 3, 8, 0, "0x41ull", -1),
        )
    ],
    "stored_values.cu": [
        {"AKX_VALUE": "cdouble", "AKX_GIVEN": "cfloat"},
        {"AKX_VALUE": "double", "AKX_GIVEN": "float", "AKX_HALF": "float"},
    ],
    "canonical.cu": [{}],
    "content.cu": [{}],
    "csr_powers.cu": [
        {"AKX_VALUE": "double", "AKX_INDEX": "u32", "AKX_VECTORS": 1, "AKX_LANES": 2, "AKX_LONG": 0},
        {"AKX_VALUE": "cfloat", "AKX_INDEX": "u64", "AKX_VECTORS": 8, "AKX_LANES": 32, "AKX_LONG": 0},
        {"AKX_VALUE": "cdouble", "AKX_INDEX": "u64", "AKX_VECTORS": 8, "AKX_LANES": 2, "AKX_LONG": 128},
        {"AKX_VALUE": "double", "AKX_INDEX": "u32", "AKX_VECTORS": 1, "AKX_LANES": 8, "AKX_LONG": 512},
    ],
    "digest.cu": [{}],
    "slots.cu": [{}],
    "features.cu": [{}],
    "hubs_layout.cu": [{}],
    "parts_layout.cu": [{}],
    "lengths.cu": [{}],
    "level_order.cu": [{"AKX_THREADS": 512, "AKX_ALONE": 1024}],
    "permuted.cu": [{}],
    "reordered.cu": [{"AKX_VALUE": "cdouble"}, {"AKX_VALUE": "float"}],
    "long_rows.cu": [
        {"AKX_VALUE": value, "AKX_VECTORS": vectors, "AKX_LANES": lanes}
        for value, vectors, lanes in (("cdouble", 8, 2), ("float", 1, 32))
    ],
    "values.cu": [{"AKX_VALUE": "cdouble", "AKX_GIVEN": "double", "AKX_EACH": 4}],
}
_OF_SOLVERS = {
    f"{name}.cu" for name in ("advance", "blocks", "conjugate", "gram_schmidt", "mix", "products", "vectors")
}
_ELSEWHERE = _OF_SOLVERS | {
    "hermitian.cu",
    "rates.cu",
    "scaling.cu",
    "spai.cu",
    "taken.cu",
    "translate.cu",
    "transpose.cu",
}


def test_every_source_is_compiled_somewhere() -> None:
    assert {path.name for path in KERNELS.rglob("*.cu")} == set(_ENDS) | _ELSEWHERE
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_cuda_*.py") if path != Path(__file__))
    assert not [name for name in _ELSEWHERE if name.removesuffix(".cu") not in tests]


def dealt(found: list[Macros]) -> list[Macros]:
    """Half of many, in no period (Thue and Morse), so that each choice of a loop is there."""
    return [one for number, one in enumerate(found) if len(found) < 6 or number.bit_count() % 2 == 0]


@needs_nvcc
def test_the_ends_compile(tmp_path: Path, is_nightly: bool) -> None:
    jobs = [(named(name), one) for name, found in _ENDS.items() for one in (found if is_nightly else dealt(found))]
    assert not (text := complaints(jobs, tmp_path, TIDY, in_turn=not is_nightly)), text


@needs_nvcc
def test_a_warning_is_a_complaint(tmp_path: Path) -> None:
    source = tmp_path / "wrong.cu"
    source.write_text("__global__ void kernel() { int never_read; }\n")
    assert "never_read" in complaints([(source, {"AKX_VALUE": "double"})], tmp_path)
