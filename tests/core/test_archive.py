"""What is read of a file: no more than its matrix can need, whatever it claims or unpacks to."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from akx.core import process
from akx.core.errors import ArgumentError, FileFormatError, listed
from akx.core.io import harwell_boeing, matrix_market, read_matrix, stream
from akx.core.io.archive import _Choice

HEAD = b"%%MatrixMarket matrix coordinate real general\n"
ONE = HEAD + b"1 1 1\n1 1 5\n"
COMPRESS = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}
KIB = 1024


@pytest.fixture
def put(tmp_path: Path) -> Callable[[bytes, str], Path]:
    def write(content: bytes, name: str) -> Path:
        (tmp_path / name).write_bytes(content)
        return tmp_path / name

    return write


@pytest.fixture
def low_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounds that files of a few megabytes go beyond."""
    monkeypatch.setattr(stream, "HEADER_BYTES", 256 * KIB)
    monkeypatch.setattr(stream, "UNTOLD_BYTES", 256 * KIB)
    monkeypatch.setattr(stream, "PIECE", 64 * KIB)
    for module in (matrix_market, harwell_boeing):
        monkeypatch.setattr(module, "_SPARE_BYTES", 256 * KIB)


def comments(size: int) -> bytes:
    line = b"%" + b"a" * 1022 + b"\n"
    return line * (size // len(line))


def tar(members: dict[str, bytes], mode: str = "w") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:  # type: ignore[call-overload]
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def zipped(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


class TestBounds:
    @pytest.mark.parametrize("suffix", COMPRESS)
    @pytest.mark.usefixtures("low_bounds")
    def test_comments_without_end(self, put: Callable[..., Path], suffix: str) -> None:
        text = HEAD + comments(2**21) + b"1 1 1\n1 1 5\n"
        with pytest.raises(FileFormatError, match=r"no end of its header.*0\.262 MB"):
            read_matrix(put(COMPRESS[suffix](text), f"a.mtx{suffix}"))

    @pytest.mark.parametrize("pack", [*COMPRESS, "", ".tar", ".zip"])
    @pytest.mark.usefixtures("low_bounds")
    def test_more_than_the_header_can_need(self, put: Callable[..., Path], pack: str) -> None:
        text = HEAD + b"1 1 1\n" + comments(2**21) + b"1 1 5\n"
        packed = {".tar": tar({"a.mtx": text}), ".zip": zipped({"a.mtx": text}), "": text}.get(pack)
        name = f"a{pack}" if pack in (".tar", ".zip") else f"a.mtx{pack}"
        with pytest.raises(FileFormatError, match=r"sizes in its header can need.*at most 0\.263 MB.*correct"):
            read_matrix(put(COMPRESS[pack](text) if packed is None else packed, name))

    @pytest.mark.usefixtures("low_bounds")
    def test_a_header_that_asks_for_it_is_served(self, put: Callable[..., Path]) -> None:
        n = 40_000
        lines = b"".join(b"%d %d %d.25\n%% and a comment\n" % (i, i, i) for i in range(1, n + 1))
        text = HEAD + comments(200 * KIB) + b"%d %d %d\n" % (n, n, n) + lines
        for name, content in (("a.mtx.gz", gzip.compress(text, 1)), ("a.tar", tar({"b.mtx": text}))):
            assert read_matrix(put(content, name))[n - 1, n - 1] == n + 0.25

    @pytest.mark.usefixtures("low_bounds")
    def test_harwell_boeing(self, put: Callable[..., Path]) -> None:
        head = [f"{'t':72}KEY", f"{3:14d}{1:14d}{1:14d}{1:14d}", f"{'RUA':14}{1:14d}{1:14d}{1:14d}{0:14d}"]
        body = [f"{'(2I8)':16}{'(1I8)':16}{'(1E20.12)':20}", "       1       2", "       1", f"{5.0:20.12E}", ""]
        text = "\n".join([*head, *body])
        assert read_matrix(put(text.encode(), "a.rua"))[0, 0] == 5
        with pytest.raises(FileFormatError, match="sizes in its header can need"):
            read_matrix(put(gzip.compress(text.encode() + b"\n" * 2**21), "a.rua.gz"))

    def test_holes_are_not_read(self, tmp_path: Path) -> None:
        path = tmp_path / "a.mtx"
        path.write_bytes(ONE)
        os.truncate(path, 2**36)
        with pytest.raises(FileFormatError, match=r"found 68\.7 GB"):
            read_matrix(path)

    @pytest.mark.parametrize("name", ["a.mtx", "a.mtx.gz", "a.npz"])
    def test_memory(self, put: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, name: str) -> None:
        n = 20_000
        if name == "a.npz":
            buffer = io.BytesIO()
            sp.save_npz(buffer, sp.eye_array(n, format="csr"))
            content = buffer.getvalue()
        else:
            content = HEAD + b"%d %d %d\n" % (n, n, n) + b"".join(b"%d %d 1\n" % (i, i) for i in range(1, n + 1))
            content = gzip.compress(content) if name.endswith(".gz") else content
        path = put(content, name)
        assert read_matrix(path).nnz == n
        for module in ("akx.core.io.stream", "akx.core.io.npz"):
            monkeypatch.setattr(f"{module}.available_bytes", lambda: 400_000)
        with pytest.raises(FileFormatError, match=r"does not fit the memory, expected at most 0\.(08|2) MB"):
            read_matrix(path)

    @pytest.mark.parametrize("kind", ["mtx", "empty.mtx", "rua", "npz", "mat"])
    def test_rows_without_entries_take_memory_too(
        self, put: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, kind: str
    ) -> None:
        rows = 50_000
        A = sp.coo_array(([5.0], ([0], [0])), shape=(rows, 1))
        content = io.BytesIO()
        if kind == "npz":
            sp.save_npz(content, A)
        elif kind == "mat":
            scipy.io.savemat(content, {"A": A.tocsc()})
        elif kind == "rua":
            head = f"{'':80}\n{3:14}{1:14}{1:14}{1:14}\n{'RUA':14}{rows:14}{1:14}{1:14}{0:14}\n"
            content.write(f"{head}{'(2I5)':16}{'(I5)':16}{'(F5.1)':20}\n{1:5}{2:5}\n{1:5}\n{5.0:5}\n".encode())
        else:
            content.write(HEAD + f"{rows} 1 {int(kind == 'mtx')}\n".encode() + b"1 1 5\n" * (kind == "mtx"))
        path = put(content.getvalue(), f"a.{kind}")
        assert read_matrix(path).shape == (rows, 1)
        monkeypatch.setattr(stream, "available_bytes", lambda: 300_000)
        with pytest.raises(FileFormatError, match=r"does not fit.*50000 rows, which take 0\.2 MB"):
            read_matrix(path)

    @pytest.mark.usefixtures("low_bounds")
    def test_what_has_no_header_is_bounded_by_its_file(self, put: Callable[..., Path]) -> None:
        with pytest.raises(FileFormatError, match=r"unpack to.*unpack it"):
            read_matrix(put(gzip.compress(b"MATLAB 5.0".ljust(2**21, b"\0")), "a.mat.gz"))
        with pytest.raises(FileFormatError, match="no format that akx knows"):
            read_matrix(put(gzip.compress(bytes(2**21)), "a.gz"))


class TestStreams:
    @pytest.mark.parametrize("suffix", COMPRESS)
    @pytest.mark.parametrize("zeros", [0, 4, 70_000])
    def test_one_behind_another(self, put: Callable[..., Path], suffix: str, zeros: int) -> None:
        """Zeros fill up a block between and behind them, where Python's reader takes them: never for a short matrix."""
        compress, n = COMPRESS[suffix], 3000
        text = HEAD + b"%d %d %d\n" % (n, n, n) + b"".join(b"%d %d 1.5\n" % (i, i) for i in range(1, n + 1))
        pieces = [compress(text[i : i + 20_000]) for i in range(0, len(text), 20_000)]
        assert read_matrix(put(b"".join(pieces), f"a.mtx{suffix}")).sum() == 1.5 * n
        path = put(bytes(zeros).join([*pieces, b""]), f"b.mtx{suffix}")
        if zeros and suffix != ".gz":
            with pytest.raises(FileFormatError, match="truncated"):
                read_matrix(path)
        else:
            assert read_matrix(path).sum() == 1.5 * n

    def test_what_follows_the_last(self, put: Callable[..., Path]) -> None:
        assert read_matrix(put(bz2.compress(ONE) + b"signature", "a.mtx.bz2"))[0, 0] == 5
        with pytest.raises(FileFormatError, match="gzip says: Not a gzipped"):
            read_matrix(put(gzip.compress(ONE) + b"signature", "a.mtx.gz"))

    def test_a_pipe(self, tmp_path: Path) -> None:
        if not hasattr(os, "mkfifo"):
            pytest.skip("no named pipes")
        from threading import Thread

        os.mkfifo(tmp_path / "p")
        writer = Thread(target=(tmp_path / "p").write_bytes, args=(ONE,))
        writer.start()
        assert read_matrix(tmp_path / "p")[0, 0] == 5
        writer.join()


def chosen_of(names: list[str]) -> str | None:
    """By the definition: NAME/NAME.mtx alone where there are any; of these the only one that is no companion."""
    paths = [Path(name) for name in names]
    pool = [path for path in paths if path.stem == path.parent.name] or paths
    alone = [path for path in pool if not any(path.stem.startswith(f"{other.stem}_") for other in pool)]
    return str(alone[0]) if len(alone) == 1 else None


class TestArchives:
    @settings(max_examples=100, deadline=None)
    @given(st.lists(st.tuples(st.text("ab_", min_size=1, max_size=5), st.integers(0, 2)), max_size=8, unique=True))
    def test_choice_is_known_as_names_come(self, stems: list[tuple[str, int]]) -> None:
        choice, kept = _Choice(None), None
        names = [("", f"{stem}/", "x/")[place] + f"{stem}.mtx" for stem, place in stems]
        for name in names:
            if choice.add(name):
                kept = name
            elif choice.chosen is None:
                kept = None
        assert choice.chosen == kept == chosen_of(names)

    def test_thousands_are_scanned_once(self, put: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
        seen: list[str] = []
        add = _Choice.add
        monkeypatch.setattr(_Choice, "add", lambda self, name: seen.append(name) or add(self, name))
        members = {f"n/n_{i:04d}.mtx": b"" for i in range(3000)} | {"n/n.mtx": ONE}
        assert read_matrix(put(tar(members), "a.tar"))[0, 0] == 5
        assert seen == list(members)
        several = {f"n/m{i:04d}.mtx": ONE for i in range(100)}
        with pytest.raises(FileFormatError, match=r"several matrices, found n/m0000\.mtx, .* and 92 more; choose one"):
            read_matrix(put(tar(several), "a.tar"))
        assert read_matrix(put(tar(several), "a.tar"), variable="m0077").nnz == 1
        with pytest.raises(ArgumentError, match="no member 'm1'"):
            read_matrix(put(tar(several), "a.tar"), variable="m1")
        with pytest.raises(ArgumentError, match="several members 'b'"):
            read_matrix(put(tar({"x/b.mtx": ONE, "y/b.mtx": ONE}), "a.tar"), variable="b")

    def test_a_sparse_member_claims_what_it_has_not(self, put: Callable[..., Path]) -> None:
        info = tarfile.TarInfo("a/a.mtx")
        info.pax_headers = {"GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.map": "0,0",
                            "GNU.sparse.size": "6000000000", "GNU.sparse.name": "a/a.mtx"}  # fmt: skip
        content = gzip.compress(info.tobuf(tarfile.PAX_FORMAT) + bytes(1024))
        assert len(content) < 200
        with pytest.raises(FileFormatError, match=r"a/a\.mtx as a sparse file.*6 GB.*without --sparse"):
            read_matrix(put(content, "a.tar.gz"))

    @pytest.mark.usefixtures("low_bounds")
    def test_headers_are_bounded(self, put: Callable[..., Path]) -> None:
        long = tarfile.TarInfo("a.mtx")
        long.type, long.size = tarfile.XHDTYPE, 2**21
        content = gzip.compress(long.tobuf(tarfile.USTAR_FORMAT) + bytes(2**21) + tar({"a.mtx": ONE}))
        with pytest.raises(FileFormatError, match="headers of more"):
            read_matrix(put(content, "a.tar.gz"))

    @pytest.mark.usefixtures("low_bounds")
    def test_other_members_are_bounded(self, put: Callable[..., Path]) -> None:
        members = {"a/a.mtx": ONE, "a/picture.png": bytes(2**21)}
        assert read_matrix(put(tar(members), "a.tar"))[0, 0] == 5  # 2 MB that are there
        with pytest.raises(FileFormatError, match=r"beside its matrix.*picture\.png"):
            read_matrix(put(tar(members, "w:gz"), "a.tar.gz"))

    def test_a_broken_header_is_not_the_end(self, put: Callable[..., Path]) -> None:
        content = bytearray(tar({"a_b.mtx": ONE, "a.mtx": ONE}))
        content[1024 + 150] ^= 1  # in the checksum of the second
        with pytest.raises(FileFormatError, match="header is broken"):
            read_matrix(put(bytes(content), "a.tar"))

    def test_zip(self, put: Callable[..., Path]) -> None:
        members = {"readme.html": b"<p>", "net.mtx": ONE, "net_coord.mtx": b"", "__MACOSX/._net.mtx": b"\0"}
        assert read_matrix(put(zipped(members), "a.zip"))[0, 0] == 5
        assert read_matrix(put(zipped(members | {"b.mtx": ONE}), "a.zip"), variable="b").nnz == 1
        with pytest.raises(FileFormatError, match="several matrices"):
            read_matrix(put(zipped(members | {"b.mtx": ONE}), "a.zip"))
        with pytest.raises(FileFormatError, match=r"zip archive without a matrix.*found net\.edges, readme\.html;"):
            read_matrix(put(zipped({"net.edges": b"1 2\n", "readme.html": b""}), "a.zip"))
        with pytest.raises(FileFormatError, match=r"truncated or damaged.*zip says"):
            read_matrix(put(zipped(members)[:-30], "a.zip"))

    @pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
    def test_zips_of_each_compression(self, put: Callable[..., Path], method: int) -> None:
        text = HEAD + b"%" + b"a" * 900_000 + b"\n1 1 1\n1 1 5\n"
        assert read_matrix(put(zipped({"a.mtx": text}, method), "a.zip"))[0, 0] == 5
        A = sp.csr_array((np.ones(200_000), np.zeros(200_000, int), [0, 200_000]))
        arrays = io.BytesIO()
        sp.save_npz(arrays, A, compressed=False)
        with zipfile.ZipFile(arrays) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        path = put(zipped(members, method), "a.npz")
        if method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # as NumPy writes them
            assert read_matrix(path)[0, 0] == 200_000
        else:
            with pytest.raises(FileFormatError, match=rf"akx does not read, found compression method {method}"):
                read_matrix(path)
        damaged = bytearray(zipped({"a.mtx": text}, method))
        damaged[len(damaged) // 2] ^= 255
        with pytest.raises(FileFormatError, match="truncated or damaged"):
            read_matrix(put(bytes(damaged), "a.zip"))

    @pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
    @pytest.mark.parametrize(("key", "begin"), [("a.mtx", ONE), ("data.npy", b"\x93NUMPY\1\0")])
    @pytest.mark.usefixtures("low_bounds")
    def test_a_member_that_unpacks_to_more_than_it_claims(
        self, put: Callable[..., Path], method: int, key: str, begin: bytes
    ) -> None:
        content = bytearray(zipped({key: begin + b"\n" * 2**25}, method))
        for mark, place in ((b"PK\3\4", 22), (b"PK\1\2", 24)):  # where the length of the content stands
            at = content.index(mark) + place
            content[at : at + 4] = (2**16).to_bytes(4, "little")
        tracemalloc.start()
        with pytest.raises(FileFormatError):
            read_matrix(put(bytes(content), "a.npz" if key == "data.npy" else "a.zip"))
        assert tracemalloc.get_traced_memory()[1] < 2**24
        tracemalloc.stop()

    @pytest.mark.parametrize("name", ["a.mtx", "data.npy"])
    @pytest.mark.parametrize(("bit", "method", "found"), [(0, 93, "method 93"), (1, 8, "a password")])
    def test_a_zip_that_needs_another_reader(
        self, put: Callable[..., Path], name: str, bit: int, method: int, found: str
    ) -> None:
        content = bytearray(zipped({name: ONE}))
        for mark, place in ((b"PK\3\4", 6), (b"PK\1\2", 8)):
            at = content.index(mark) + place
            content[at : at + 4] = bytes([bit, 0, method, 0])
        with pytest.raises(FileFormatError, match=rf"akx does not read.*{found}.*unpack it"):
            read_matrix(put(bytes(content), "a.npz" if name == "data.npy" else "a.zip"))

    def test_a_zip_whose_table_lies(self, put: Callable[..., Path]) -> None:
        content = bytearray(zipped({"a.mtx": ONE}))
        table = content.index(b"PK\x01\x02")
        for size in (2**31 - 1, 2 * len(ONE)):
            content[table + 24 : table + 28] = size.to_bytes(4, "little")
            with pytest.raises(FileFormatError, match="damaged"):
                read_matrix(put(bytes(content), "a.zip"))

    def test_names_are_shown_plainly(self) -> None:
        assert listed(["a\x1b[31mb", "c" * 100]) == r"a\x1b[31mb, " + "c" * 29 + "..." + "c" * 28


class TestNpz:
    @staticmethod
    def saved(path: Path, **changes: Any) -> Path:
        arrays: dict[str, Any] = {
            "format": np.bytes_("csr"), "shape": np.array([2, 2]), "indptr": np.array([0, 3, 4], np.int32),
            "indices": np.array([1, 0, 1, 1], np.int32), "data": np.array([100, 3, 100, 2], np.float64),
        }  # fmt: skip
        np.savez(path, **(arrays | changes))
        return path

    @pytest.mark.parametrize(
        ("kind", "becomes"),
        [("float16", "float32"), ("int8", "int64"), ("uint16", "int64"), (">f4", "float32"), (">i2", "int64"),
         ("uint64", "uint64"), ("complex64", "complex64")],
    )  # fmt: skip
    def test_types_that_cannot_be_summed_become_others(self, tmp_path: Path, kind: str, becomes: str) -> None:
        A = read_matrix(self.saved(tmp_path / "a.npz", data=np.array([100, 3, 100, 2]).astype(kind)))
        assert A.dtype == becomes
        assert A.toarray().tolist() == [[3, 200], [0, 2]]

    @pytest.mark.parametrize("values", [np.array(list("abcd")), np.array([1, 2, 3, None]), np.zeros(4, "M8[s]")])
    def test_no_numbers(self, tmp_path: Path, values: Any) -> None:
        with pytest.raises(FileFormatError):
            read_matrix(self.saved(tmp_path / "a.npz", data=values))

    def test_arrays_that_do_not_go_together_are_not_read(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sp, "load_npz", lambda file: pytest.fail("read"))
        with pytest.raises(FileFormatError, match="arrays of 4 and 1000000 entries"):
            read_matrix(self.saved(tmp_path / "a.npz", data=np.zeros(10**6)))

    def test_a_shape_that_is_not_there_is_not_read(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        path = self.saved(tmp_path / "a.npz")
        with zipfile.ZipFile(path) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        members["data.npy"] = members["data.npy"].replace(b"(4,), }     ", b"(4000000000,), }")
        path.write_bytes(zipped(members))
        monkeypatch.setattr(sp, "load_npz", lambda file: pytest.fail("read"))
        with pytest.raises(FileFormatError, match=r"data of .* bytes, where the archive has"):
            read_matrix(path)


def test_memory_that_ends_is_a_typed_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(file: Any) -> Any:
        raise MemoryError("Unable to allocate 7.45 GiB")

    sp.save_npz(tmp_path / "a.npz", sp.eye_array(3, format="csr"))
    monkeypatch.setattr(sp, "load_npz", load)
    with pytest.raises(
        FileFormatError, match=r"does not fit the memory, found Unable to allocate 7\.45 GiB; free some"
    ):
        read_matrix(tmp_path / "a.npz")


def test_a_container_has_less_memory_than_its_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_CGROUPS", tmp_path)
    free = process.available_bytes()
    (tmp_path / "memory.max").write_text("max\n")
    assert process.available_bytes() > free // 2
    for name, text in (("max", "1000"), ("current", "700"), ("stat", "anon 600\ninactive_file 100\n")):
        (tmp_path / f"memory.{name}").write_text(text)
    assert process.available_bytes() == 400


@pytest.mark.parametrize(("outer", "inner", "free"), [("1000", "500", 300), ("400", "max", 200), ("350", "500", 150)])
def test_the_least_of_nested_control_groups_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outer: str, inner: str, free: int
) -> None:
    (tmp_path / "own").write_text("1:name=systemd:/\n0::/user.slice/job.scope\n")
    monkeypatch.setattr(process, "_CGROUPS", tmp_path)
    monkeypatch.setattr(process, "_OWN_CGROUP", tmp_path / "own")
    for group, most in (("user.slice", outer), ("user.slice/job.scope", inner)):
        (tmp_path / group).mkdir()
        for name, text in (("max", most), ("current", "200"), ("stat", "anon 1\n")):
            (tmp_path / group / f"memory.{name}").write_text(text)
    assert process.available_bytes() == free


@pytest.mark.parametrize("kind", ["gz", "bz2", "xz"])
@pytest.mark.parametrize("size", [2**16 - 1, 2**16 + 1, 3 * 2**20])
def test_archives_with_members_of_any_size(put: Callable[..., Path], kind: str, size: int) -> None:
    """A decompressor that is asked for no bytes gives all there are, or none for ever."""
    text = HEAD + b"%" + b"a" * (size - len(HEAD) - 14) + b"\n1 1 1\n1 1 5\n"
    assert len(text) == size
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=f"w:{kind}") as archive:
        for name, content in (("A/A.mtx", text), ("A/A_b.mtx", b"0" * 2**21)):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    assert read_matrix(put(buffer.getvalue(), f"A.tar.{kind}"))[0, 0] == 5
