"""Reading files: right whatever the format, and one typed line whatever is wrong."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from akx.core.errors import AkxError, ArgumentError, ArgumentTypeError, FileFormatError, FileMissingError
from akx.core.io import list_variables, read_matrix, read_vector, write_matrix, write_vector
from akx.core.matrix import Matrix

fast = settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])

#: file: rows, columns, entries (of the whole matrix), dtype
MANIFEST = {
    "bodyy5.mtx.gz": (18589, 18589, 128853, "float64"),
    "bcsstk16.mtx.gz": (4884, 4884, 290378, "float64"),
    "bcsstk18.mtx.gz": (11948, 11948, 149090, "float64"),
    "bcsstk25.mtx.gz": (15439, 15439, 252241, "float64"),
    "nasa4704.mtx.gz": (4704, 4704, 104756, "float64"),
    "ex40.mtx.gz": (7740, 7740, 456188, "float64"),
    "cavity14.mtx.gz": (2597, 2597, 76367, "float64"),
    "memplus.mtx.gz": (17758, 17758, 126150, "float64"),
    "bayer10.mtx.gz": (13436, 13436, 94926, "float64"),
    "cage10.mtx.gz": (11397, 11397, 150645, "float64"),
    "stokes64.mtx.gz": (12546, 12546, 140034, "float64"),
    "bratu3d.mtx.gz": (27792, 27792, 173796, "float64"),
    "tuma1.mtx.gz": (22967, 22967, 87760, "float64"),
    "rail_20209.mtx.gz": (20209, 20209, 139233, "float64"),
    "ct2010.mtx.gz": (67578, 67578, 336352, "float64"),
    "PGPgiantcompo.mtx.gz": (10680, 10680, 48632, "float64"),
    "sherman3.mtx.gz": (5005, 5005, 20033, "float64"),
    "sherman5.mtx.gz": (3312, 3312, 20793, "float64"),
    "cryg2500.mtx.gz": (2500, 2500, 12349, "float64"),
    "helmholtz_2D.mtx.gz": (2880, 2880, 52016, "complex128"),
    "dw8192.mtx.gz": (8192, 8192, 41746, "float64"),
    "wang4.mtx.gz": (26068, 26068, 177196, "float64"),
    # Of these the manifest gives no figures; they are what the files' own headers say, symmetric ones expanded.
    "bcsstk01.rsa": (48, 48, 2 * 224 - 48, "float64"),
    "sherman4.rua": (1104, 1104, 3786, "float64"),
    "pde900.rua": (900, 900, 4380, "float64"),
    "airfoil.mat": (260, 260, 1682, "float64"),
    "dwg961b.tar.gz": (961, 961, 10591, "complex128"),
    "epb0.tar.gz": (1794, 1794, 7764, "float64"),
    "well1033.mtx.gz": (1033, 320, 4732, "float64"),
    "662_bus.mtx.gz": (662, 662, 2474, "float64"),
    "complex.mtx": (3, 3, 9, "complex128"),
    "skew_fp64.mtx": (6, 6, 20, "float64"),
    "matrix_bool.mtx": (7, 7, 12, "int64"),
    "matrix_int32.mtx": (7, 7, 12, "int64"),
    "matrix_fp32.mtx": (7, 7, 12, "float64"),  # says integer, holds Inf
    "structure.mtx": (7, 7, 12, "float64"),
    "full.mtx": (3, 3, 9, "float64"),
    "empty.mtx": (3, 4, 0, "float64"),
    "west0067.mtx": (67, 67, 294, "float64"),
    "west0067_jumbled.mtx": (67, 67, 294, "float64"),
}

#: SciPy takes no comments among the entries, and no Inf in an integer file.
SCIPY_READS = [n for n in MANIFEST if ".mtx" in n and n not in ("west0067_jumbled.mtx", "matrix_fp32.mtx")]

BAD = {
    "mangled1.mtx": ("line 1", "object", "mangled"),
    "mangled2.mtx": ("line 1", "format", "coordinate or array"),
    "mangled3.mtx": ("line 1", "field", "real"),
    "mangled4.mtx": ("line 1", "symmetry", "general"),
    "mangled5.mtx": ("line 1", "hermitian needs complex", "symmetric"),
    "mangled6.mtx": ("line 1", "hermitian needs complex", "symmetric"),
    "mangled7.mtx": ("line 5", "row column value", '"1 1"'),
    "mangled8.mtx": ("line 4", "size line", "rows columns entries"),
    "mangled_format.mtx": ("line 1", "pattern", "coordinate pattern"),
    "west0067_noheader.mtx": ("line 1", "banner", "%%MatrixMarket matrix coordinate real general"),
}


#: Every field with every symmetry that the format has for it.
COMBINATIONS = [(f, s) for f in ("real", "integer", "complex") for s in ("general", "symmetric", "skew-symmetric")]
COMBINATIONS += [("pattern", "general"), ("pattern", "symmetric"), ("complex", "hermitian")]


def market(text: str, head: str = "coordinate real general") -> str:
    return f"%%MatrixMarket matrix {head}\n{text}"


@pytest.fixture
def put(tmp_path: Path) -> Callable[..., Path]:
    def write(content: str | bytes, name: str = "a.mtx") -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def sample(n: int = 6, dtype: str = "float64", seed: int = 0) -> sp.csr_array:
    rng = np.random.default_rng(seed)
    A = sp.random_array((n, n), density=0.4, rng=rng).tocsr()
    return A.astype(dtype) * (1 + 1j) if dtype.startswith("complex") else A.astype(dtype)


class TestRealFiles:
    @pytest.mark.parametrize("name", MANIFEST)
    def test_reads_as_the_manifest_and_as_scipy_says(self, shared_matrices: Path, name: str) -> None:
        found = read_matrix(shared_matrices / name)
        assert isinstance(found, sp.csr_array)
        assert (*found.shape, found.nnz, found.dtype.name) == MANIFEST[name]
        if name in SCIPY_READS:
            expected = sp.csr_array(scipy.io.mmread(shared_matrices / name))
            assert np.array_equal(expected.indptr, found.indptr)
            assert np.array_equal(expected.indices, found.indices)
            assert np.array_equal(expected.data, found.data)

    def test_unsorted_file_is_the_same_matrix(self, shared_matrices: Path) -> None:
        tidy, jumbled = (read_matrix(shared_matrices / f"west0067{end}.mtx") for end in ("", "_jumbled"))
        assert abs(tidy - jumbled).max() == 0
        assert Matrix.from_any(tidy).fingerprint == Matrix.from_any(jumbled).fingerprint

    @pytest.mark.parametrize("name", ["sherman4.rua", "pde900.rua"])
    def test_harwell_boeing_right_hand_sides_are_skipped(self, shared_matrices: Path, name: str) -> None:
        A = read_matrix(shared_matrices / name)
        # sherman4 and pde900 are positive on the diagonal, with at most 7 and 5 entries a row
        assert A.diagonal().all()
        assert np.diff(A.indptr).max() == {"sherman4.rua": 7, "pde900.rua": 5}[name]

    def test_harwell_boeing_symmetric_is_expanded(self, shared_matrices: Path) -> None:
        A = read_matrix(shared_matrices / "bcsstk01.rsa")
        assert abs(A - A.T).max() == 0
        assert np.linalg.eigvalsh(A.toarray()).min() > 0  # a stiffness matrix
        assert A[0, 0] == pytest.approx(0.2832268518519e07)

    def test_matlab_variable(self, shared_matrices: Path) -> None:
        path = shared_matrices / "airfoil.mat"
        assert list_variables(path) == {"A": (260, 260)}
        assert read_matrix(path, variable="A").nnz == 1682
        assert read_matrix(path, variable="B").shape == (260, 1)  # dense, but asked for by name
        with pytest.raises(ArgumentError, match=r"no variable 'C'.*A"):
            read_matrix(path, variable="C")

    def test_lower_triangle_as_stored(self, shared_matrices: Path) -> None:
        L = read_matrix(shared_matrices / "G3_circuit_lower.npz")
        assert L.shape == (1585478, 1585478)
        assert 2 * L.nnz - L.shape[0] == 7660826

    @pytest.mark.parametrize("name", BAD)
    def test_bad_file(self, shared_matrices: Path, name: str) -> None:
        with pytest.raises(FileFormatError) as caught:
            read_matrix(shared_matrices / "bad" / name)
        message = str(caught.value)
        assert "\n" not in message
        for word in (name, *BAD[name]):
            assert word in message

    def test_skew_integers_are_a_valid_matrix(self, shared_matrices: Path) -> None:
        # "mangled" only by GraphBLAS's comment that the type is unsigned; as Matrix Market it is well formed
        A = read_matrix(shared_matrices / "bad" / "mangled_skew.mtx").toarray()
        np.testing.assert_array_equal(A, -A.T)
        assert A[3, 0] == 12

    @pytest.mark.parametrize("keep", [10, 100, 5000, -9, -1])
    def test_truncated_gz(self, shared_matrices: Path, put: Callable[..., Path], keep: int) -> None:
        raw = (shared_matrices / "662_bus.mtx.gz").read_bytes()
        with pytest.raises(FileFormatError, match=r"a\.mtx\.gz is truncated or damaged.*download it again"):
            read_matrix(put(raw[:keep], "a.mtx.gz"))


class TestMatrixMarket:
    @fast
    @given(data=st.data(), kind=st.sampled_from(COMBINATIONS), ending=st.sampled_from(["\n", "\r\n"]))
    def test_coordinates_against_a_dense_sum(
        self, put: Callable[..., Path], data: Any, kind: tuple[str, str], ending: str
    ) -> None:
        field, symmetry = kind
        n = data.draw(st.integers(1, 6))
        expected = np.zeros((n, n), dtype=complex)
        lines = []
        for _ in range(data.draw(st.integers(0, 12))):
            i, j = data.draw(st.integers(0, n - 1)), data.draw(st.integers(0, n - 1))
            if symmetry != "general":
                i, j = max(i, j), min(i, j)
            if symmetry == "skew-symmetric" and i == j:
                continue
            a, b = data.draw(st.integers(-9, 9)), data.draw(st.integers(-9, 9))
            value = {"real": a / 2, "integer": a, "complex": a + 1j * (b if i != j else 0) / 4, "pattern": 1}[field]
            text = {"real": f"{a / 2!r}", "integer": f"{a}", "pattern": ""}.get(field, f"{a} {value.imag!r}")
            lines.append(f"{i + 1}  {j + 1} {text}")
            expected[i, j] += value
            if i != j and symmetry != "general":
                expected[j, i] += {"symmetric": value, "skew-symmetric": -value}.get(symmetry, np.conj(value))
        body = ending.join(
            [f"%%MatrixMarket MATRIX coordinate {field} {symmetry}", "% note", "", f"{n} {n} {len(lines)}"]
        )
        A = read_matrix(put(body + ending + ending.join(lines)))
        np.testing.assert_array_equal(A.toarray(), expected)

    @pytest.mark.parametrize(
        ("head", "text", "expected"),
        [
            ("array real general", "2 3\n1\n2\n3\n4\n0\n6\n", [[1, 3, 0], [2, 4, 6]]),
            ("array integer symmetric", "2 2\n1\n2\n3\n", [[1, 2], [2, 3]]),
            ("array real skew-symmetric", "2 2\n5\n", [[0, -5], [5, 0]]),
            ("array complex hermitian", "2 2\n1 0\n2 3\n4 0\n", [[1, 2 - 3j], [2 + 3j, 4]]),
        ],
    )
    def test_array_becomes_sparse(self, put: Callable[..., Path], head: str, text: str, expected: Any) -> None:
        A = read_matrix(put(market(text, head)))
        np.testing.assert_array_equal(A.toarray(), expected)
        assert A.nnz == np.count_nonzero(expected)

    @pytest.mark.parametrize(
        ("spelling", "value"),
        [("1.5D+01", 15.0), ("1.5d1", 15.0), ("+1.5", 1.5), ("-.5", -0.5), ("5.", 5.0), ("1e-3", 1e-3), ("nan", np.nan),
         ("-Infinity", -np.inf), ("INF", np.inf), ("+1.5E+02", 150.0)],
    )  # fmt: skip
    def test_spellings_of_numbers(self, put: Callable[..., Path], spelling: str, value: float) -> None:
        A = read_matrix(put(market(f"2 2 2\n1 1 {spelling}\n2 2\t7\n")))
        np.testing.assert_array_equal(A.toarray(), [[value, 0], [0, 7]])

    @pytest.mark.parametrize(
        "wrong", ["1.5x", "1.5.1", "1e", "--1", "1-2", "1,5", "0x10", "one", "1 7", "", "1\0", "infin", "e5", "."]
    )
    def test_what_is_not_a_number_is_not_read_as_one(self, put: Callable[..., Path], wrong: str) -> None:
        with pytest.raises(FileFormatError, match=r"a\.mtx, line 4: not an entry.*row column value"):
            read_matrix(put(market(f"2 2 3\n1 1 1\n2 2 {wrong}\n1 2 3\n")))

    def test_comments_blank_lines_and_a_byte_order_mark(self, put: Callable[..., Path]) -> None:
        text = "\ufeff" + market("% größer\n\n 2 2  2 \n% one\n1 1 1\n\n  % two 5 5 5\n2 2 2\n\n")
        np.testing.assert_array_equal(read_matrix(put(text)).toarray(), [[1, 0], [0, 2]])

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            (market("3 3 3\n1 1 1\n2 2 2\n"), ("truncated", "expected 3 entries", "found 2", "again")),
            (market("3 3 3\n1 1 1\n2 2 2\n3 3"), ("line 5", '"3 3"', "truncated after 2 of 3")),
            (market("3 3 1\n1 1 1\n2 2 2\n"), ("more entries", "found 2", "size line")),
            (market("3 3 1\n4 1 1\n"), ("line 3", "row index out of bounds", "1..3")),
            (market("% c\n3 3 2\n% c\n1 1 1\n\n1 0 1\n"), ("line 7", "column index out of bounds")),
            (market("3 3 1\n-1 1 1\n"), ("line 3", "not an entry", '"-1 1 1"')),
            (market("3 3 1\n1 99999999999999999999 1\n", "coordinate integer general"), ("line 3", "range")),
            (market(f"3 3 1\n{'1' * 5000} 1 1\n"), ("line 3", "range")),
            (market(f"{'1' * 5000} 3 1\n1 1 1\n"), ("line 2", "too large")),
            (market("3 3 1\n1 1 2,5\n"), ("line 3", '"1 1 2,5"', "correct the line")),
            (market("3 3 1\n1;1;2.5\n"), ("line 3", '"1;1;2.5"', "correct the line")),
            (market("3 3 1\n1 1 2.5e"), ("line 3", "truncated after 0 of 1")),
            (market("3 3 1\n1 1 2.5e\n"), ("line 3", "correct the line")),
            (market("3 3 1\n1 1 % 2\n"), ("line 3", "not an entry")),
            (market(""), ("before the size line", "truncated")),
            ("%%MatrixMarket matrix coordinate real general", ("before the size line",)),
            ("%%MatrixMarket matrix coordinate real\n1 1 0\n", ("line 1", "five words")),
            ("%%MatrixMarkt matrix coordinate real general\n1 1 0\n", ("line 1", "no Matrix Market banner")),
            ("%%MatrixMarket vector coordinate real general\n1 0\n", ("line 1", "object", "vector")),
            (market("3 3 -1\n"), ("line 2", "size line")),
            (market("3 3 1.0\n1 1 1"), ("line 2", "size line")),
            (market("3 3\n1 1 1"), ("line 2", "size line", "rows columns entries")),
            (market("99999999999999999999 3 1\n1 1 1"), ("line 2", "too large")),
            (market("3 4 1\n1 1 1\n", "coordinate real symmetric"), ("line 2", "square", "3 x 4")),
            (market("2 2 1\n1 1 5\n", "coordinate real skew-symmetric"), ("diagonal", "zero", "row 1")),
            (market("2 2 1\n2 2 5 1\n", "coordinate complex hermitian"), ("diagonal", "real", "row 2")),
            (
                market("2 2 2\n1 2 5\n2 1 5\n", "coordinate real symmetric"),
                ("both sides", "(2, 1) and (1, 2)", "general"),
            ),
            (market("2 2\n1\n2\n3\n", "array real general"), ("truncated", "expected 4 entries", "found 3")),
            (market("999999999 999999999\n1\n", "array real general"), ("truncated", "found 1")),
            (market("9 9 999999999999999\n1 1 1\n"), ("truncated", "found 1")),
        ],
    )
    def test_contradictions(self, put: Callable[..., Path], text: str, words: tuple[str, ...]) -> None:
        with pytest.raises(FileFormatError) as caught:
            read_matrix(put(text))
        message = str(caught.value)
        assert "\n" not in message
        for word in ("a.mtx", *words):
            assert word in message

    def test_upper_triangle_of_a_symmetric_file(self, put: Callable[..., Path]) -> None:
        A = read_matrix(put(market("3 3 3\n1 2 5\n3 1 6\n2 2 1\n", "coordinate real symmetric")))
        np.testing.assert_array_equal(A.toarray(), [[0, 5, 6], [5, 1, 0], [6, 0, 0]])

    def test_every_prefix_is_refused(self, put: Callable[..., Path]) -> None:
        text = market("4 4 5\n1 1 1\n2 2 2\n3 3 3\n4 4 4\n1 4 8\n").encode()
        for stop in range(1, len(text) - 2):
            with pytest.raises(FileFormatError):
                read_matrix(put(text[:stop]))

    @pytest.mark.parametrize("banner", ["%MatrixMarket matrix coordinate real general", f"{market('')[:-1]} and more"])
    def test_banners_that_scipy_takes(self, put: Callable[..., Path], banner: str) -> None:
        assert read_matrix(put(f"{banner}\n1 1 1\n1 1 2\n"))[0, 0] == 2

    def test_comments_behind_numbers_and_carriage_returns_alone(self, put: Callable[..., Path]) -> None:
        text = market("% note\n2 2 2 % sizes\n1 1 1 % one +1 D\n2 2 2\t%two\n")
        for form in (text, text.replace("\n", "\r\n"), text.replace("\n", "\r")):
            np.testing.assert_array_equal(read_matrix(put(form)).toarray(), [[1, 0], [0, 2]])

    @pytest.mark.parametrize(
        ("field", "number", "value"),
        [
            ("integer", "2.5", 2.5),  # a plain reader of integers makes this 2
            ("integer", "0." + "1" * 5000, 1 / 9),
            ("integer", "1" * 300 + "." + "1" * 5000, float("1" * 300 + ".1")),
        ],
        ids=lambda v: str(v)[:25],
    )
    def test_decimals_in_an_integer_file_are_read_as_real(
        self, put: Callable[..., Path], field: str, number: str, value: float
    ) -> None:
        for text in (
            f"coordinate {field} general\n2 1 2\n1 1 {number}\n2 1 7\n",
            f"array {field} general\n2 1\n{number}\n7\n",
        ):
            found = read_matrix(put(f"%%MatrixMarket matrix {text}"))
            assert found.dtype == np.float64
            np.testing.assert_array_equal(found.toarray(), [[value], [7]])

    @pytest.mark.parametrize(
        ("field", "number"),
        [
            ("integer", "9223372036854775808"),
            ("integer", "-123456789012345678901234567890"),
            ("unsigned-integer", "18446744073709551616"),
            ("integer", "1" * 5000),
        ],
        ids=lambda v: str(v)[:25],
    )
    def test_integers_beyond_64_bits_are_refused_for_that_reason(
        self, put: Callable[..., Path], field: str, number: str
    ) -> None:
        for text in (
            f"coordinate {field} general\n2 1 2\n1 1 {number}\n2 1 7\n",
            f"array {field} general\n2 1\n{number}\n7\n",
        ):
            with pytest.raises(FileFormatError, match=r"beyond 64 bits; write 'real'"):
                read_matrix(put(f"%%MatrixMarket matrix {text}"))

    def test_a_sign_in_an_unsigned_file_is_read(self, put: Callable[..., Path]) -> None:
        found = read_matrix(put(market("1 1 1\n1 1 -3\n", "coordinate unsigned-integer general")))
        assert found.dtype == np.int64
        assert found[0, 0] == -3

    def test_integers_do_not_overflow(self, put: Callable[..., Path]) -> None:
        text = f"2 2 1\n2 1 {-(2**63)}\n"
        A = read_matrix(put(market(text, "coordinate integer skew-symmetric")))
        np.testing.assert_array_equal(A.toarray(), [[0, 2.0**63], [-(2.0**63), 0]])
        text = f"1 1 2\n1 1 {2**63 - 1}\n1 1 1\n"
        assert read_matrix(put(market(text, "coordinate integer general")))[0, 0] == 2.0**63
        text = f"2 1 2\n1 1 {2**63 - 1}\n2 1 1\n"
        assert read_matrix(put(market(text, "coordinate integer general"))).toarray().tolist() == [[2**63 - 1], [1]]


def harwell_boeing(A: sp.csc_array, kind: str, fields: str, number: str, per_line: int, rhs: str = "") -> str:
    """Rutherford-Boeing text of the entries of A as they are; `number` formats a value as `fields` says to Fortran."""

    def cards(items: list[str], per: int) -> list[str]:
        return ["".join(items[i : i + per]) for i in range(0, len(items), per)]

    pointers = cards([f"{p + 1:8d}" for p in A.indptr], 10)
    indices = cards([f"{i + 1:8d}" for i in A.indices], 10)
    flat = A.data.view(np.float64) if kind[0] == "C" else A.data
    values = [] if kind[0] == "P" else cards([number.format(float(v)) for v in flat], per_line)
    total = len(pointers) + len(indices) + len(values)
    sizes = [total, len(pointers), len(indices), len(values)] + ([1] if rhs else [])
    head = [
        f"{'a title':72}{'KEY':8}",
        "".join(f"{s:14d}" for s in sizes),
        f"{kind:14}" + "".join(f"{s:14d}" for s in (*A.shape, A.nnz, 0)),
        f"{'(10I8)':16}{'(10I8)':16}{fields:20}" + (f"{fields:20}" if rhs else ""),
    ]
    if rhs:
        head.append(f"F{'':13}{1:14d}{0:14d}")
    return "\n".join([*head, *pointers, *indices, *values, *([rhs] if rhs else [])]) + "\n"


class TestHarwellBoeing:
    @pytest.mark.parametrize(
        ("fields", "number", "per_line"),
        [("(4E20.12)", "{:20.12E}", 4), ("(1P,4E20.12)", "{:20.12E}", 4), ("(1P4D20.12)", "{:20.12E}", 4),
         ("(3E25.17)", "{:25.17E}", 3), ("(10F8.3)", "{:8.3f}", 10), ("(E26.18)", "{:26.18E}", 1)],
    )  # fmt: skip
    @pytest.mark.parametrize("kind", ["RUA", "RRA", "CUA", "PUA", "RSA", "CSA", "CHA", "RZA", "PSA"])
    @pytest.mark.parametrize("name", ["a.rb", "noname"])
    def test_all_types(
        self, put: Callable[..., Path], kind: str, fields: str, number: str, per_line: int, name: str
    ) -> None:
        A = np.round(sample(7, "complex128" if kind[0] == "C" else "float64").toarray(), 3)
        half = A if kind[1] in "UR" else np.tril(A, -1) if kind[1] == "Z" else np.tril(A)
        half = half - 1j * np.diag(np.diag(half).imag) if kind == "CHA" else half
        mirror = {"S": half.T, "H": half.conj().T, "Z": -half.T}.get(kind[1])
        expected = half if mirror is None else half + mirror - np.diag(np.diag(half))
        expected = (expected != 0).astype(float) if kind[0] == "P" else expected
        text = harwell_boeing(sp.csc_array(half), kind, fields, number.replace("E}", "E}"), per_line)
        if "D" in fields:
            text = text[:320] + text[320:].replace("E", "D")
        found = read_matrix(put(text, name))
        np.testing.assert_allclose(found.toarray(), expected, rtol=1e-12)

    def test_fields_that_touch(self, put: Callable[..., Path]) -> None:
        A = sp.csc_array(np.array([[-1.5, -2.5], [-3.5, -4.25]]))
        text = harwell_boeing(A, "RUA", "(4E10.3)", "{:10.3E}", 4)
        assert "-1.500E+00-3.500E+00" in text
        np.testing.assert_array_equal(read_matrix(put(text, "a.rua")).toarray(), A.toarray())

    def test_implied_decimal_point(self, put: Callable[..., Path]) -> None:
        A = sp.csc_array(np.array([[12345.0]]))
        text = harwell_boeing(A, "RUA", "(4F10.3)", "{:10.0f}", 4)
        assert read_matrix(put(text, "a.rua"))[0, 0] == pytest.approx(12.345)

    def test_rectangular_integers_and_right_hand_sides(self, put: Callable[..., Path]) -> None:
        A = sp.csc_array(np.array([[1, 0, 3], [0, -5, 0]]))
        text = harwell_boeing(A, "IRA", "(10I8)", "{:8.0f}", 10, rhs="       1       2")
        found = read_matrix(put(text, "a.hb"))
        assert found.dtype == np.int64
        np.testing.assert_array_equal(found.toarray(), A.toarray())

    @pytest.mark.parametrize(
        ("old", "new", "words"),
        [
            ("RUA ", "RUE ", ("elements", "assemble")),
            ("RUA ", "XQZ ", ("line 3", "matrix type")),
            ("(10I8) ", "(10Q8) ", ("line 4", "Fortran format")),
            ("E+00", "E+0x", ("value", "not a number")),
            ("       1", "       9", ("pointers",)),
            ("       1", "       q", ("pointer", "whole number")),
        ],
    )
    def test_damage(self, put: Callable[..., Path], old: str, new: str, words: tuple[str, ...]) -> None:
        text = harwell_boeing(sp.csc_array(np.eye(3)), "RUA", "(4E20.12)", "{:20.12E}", 4)
        assert old in text
        body = text.index("\n", 90) + 1
        text = text[:body] + (text[body:].replace(old, new, 1) if old[0] != " " else text[body:])
        if old[0] == " ":
            start = text.index("\n", text.index("(10I8)")) + 1
            text = text[:start] + text[start:].replace(old, new, 1)
        with pytest.raises(FileFormatError) as caught:
            read_matrix(put(text, "a.rua"))
        for word in ("a.rua", *words):
            assert word in str(caught.value)

    def test_truncation(self, put: Callable[..., Path]) -> None:
        text = harwell_boeing(sample(7).tocsc(), "RUA", "(2E25.17)", "{:25.17E}", 2)
        lines = text.splitlines()
        for keep in range(1, len(lines)):
            with pytest.raises(FileFormatError):
                read_matrix(put("\n".join(lines[:keep]) + "\n", "a.rua"))

    @pytest.mark.parametrize("rhs", ["", "\n".join(["  0.100000000000E+01"] * 5)])
    def test_every_line_twice_or_missing_is_refused(self, put: Callable[..., Path], rhs: str) -> None:
        """Right-hand sides in the format of the values would else take the place of a missing line."""
        text = harwell_boeing(sample(5).tocsc(), "RUA", "(1E20.12)", "{:20.12E}", 1, rhs)
        text = text.replace(f"{1:14d}\nRUA", f"{5:14d}\nRUA")  # lines of right-hand sides
        lines = text.splitlines(keepends=True)
        assert read_matrix(put(text, "a.rua")).nnz == sample(5).nnz
        for i in range(4 + bool(rhs), len(lines)):
            for changed in (lines[: i + 1] + lines[i:], lines[:i] + lines[i + 1 :]):
                with pytest.raises(FileFormatError):
                    read_matrix(put("".join(changed), "a.rua"))
        with pytest.raises(FileFormatError, match=r"lines too many or too few.*line \d+, found \d more lines"):
            read_matrix(put("".join([*lines, lines[-1]]), "a.rua"))

    @pytest.mark.parametrize(
        ("total", "pointers", "indices", "values", "sides", "good"),
        [
            (0, 0, 0, 9, 2, True),  # slips that no program in Fortran minds
            (99, 7, 8, 9, 2, True),
            (6, 1, 1, 1, 3, True),  # the header of the right-hand sides says how long they are
            (5, 1, 1, 0, 2, False),
        ],
    )
    def test_counts_of_lines_that_are_wrong_themselves(
        self, put: Callable[..., Path], total: int, pointers: int, indices: int, values: int, sides: int, good: bool
    ) -> None:
        A = sp.csc_array(np.diag([1.0, 2.0]))
        text = harwell_boeing(A, "RUA", "(1E20.12)", "{:20.12E}", 1, "  0.100000000000E+01\n  0.200000000000E+01")
        first, _, rest = text.partition("\n")
        counts = "".join(f"{count:14d}" for count in (total, pointers, indices, values, sides))
        path = put(f"{first}\n{counts}{rest[rest.index(chr(10)) :]}", "a.rua")
        if good:
            np.testing.assert_array_equal(read_matrix(path).toarray(), A.toarray())
            lines = path.read_text().splitlines(keepends=True)
            with pytest.raises(FileFormatError, match="lines too many or too few"):
                read_matrix(put("".join([*lines[:8], *lines[7:]]), "b.rua"))  # the first value twice
        else:
            with pytest.raises(FileFormatError, match=r"a\.rua holds no values.*P the first letter"):
                read_matrix(path)

    @pytest.mark.parametrize("end", ["\n", "", "\n\n \n", "\n\x1a", "   \n", "\r\n\r\n", "\n\0\0"])
    def test_ends_of_files(self, put: Callable[..., Path], end: str) -> None:
        text = harwell_boeing(sample(4).tocsc(), "RUA", "(2E25.17)", "{:25.17E}", 2)
        np.testing.assert_array_equal(read_matrix(put(text[:-1] + end, "a.rua")).toarray(), sample(4).toarray())

    @pytest.mark.parametrize("newline", ["\r\n", "\r"])
    def test_line_ends(self, put: Callable[..., Path], newline: str) -> None:
        text = harwell_boeing(sample(4).tocsc(), "RUA", "(2E25.17)", "{:25.17E}", 2)
        path = put(text.replace("\n", newline).encode(), "a.rua")
        np.testing.assert_array_equal(read_matrix(path).toarray(), sample(4).toarray())

    def test_every_prefix_is_refused(self, put: Callable[..., Path]) -> None:
        text = harwell_boeing(sample(3).tocsc(), "RUA", "(2E25.17)", "{:25.17E}", 2)
        for stop in range(330, len(text) - 1):
            with pytest.raises(FileFormatError):
                read_matrix(put(text[:stop], "a.rua"))

    def test_a_line_that_ends_early_is_not_filled_with_zeros(self, put: Callable[..., Path]) -> None:
        text = harwell_boeing(sample(4).tocsc(), "RUA", "(2E25.17)", "{:25.17E}", 2)
        lines = text.splitlines()
        lines[-2] = lines[-2][:25]
        with pytest.raises(FileFormatError, match=rf"line {len(lines) - 1} ends before its last number.*26 to 50"):
            read_matrix(put("\n".join(lines) + "\n", "a.rua"))

    def test_symmetric_with_both_triangles(self, put: Callable[..., Path]) -> None:
        text = harwell_boeing(sp.csc_array(np.ones((2, 2))), "RSA", "(4E20.12)", "{:20.12E}", 4)
        with pytest.raises(FileFormatError, match=r"both sides of the diagonal.*\(2, 1\) and \(1, 2\).*unsymmetric"):
            read_matrix(put(text, "a.rsa"))

    def test_numbers_too_large(self, put: Callable[..., Path]) -> None:
        text = harwell_boeing(sp.csc_array(np.eye(2)), "RUA", "(4E20.12)", "{:20.12E}", 4)
        wide = text.replace(f"{'(10I8)':16}{'(10I8)':16}", f"{'(10I8)':16}{'(1I30)':16}")
        lines = wide.splitlines()
        lines[5:6] = ["1".rjust(30), "9" * 30]
        with pytest.raises(FileFormatError, match="row index is out of range"):
            read_matrix(put("\n".join(lines) + "\n", "a.rua"))
        for number in ("9" * 5000, "9" * 18):
            huge = "\n".join(
                [*lines[:2], f"{'RUA':14}{number} 2 2 0", *lines[3:5], "1".rjust(30), "2".rjust(30), lines[-1]]
            )
            with pytest.raises(FileFormatError, match=r"truncated|memory"):
                read_matrix(put(huge + "\n", "a.rua"))

    def test_index_out_of_range(self, put: Callable[..., Path]) -> None:
        A = sp.csc_array(np.eye(2))
        A.indices[1] = 6
        with pytest.raises(FileFormatError, match=r"row index of entry 2 is out of range.*found 7"):
            read_matrix(put(harwell_boeing(A, "RUA", "(4E20.12)", "{:20.12E}", 4), "a.rua"))


class TestNpz:
    @pytest.mark.parametrize("form", ["csr", "csc", "coo", "bsr", "dia"])
    @pytest.mark.parametrize("dtype", ["float32", "complex128"])
    def test_every_format(self, tmp_path: Path, form: str, dtype: str) -> None:
        A = sample(6, dtype)
        sp.save_npz(tmp_path / "a.npz", A.asformat(form))
        found = read_matrix(tmp_path / "a.npz")
        assert found.dtype == A.dtype
        np.testing.assert_array_equal(found.toarray(), A.toarray())

    def test_foreign_archive(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "a.npz", weights=np.ones(3), bias=np.ones(2))
        with pytest.raises(FileFormatError, match=r"not written by scipy.sparse.save_npz.*weights, bias.*save_npz"):
            read_matrix(tmp_path / "a.npz")

    def test_truncated_and_dense(self, tmp_path: Path, put: Callable[..., Path]) -> None:
        sp.save_npz(tmp_path / "a.npz", sample())
        raw = (tmp_path / "a.npz").read_bytes()
        for stop in (4, 100, len(raw) // 2, len(raw) - 5):
            with pytest.raises(FileFormatError, match=r"b\.npz"):
                read_matrix(put(raw[:stop], "b.npz"))
        np.save(tmp_path / "c.npy", np.eye(3))
        with pytest.raises(FileFormatError, match=r"dense.*save_npz"):
            read_matrix(tmp_path / "c.npy")

    def test_indices_out_of_range_do_not_reach_compiled_code(self, tmp_path: Path) -> None:
        A = sample().tocsc()
        A.indices[3] = 10**8
        sp.save_npz(tmp_path / "a.npz", A)
        with pytest.raises(FileFormatError, match="broken matrix"):
            read_matrix(tmp_path / "a.npz")


class TestMat:
    def test_choice_among_several(self, tmp_path: Path) -> None:
        A, M = sample(5), sample(4, "complex128")
        scipy.io.savemat(tmp_path / "a.mat", {"stiffness": A.tocsc(), "mass": M.tocsc(), "note": "text"})
        with pytest.raises(
            FileFormatError, match=r'several sparse variables.*stiffness \(5 x 5.*mass.*variable="stiffness"'
        ):
            read_matrix(tmp_path / "a.mat")
        np.testing.assert_array_equal(read_matrix(tmp_path / "a.mat", variable="mass").toarray(), M.toarray())
        assert list_variables(tmp_path / "a.mat") == {"stiffness": (5, 5), "mass": (4, 4)}
        with pytest.raises(ArgumentError, match=r"'note'.*not a matrix"):
            read_matrix(tmp_path / "a.mat", variable="note")

    def test_structure_of_the_collection(self, tmp_path: Path) -> None:
        A, Z = sample(5), sample(5, seed=1)
        scipy.io.savemat(tmp_path / "a.mat", {"Problem": {"A": A.tocsc(), "Zeros": Z.tocsc(), "name": "x"}})
        np.testing.assert_array_equal(read_matrix(tmp_path / "a.mat").toarray(), A.toarray())
        found = read_matrix(tmp_path / "a.mat", variable="Problem.Zeros")
        np.testing.assert_array_equal(found.toarray(), Z.toarray())

    def test_version_4(self, tmp_path: Path) -> None:
        scipy.io.savemat(tmp_path / "a.mat", {"A": sample(5).tocsc()}, format="4")
        np.testing.assert_array_equal(read_matrix(tmp_path / "a.mat").toarray(), sample(5).toarray())

    def test_nothing_sparse(self, tmp_path: Path) -> None:
        scipy.io.savemat(tmp_path / "a.mat", {"D": np.eye(3)})
        with pytest.raises(FileFormatError, match=r"no sparse variable.*D \(3 x 3 float64\).*variable="):
            read_matrix(tmp_path / "a.mat")
        assert read_matrix(tmp_path / "a.mat", variable="D").nnz == 3

    def test_hdf5_and_damage(self, tmp_path: Path, put: Callable[..., Path]) -> None:
        hdf5 = b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(512) + b"\x89HDF\r\n\x1a\n"
        for raw in (hdf5, hdf5[512:], b"x" * 512 + hdf5[512:]):
            with pytest.raises(FileFormatError, match=r"7.3.*-v7"):
                read_matrix(put(raw, "a.mat"))
        scipy.io.savemat(tmp_path / "b.mat", {"A": sample(20).tocsc()})
        raw = (tmp_path / "b.mat").read_bytes()
        for stop in (10, 130, len(raw) // 2, len(raw) - 9):
            with pytest.raises(FileFormatError, match=r"c\.mat"):
                read_matrix(put(raw[:stop], "c.mat"))


def tar(members: dict[str, bytes], mode: str = "w:gz") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:  # type: ignore[call-overload]
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


ONE, TWO = market("1 1 1\n1 1 1\n").encode(), market("1 1 1\n1 1 2\n").encode()


class TestArchives:
    @pytest.mark.parametrize("mode", ["w:gz", "w", "w:bz2", "w:xz"])
    def test_takes_the_matrix_and_no_companion(self, put: Callable[..., Path], mode: str) -> None:
        members = {"big/big_b.mtx": TWO, "big/big_coord.mtx": TWO, "big/big.mtx": ONE, "big/readme.txt": b"x"}
        suffix = {"w": ".tar"}.get(mode, f".tar.{mode[2:]}")
        assert read_matrix(put(tar(members, mode), f"big{suffix}"))[0, 0] == 1

    def test_renamed_archive_and_flat_archive(self, put: Callable[..., Path]) -> None:
        assert read_matrix(put(tar({"big/big.mtx": ONE, "big/other.mtx": TWO}), "x.tgz"))[0, 0] == 1
        assert read_matrix(put(tar({"a.mtx": ONE, "a_b.mtx": TWO}), "x.tar.gz"))[0, 0] == 1

    def test_several_matrices(self, put: Callable[..., Path]) -> None:
        path = put(tar({"x/a.mtx": ONE, "x/c.mtx": TWO}), "x.tar.gz")
        with pytest.raises(FileFormatError, match=r"several matrices.*x/a\.mtx, x/c\.mtx.*variable="):
            read_matrix(path)
        assert read_matrix(path, variable="c")[0, 0] == 2
        assert read_matrix(path, variable="x/a.mtx")[0, 0] == 1
        with pytest.raises(ArgumentError, match="no member 'q'"):
            read_matrix(path, variable="q")

    def test_rutherford_boeing_member(self, put: Callable[..., Path]) -> None:
        text = harwell_boeing(sample(5).tocsc(), "RUA", "(2E25.17)", "{:25.17E}", 2).encode()
        found = read_matrix(put(tar({"x/x.rb": text}), "x.tar.gz"))
        np.testing.assert_array_equal(found.toarray(), sample(5).toarray())

    def test_nothing_is_extracted(self, put: Callable[..., Path], tmp_path: Path) -> None:
        path = put(tar({"../../evil/evil.mtx": ONE, "/abs/abs_b.mtx": TWO}), "x.tar.gz")
        assert read_matrix(path)[0, 0] == 1
        assert os.listdir(tmp_path) == ["x.tar.gz"]
        assert not (tmp_path.parent.parent / "evil").exists()

    def test_links_are_not_followed(self, put: Callable[..., Path]) -> None:
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
            info = tarfile.TarInfo("x/x.mtx")
            info.type, info.linkname = tarfile.SYMTYPE, "/etc/passwd"
            archive.addfile(info)
        with pytest.raises(FileFormatError, match="holds no matrix"):
            read_matrix(put(buffer.getvalue(), "x.tar.gz"))

    def test_no_matrix_and_damage(self, put: Callable[..., Path]) -> None:
        with pytest.raises(FileFormatError, match="holds no matrix"):
            read_matrix(put(tar({"x/readme": b"x"}), "x.tar.gz"))
        raw = tar({"x/x.mtx": ONE * 1}, "w")
        with pytest.raises(FileFormatError, match="truncated"):
            read_matrix(put(raw[:530], "x.tar"))
        with pytest.raises(FileFormatError, match="truncated"):
            read_matrix(put(b"no archive", "x.tar"))


class TestPaths:
    @pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
    @pytest.mark.parametrize("named", [True, False])
    def test_compression_by_content(self, put: Callable[..., Path], compress: Any, named: bool) -> None:
        suffix = {gzip.compress: ".gz", bz2.compress: ".bz2", lzma.compress: ".xz"}[compress] if named else ""
        assert read_matrix(put(compress(ONE), f"a.mtx{suffix}"))[0, 0] == 1
        with pytest.raises(FileFormatError, match="truncated or damaged"):
            read_matrix(put(compress(ONE)[:-6], f"a.mtx{suffix}"))

    @pytest.mark.parametrize("name", ["a.mtx.gz", "a.mtx.bz2", "a.mtx.xz", "a.tgz"])
    def test_named_compressed_but_is_not(self, put: Callable[..., Path], name: str) -> None:
        with pytest.raises(FileFormatError, match=r"is not compressed by .*rename"):
            read_matrix(put(ONE, name))

    def test_missing(self, tmp_path: Path) -> None:
        with pytest.raises(FileMissingError, match=r"nowhere\.mtx does not exist") as caught:
            read_matrix(tmp_path / "nowhere.mtx")
        assert isinstance(caught.value, FileNotFoundError)
        assert isinstance(caught.value, AkxError)
        with pytest.raises(FileMissingError):
            read_vector(str(tmp_path / "nowhere.mtx"))

    def test_directory(self, tmp_path: Path) -> None:
        with pytest.raises(FileFormatError, match="is a directory"):
            read_matrix(tmp_path)

    def test_path_through_a_file(self, put: Callable[..., Path]) -> None:
        with pytest.raises(AkxError, match="cannot be read"):
            read_matrix(put(ONE) / "b.mtx")

    def test_no_permission(self, put: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
        path = put(ONE)

        def refuse(self: Path, mode: str) -> Any:
            raise PermissionError(13, "Permission denied", str(self))

        monkeypatch.setattr(Path, "open", refuse)  # the superuser may read everything
        with pytest.raises(FileFormatError, match="cannot be read, found Permission denied; check its permissions"):
            read_matrix(path)

    @pytest.mark.parametrize("name", ["a.mtx", "a.mat", "a.npz", "a.rua", "a", "a.tar.gz"])
    def test_empty(self, put: Callable[..., Path], name: str) -> None:
        with pytest.raises(FileFormatError, match="is empty"):
            read_matrix(put(b"", name))

    def test_empty_once_decompressed(self, put: Callable[..., Path]) -> None:
        with pytest.raises(FileFormatError, match="is empty"):
            read_matrix(put(gzip.compress(b""), "a.mtx.gz"))

    @pytest.mark.parametrize("content", [b"hello\n", bytes(range(256)), b"1 2 3\n", b"\x7fELF" + bytes(60)])
    @pytest.mark.parametrize("name", ["a", "a.txt", "a.csv"])
    def test_unknown_format(self, put: Callable[..., Path], content: bytes, name: str) -> None:
        with pytest.raises(FileFormatError, match=r"no format that akx knows.*\.mtx"):
            read_matrix(put(content, name))

    def test_wrong_types(self, put: Callable[..., Path]) -> None:
        with pytest.raises(ArgumentTypeError, match=r"str or os\.PathLike"):
            read_matrix(3)  # type: ignore[arg-type]
        with pytest.raises(ArgumentError, match="no variables"):
            read_matrix(put(ONE), variable="A")
        with pytest.raises(AkxError):
            read_matrix("a\0b.mtx")


def _seeds() -> dict[str, bytes]:
    npz = io.BytesIO()
    sp.save_npz(npz, sample(4).tocoo())
    text = market("% c\n4 4 5\n1 1 1.5e-3\n2 2 -2\n3 3 3\n4 4 4\n4 1 8\n", "coordinate real symmetric").encode()
    return {
        "a.mtx": text,
        "a.mtx.gz": gzip.compress(text, mtime=0),
        "a.rsa": harwell_boeing(sample(4).tocsc(), "RUA", "(2E25.17)", "{:25.17E}", 2).encode(),
        "a.npz": npz.getvalue(),
        "a.tar": tar({"a/a.mtx": text}, "w"),
    }


SEEDS = _seeds()


class TestDamage:
    @settings(deadline=None, max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
    @given(data=st.data(), name=st.sampled_from([*SEEDS, "a.mtx", "a.rsa"]))
    def test_any_damage_gives_a_matrix_or_a_typed_error(self, put: Callable[..., Path], data: Any, name: str) -> None:
        raw = bytearray(SEEDS[name])
        for _ in range(data.draw(st.integers(1, 3))):
            place = data.draw(st.integers(0, len(raw) - 1))
            action = data.draw(st.sampled_from(["set", "insert", "delete", "cut"]))
            if action == "set":
                raw[place] = data.draw(st.integers(0, 255))
            elif action == "insert":
                raw[place:place] = data.draw(st.sampled_from([b"9", b" ", b"\n", b"\0", b"-", b".", b"e", b"%", b"D"]))
            elif action == "delete" and len(raw) > 1:
                del raw[place]
            elif place:
                del raw[place:]
        message = self.complaint(put(bytes(raw), name))
        assert message is None or (name in message and "\n" not in message)

    def test_blanks_that_are_none_to_python_alone(self, put: Callable[..., Path]) -> None:
        """A separator among the blanks of a Harwell-Boeing header, as damage leaves it."""
        raw = bytearray(SEEDS["a.rsa"])
        second = raw.index(b"\n") + 1
        assert raw[second : second + 1] == b" "
        raw[second] = 0x1C
        assert self.complaint(put(bytes(raw), "a.rsa")) is None

    @staticmethod
    def complaint(path: Path) -> str | None:
        """The message of the typed error, or None where the file was read; anything else fails the test."""
        try:
            A = read_matrix(path)
        except AkxError as error:
            return str(error)
        assert isinstance(A, sp.csr_array)
        A.check_format(full_check=True)
        return None


class TestWriting:
    @pytest.mark.parametrize("name", ["a.mtx", "a.mtx.gz", "a.npz"])
    @pytest.mark.parametrize("dtype", ["float64", "complex128"])
    def test_matrix_round_trip_is_exact(self, tmp_path: Path, name: str, dtype: str) -> None:
        A = sample(30, dtype)
        write_matrix(tmp_path / name, A)
        B = read_matrix(tmp_path / name)
        assert np.array_equal(A.indptr, B.indptr)
        assert np.array_equal(A.data, B.data)
        assert os.listdir(tmp_path) == [name]

    @fast
    @given(x=st.lists(st.floats(allow_nan=False), max_size=20))
    def test_vector_round_trip_is_exact(self, tmp_path: Path, x: list[float]) -> None:
        write_vector(tmp_path / "x.mtx", x)
        np.testing.assert_array_equal(read_vector(tmp_path / "x.mtx"), np.array(x, dtype=float))

    @pytest.mark.parametrize("x", [np.array([1 + 2j, 1 / 3]), np.array([3, -4]), np.array([0.1], dtype=np.float32)])
    def test_vector_types(self, tmp_path: Path, x: NDArray[Any]) -> None:
        write_vector(tmp_path / "x.mtx.gz", x)
        np.testing.assert_array_equal(read_vector(tmp_path / "x.mtx.gz").astype(x.dtype), x)

    def test_several_vectors(self, tmp_path: Path) -> None:
        x = np.arange(6.0).reshape(3, 2)
        write_vector(tmp_path / "x.mtx", x, several=True)
        np.testing.assert_array_equal(read_vector(tmp_path / "x.mtx", several=True), x)
        with pytest.raises(FileFormatError, match="not a vector"):
            read_vector(tmp_path / "x.mtx")
        write_vector(tmp_path / "x.mtx", x[:, 0], several=True)
        np.testing.assert_array_equal(read_vector(tmp_path / "x.mtx", several=True), x[:, 0])
        with pytest.raises(ArgumentError, match="vector"):
            write_vector(tmp_path / "x.mtx", np.ones((2, 2, 2)), several=True)

    def test_vector_with_zeros_and_as_coordinates(self, put: Callable[..., Path]) -> None:
        assert read_vector(put(market("3 1\n0\n2\n0\n", "array real general"))).tolist() == [0, 2, 0]
        assert read_vector(put(market("3 1 1\n2 1 5\n"))).tolist() == [0, 5, 0]
        assert read_vector(put(market("1 1\n5\n", "array real general"))).tolist() == [5]

    def test_refusals(self, tmp_path: Path, put: Callable[..., Path]) -> None:
        with pytest.raises(FileFormatError, match=r"not a vector.*2 x 2"):
            read_vector(put(market("2 2 1\n2 1 5\n")))
        with pytest.raises(ArgumentError, match="vector"):
            write_vector(tmp_path / "x.mtx", np.eye(2))
        with pytest.raises(ArgumentTypeError, match="sparse"):
            write_matrix(tmp_path / "x.mtx", np.eye(2))
        with pytest.raises(AkxError, match="cannot be written"):
            write_vector(tmp_path / "no" / "such" / "x.mtx", np.ones(2))

    def test_a_failed_write_leaves_the_old_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        write_vector(tmp_path / "x.mtx", [1.0, 2.0])

        def full(self: Path, content: bytes) -> int:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(Path, "write_bytes", full)
        with pytest.raises(AkxError, match="No space left"):
            write_vector(tmp_path / "x.mtx", [3.0])
        assert read_vector(tmp_path / "x.mtx").tolist() == [1, 2]
        assert os.listdir(tmp_path) == ["x.mtx"]


def test_a_long_file_is_scanned_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines are counted over all parts, wherever the fault is; parts may hold no line of their own."""
    from akx.core.io import matrix_market_scan

    kinds = (matrix_market_scan.INDEX, matrix_market_scan.INDEX, matrix_market_scan.REAL)
    good = "".join(f"{i + 1} {i + 1} {i}.5e-1\n" for i in range(200)).encode()
    expected = matrix_market_scan.scan_body(good, kinds)
    assert expected == (0, 200, 200)
    for size in (64, 700, 10_000):
        monkeypatch.setattr(matrix_market_scan, "_PART_BYTES", size)
        monkeypatch.setattr(matrix_market_scan, "_MOST_PARTS", 7)
        monkeypatch.setattr(matrix_market_scan.os, "cpu_count", lambda: 7)
        assert matrix_market_scan.scan_body(good, kinds) == expected
        for line in (0, 57, 199):
            lines = good.splitlines(keepends=True)
            lines[line] = b"1 x 2\n"
            assert matrix_market_scan.scan_body(b"".join(lines), kinds) == (matrix_market_scan.BAD_TOKEN, line, line)
    one_line = b"%" + b"-" * 5000 + b"\n" + b"1 1 1\n"
    assert matrix_market_scan.scan_body(one_line, kinds) == (0, 2, 1)


def test_an_archive_without_a_table_of_contents_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    sp.save_npz(path, sp.eye_array(5, format="csr"))
    text = bytearray(path.read_bytes())
    text[text.rindex(b"PK\x01\x02")] = 0  # the last entry of the table; the archive's end is whole
    path.write_bytes(bytes(text))
    with pytest.raises(FileFormatError):
        read_matrix(path)
