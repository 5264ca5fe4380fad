"""What Numba needs of the environment: said before it is imported, and given where akx can."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import platformdirs
import pytest
from numba.core import config

from akx.core import numba_jit
from akx.core.errors import AkxError, ArgumentError, CompileError


@pytest.fixture(autouse=True)
def _as_at_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numba_jit, "_checked", False)
    for name in ("NUMBA_NUM_THREADS", "NUMBA_DISABLE_JIT", "NUMBA_CACHE_LOCATOR_CLASSES"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("text", ["0", "-1", "abc", "2.5", "1e3", "2000000", "9" * 5000])
def test_what_is_no_number_of_threads_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("NUMBA_NUM_THREADS", text)
    with pytest.raises(ArgumentError, match="NUMBA_NUM_THREADS is not a number of threads, expected an integer from 1"):
        numba_jit.check_numba()


def test_no_number_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    assert numba_jit.named_threads() is None
    monkeypatch.setenv("NUMBA_NUM_THREADS", " 3 ")
    assert numba_jit.named_threads() == 3


def test_a_process_with_zero_threads_gets_an_error_of_akx() -> None:
    """Numba itself raises ValueError when it is imported; what needs none of it works."""
    script = (
        "import akx\n"
        "assert not akx.PlanDatabase('none.sqlite').list()\n"
        "for name in ('MatrixPowers', 'tune'):\n"
        "    try:\n"
        "        getattr(akx, name)\n"
        "    except akx.AkxError as error:\n"
        "        assert 'NUMBA_NUM_THREADS' in str(error)\n"
        "    else:\n"
        "        raise SystemExit(name)\n"
    )
    environment = {**os.environ, "NUMBA_NUM_THREADS": "0"}
    subprocess.run([sys.executable, "-c", script], check=True, env=environment)


@pytest.mark.parametrize("text", ["1", "-1", " 2 "])
def test_a_compiler_that_is_turned_off_is_named(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("NUMBA_DISABLE_JIT", text)
    with pytest.raises(CompileError, match="unset NUMBA_DISABLE_JIT"):
        numba_jit.check_numba()


def test_a_compiler_that_is_turned_off_in_the_process_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "DISABLE_JIT", 1)
    with pytest.raises(CompileError, match="NUMBA_DISABLE_JIT"):
        numba_jit.check_numba()


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Neither home nor sources can be written to; returns the folder of temporary files."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", "")
    monkeypatch.setattr(config, "CACHE_DIR", "")
    monkeypatch.setattr(numba_jit, "_has_home", lambda: False)
    monkeypatch.setattr(numba_jit, "_has_sources", lambda: False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_without_a_place_code_is_kept_in_a_temporary_folder_of_its_own(nowhere: Path) -> None:
    numba_jit.check_numba()
    folder = Path(os.environ["NUMBA_CACHE_DIR"])
    assert folder.parent == nowhere
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert Path(config.CACHE_DIR) == folder == numba_jit.code_folder()


@pytest.mark.parametrize("how", ["link", "open to others", "a file"])
def test_a_temporary_folder_that_others_may_have_made_is_not_used(nowhere: Path, how: str) -> None:
    """Code is loaded from it."""
    folder = nowhere / f"akx-numba-{os.getuid()}"
    if how == "link":
        (nowhere / "theirs").mkdir(mode=0o700)
        folder.symlink_to(nowhere / "theirs")
    elif how == "a file":
        folder.touch()
    else:
        folder.mkdir()
        folder.chmod(0o777)
    with pytest.raises(AkxError, match="set NUMBA_CACHE_DIR to a folder that you can write to"):
        numba_jit.check_numba()


def test_a_folder_that_is_named_is_left_as_it_is(nowhere: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(nowhere / "named" / "deep"))
    numba_jit.check_numba()
    assert os.environ["NUMBA_CACHE_DIR"] == str(nowhere / "named" / "deep")


def test_numba_is_imported_through_the_check() -> None:
    """All but kernels of the CPU, which come after it."""
    package = Path(numba_jit.__file__).parents[1]
    direct = {
        path.relative_to(package).parts[:2]
        for path in package.rglob("*.py")
        if any(line.startswith(("from numba import", "import numba")) for line in path.read_text().splitlines())
    }
    assert direct == {("backends", "cpu")}


def test_numba_comes_without_scipys_linear_algebra_and_is_whole() -> None:
    """To import that took a sixth of the time to a first compiled call; Numba has it where a function needs it."""
    script = """
