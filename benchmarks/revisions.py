"""The lock of kernel sources, ``akx/backends/revisions.json``: what it should say, and the command that writes it.

    python -m benchmarks.revisions           say what has changed; the exit code is 1 where something has
    python -m benchmarks.revisions --write   after revisions were raised where plans would be chosen anew
    python -m benchmarks.revisions --equal   of changes that choose and run the same plans as well: none is aged
    python -m benchmarks.revisions --aged    of changes that may tell: plans stay, and are raced before they are used

A schedule depends, of the sources of the kernels and of the formats, on its module, on what that imports, wherever in
the text, on the ``.cu`` files that these modules name by ``with_name`` or below ``ROOT``, and on what those include; of
the other backend's too, where it has them do some of its work. Modules that say which plans a search tries, and what
they should cost, run nothing of a plan and are left out. Of a source the tokens count: comments, docstrings and layout
do not, nor what declares revisions.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import re
import sys
import tokenize
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from akx.backends import registry
from akx.backends.revisions import ALL, LOCK, SOLVERS

__all__ = ["changes", "declared", "digests", "is_of_searches", "main", "of_searches", "tokens"]

_PACKAGE = LOCK.parents[1]
_SUFFIXES = frozenset({".py", ".cu", ".cuh"})
_OF_SEARCHES = re.compile(
    r"(?:.*/)?(?:\w+_(?:space|offers|work)|backend|choices|timing|variants|work)\.py"
    r"|(?:.*/)?cpu/(?:cost|device_model|search_space|schedules/\w+/(?:options|cost))\.py"
    r"|(?:.*/)?cuda/(?:cost/[a-z]\w*|(?:\w+/)+(?:options|cost|\w+_cost|search))\.py"
)

#: In the text of a source: ``from akx... import ...``, a file beside it, an include.
_IMPORT = re.compile(r"^[ \t]*from[ \t]+(akx[\w.]*)[ \t]+import[ \t]*(\([^)]*\)|[^\n]*)", re.MULTILINE)
_WITH_NAME = re.compile(r'with_name\("([\w.]+)"\)')
_BELOW_ROOT = re.compile(r'ROOT / "([\w./]+)"')
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+"([\w./]+)"', re.MULTILINE)

_C_COMMENT = re.compile(r'//[^\n]*|/\*.*?\*/|("(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\')', re.DOTALL)
_C_TOKEN = re.compile(
    r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])*\'|[\w.]+|<<=|>>=|<=>|\.\.\.|<<|>>|\+\+|--|->|&&|\|\||::|##|[-+*/%&|^<>=!]=|\S'
)
#: What a logical line begins with that declares revisions.
_DECLARES = (("revision", "="), ("revision", ":"), ("REVISIONS", ":"))
_STRUCTURE = {tokenize.INDENT: "indent", tokenize.DEDENT: "dedent"}


def is_of_searches(path: Path) -> bool:
    """Whether a source says which plans there are, what they should cost, or measures a device: no program runs it."""
    return _OF_SEARCHES.fullmatch(path.as_posix()) is not None


def of_searches(backend: str) -> frozenset[str]:
    """Where such modules of a backend are, relative to it."""
    folder = _PACKAGE / "backends" / backend
    return frozenset(path.relative_to(folder).as_posix() for path in folder.rglob("*.py") if is_of_searches(path))


def tokens(text: str, suffix: str) -> list[str]:
    """The tokens of a source of Python, or of C, that make a difference."""
    text = text.replace("\r\n", "\n")
    return list(_of_python(text) if suffix == ".py" else _of_c(text))


def _of_python(text: str) -> Iterator[str]:
    lines = text.splitlines(keepends=True)
    logical: list[str] = []
    depth, begin = 0, (0, 0)
    start, end = getattr(tokenize, "FSTRING_START", -1), getattr(tokenize, "FSTRING_END", -1)
    for kind, string, first, last, _ in tokenize.generate_tokens(io.StringIO(text).readline):
        if kind == start:  # from Python 3.12 on a string with fields is several tokens
            begin, depth = (first if depth == 0 else begin), depth + 1
        elif kind == end:
            depth -= 1
            if depth == 0:
                logical.append(_between(lines, begin, last))
        elif depth:
            continue
        elif kind in _STRUCTURE:
            yield _STRUCTURE[kind]
        elif kind == tokenize.NEWLINE:
            if logical[:2] and tuple(logical[:2]) not in _DECLARES and not _is_docstring(logical):
                yield from (*logical, "newline")
            logical = []
        elif kind not in (tokenize.COMMENT, tokenize.NL, tokenize.ENDMARKER):
            logical.append(string)


def _between(lines: Sequence[str], first: tuple[int, int], last: tuple[int, int]) -> str:
    if first[0] == last[0]:
        return lines[first[0] - 1][first[1] : last[1]]
    inner = lines[first[0] : last[0] - 1]
    return "".join([lines[first[0] - 1][first[1] :], *inner, lines[last[0] - 1][: last[1]]])


def _is_docstring(logical: Sequence[str]) -> bool:
    return len(logical) == 1 and logical[0].rstrip("\"'") != logical[0]


def _of_c(text: str) -> Iterator[str]:
    """Lines count where they are directives."""
    text = _C_COMMENT.sub(lambda found: found[1] or " ", text.replace("\\\n", " "))
    for line in text.split("\n"):
        is_directive = line.lstrip().startswith("#")
        yield from (["directive"] if is_directive else [])
        yield from _C_TOKEN.findall(line)
        yield from (["newline"] if is_directive else [])


def digests(package: Path = _PACKAGE, modules: Mapping[str, Mapping[str, str]] | None = None) -> dict[str, str]:
    """By backend and schedule, ``"cpu/sweep"``, the digest of the sources that it depends on.

    Parameters
    ----------
    package : Path
        Where the sources are.
    modules : mapping, optional
        By backend, the modules of its schedules; those of the registry by default.
    """
    if modules is None:
        modules = {backend: registry.modules(backend) for backend in registry.backends()}
    texts, named = _sources(package)
    lines = {name: f"{name} {_digest(tokens(text, Path(name).suffix))}" for name, text in texts.items()}
    found: dict[str, str] = {}
    for backend, of_backend in modules.items():
        reached = {schedule: _reached(named, module) for schedule, module in of_backend.items()}
        reached[ALL] = set().union(*reached.values())
        reached[SOLVERS] = {name for name in named if name.startswith(f"backends/{backend}/")} - reached[ALL]
        found |= {f"{backend}/{one}": _digest(sorted(lines[name] for name in names)) for one, names in reached.items()}
    return found


def _sources(package: Path) -> tuple[dict[str, str], dict[str, list[str]]]:
    """The texts of all sources, and by each of them that a plan may run the others that it names."""
    kernels = package / "backends"
    folders = [path.parent for path in sorted(kernels.glob("*/__init__.py"))]
    places = (*folders, package / "formats")
    paths = [path for place in places for path in sorted(place.rglob("*")) if path.suffix in _SUFFIXES]
    declared = [
        path
        for path in (kernels / "schedule.py", kernels / "program.py", package / "core" / "options.py")
        if path.exists()
    ]
    texts = {path.relative_to(package).as_posix(): path.read_text("utf-8") for path in (*declared, *paths)}
    run = {name for name in texts if not is_of_searches(Path(name))}
    return texts, {name: [one for one in _named_in(name, texts[name]) if one in run] for name in run}


def _digest(parts: Iterable[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _reached(named: Mapping[str, Sequence[str]], module: str) -> set[str]:
    left, reached = ["backends/schedule.py", _file_of(module)], set[str]()
    while left:
        name = left.pop()
        if name not in reached:
            reached.add(name)
            left += named[name]
    return reached


def _named_in(name: str, text: str) -> Iterator[str]:
    """The files that a source imports, names or includes; some of them may not be there."""
    folder, root = name.rpartition("/")[0], "/".join(name.split("/")[:2])  # of the backend
    if not name.endswith(".py"):
        yield from (f"{place}/{one}" for one in _INCLUDE.findall(text) for place in {folder, root})
        return
    yield from (f"{place.as_posix()}/__init__.py" for place in Path(name).parents)
    yield from (f"{folder}/{one}" for one in _WITH_NAME.findall(text))
    yield from (f"{root}/{one}" for one in _BELOW_ROOT.findall(text))
    for module, names in _IMPORT.findall(text):
        yield _file_of(module)
        yield f"{_file_of(module).removesuffix('.py')}/__init__.py"
        yield from (_file_of(f"{module}.{one}") for one in re.findall(r"\w+", names))


def _file_of(module: str) -> str:
    """Where the text of a module is, below the package."""
    return f"{module.removeprefix('akx.').replace('.', '/')}.py"


def declared() -> tuple[dict[str, int], dict[str, dict[str, int]]]:
    """The revisions of schedules and of solvers' vector work, and those of variants by backend, as declared."""
    from akx.backends.cpu import variants
    from akx.backends.cpu.vectors import team_vectors as vectors
    from akx.backends.cuda.variants import options as choices
    from akx.backends.cuda.vectors import solver_vectors as cuda_vectors

    schedules = [one for backend in registry.backends() for one in registry.schedules(backend)]
    found = {f"{one.backend}/{one.name}": one.revision for one in schedules}
    found |= {f"cpu/{SOLVERS}": vectors.VectorWork.revision, f"cuda/{SOLVERS}": cuda_vectors.CudaVectorWork.revision}
    return found, {"cpu": dict(variants.REVISIONS), "cuda": dict(choices.REVISIONS)}