import gc, sys
from akx.core import numba_jit
numba_jit.load_numba()
young = sum(len(gc.get_objects(generation=one)) for one in (0, 1))
assert young < len(gc.get_objects()) / 10, young
assert gc.isenabled()
import akx.backends.cpu.schedules.sweep.schedule
assert "numba.np.arraymath" in sys.modules
assert "scipy.linalg" not in sys.modules
from numba.np import arraymath, linalg
assert arraymath._HAVE_BLAS
assert arraymath.ensure_blas is linalg.ensure_blas
linalg.ensure_blas()
assert "scipy.linalg.cython_blas" in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_threads_may_be_the_first_to_need_numba() -> None:
    """All at once; one imports it."""
    script = """
import sys, threading
from akx.core.numba_jit import njit
for i in range(12):
    exec(f"@njit(cache=False)\\ndef f{i}(x): return x + {i}")
gate, wrong = threading.Barrier(12), []
sys.setswitchinterval(1e-5)
def call(i):
    gate.wait()
    try:
        assert globals()[f"f{i}"](1) == 1 + i
    except BaseException as error:
        wrong.append(repr(error))
threads = [threading.Thread(target=call, args=(i,)) for i in range(12)]
for one in threads: one.start()
for one in threads: one.join()
assert not wrong, wrong[0]
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_a_function_is_compiled_when_it_is_called_with_those_that_it_calls() -> None:
    """And takes its place in its module, where compiled code looks for it."""
    script = (
        "import sys\n"
        "from akx.core.numba_jit import njit\n"
        "@njit(cache=False)\n"
        "def twice(x): return 2 * x\n"
        "@njit(cache=False)\n"
        "def steps(n): return 0 if n == 0 else twice(1) + steps(n - 1)\n"
        "assert 'numba' not in sys.modules and steps.__name__ == 'steps'\n"
        "outer = steps\n"
        "assert steps(3) == 6 == outer(3)\n"
        "assert [type(one).__name__ for one in (twice, steps)] == 2 * ['CPUDispatcher']\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_machine_code_calls_what_was_compiled_into_it() -> None:
    """No symbol of an inner function is weak: then the process would choose among those of all that call it."""
    script = """
from llvmlite.binding import Linkage
from akx.core.numba_jit import njit
exec("def inner(x):\\n" + 200 * "    x = x * x - 0.5 / x\\n" + "    return x")
inner = njit(cache=False)(inner)
@njit(cache=False)
def outer(x): return inner(x) - inner(1 / x)
@njit(cache=False)
def outermost(x): return outer(x) + inner(x + 1)
outermost(0.3)
for function in inner, outer, outermost:
    own = function.compiled if hasattr(function, "compiled") else function
    (made,) = own.overloads.values()
    linkages = {one.name: one.linkage for one in made.library.get_defined_functions()}
    assert set(linkages.values()) <= {Linkage.external, Linkage.internal}, linkages
    assert any("inner" in name and linkages[name] is Linkage.internal for name in linkages) is (function is not inner)
"""
    subprocess.run([sys.executable, "-c", script], check=True)


def test_schedules_of_a_gpu_are_declared_without_numba() -> None:
    script = (
        "import sys, akx.operator.planner\n"
        "from akx.backends import registry\n"
        "for name in ('sweep', 'ghost', 'resident', 'wavefront'):\n"
        "    registry.get('cuda', name)\n"
        "assert 'numba' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_without_a_home_there_is_no_room_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home(*_: object, **__: object) -> None:
        raise RuntimeError("could not determine the home directory for '~/.cache'")

    monkeypatch.setattr(platformdirs, "user_cache_path", no_home)
    assert not numba_jit._has_home()