def changes(lock: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """What the lock does not have as it is; and of that the schedules that changed without another revision."""
    numbers, variants = declared()
    now, then = digests(), lock["sources"]
    moved = [backend for backend, known in variants.items() if known != lock["variants"].get(backend)]
    changed = [name for name in now if name not in then or now[name] != then[name]["tokens"]]
    raised = {name for name, number in numbers.items() if name not in then or number > then[name]["revision"]}
    other = [name for name, number in numbers.items() if name in raised or number != then[name]["revision"]]
    exempt = tuple(f"{backend}/" for backend in moved)
    left = [name for name in changed if name not in raised and not name.endswith(f"/{ALL}")]
    told = [*changed, *other, *(name for name in then if name not in now), *(f"{name} variants" for name in moved)]
    return list(dict.fromkeys(told)), [name for name in left if not name.startswith(exempt)]


def _written(lock: Mapping[str, Any], *, equal: bool) -> dict[str, Any]:
    numbers, variants = declared()
    found: dict[str, Any] = {}
    for name, digest in digests().items():
        number, then = numbers.get(name, 1), lock["sources"].get(name)
        kept: list[str] = []
        if then is not None and number == then["revision"]:
            kept = [*then["equal"], then["tokens"]] if equal or digest == then["tokens"] else []
        found[name] = {"revision": number, "tokens": digest, "equal": [one for one in kept if one != digest]}
    return {"variants": variants, "sources": found}


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare, or write; the exit code is 1 where the lock is not as the sources are."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.revisions", description="The lock of kernel sources.")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--write", action="store_true", help="revisions were raised for all that has changed")
    how.add_argument("--equal", action="store_true", help="what has changed runs the same plans as well")
    how.add_argument("--aged", action="store_true", help="plans of what has changed are raced before they are used")
    options = parser.parse_args(arguments)
    lock = json.loads(LOCK.read_text("utf-8"))
    changed, left = changes(lock)
    for name in changed:
        unsaid = name in left and not (options.equal or options.aged)
        print(f"{name}: changed" + (", revision not raised" if unsaid else ""))
    if options.write and left:
        print("raise `revision` where their plans would be chosen anew; else --equal, or --aged", file=sys.stderr)
        return 1
    if options.write or options.equal or options.aged:
        text = json.dumps(_written(lock, equal=options.equal), indent=1) + "\n"
        LOCK.write_text(text, encoding="utf-8", newline="\n")
        print(f"{LOCK.name}: written")
        return 0
    return 1 if changed else 0


if __name__ == "__main__":
    sys.exit(main())
