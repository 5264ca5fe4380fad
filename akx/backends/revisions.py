"""Revisions of schedules and variants, and the sources behind them, by the lock ``revisions.json``.

A schedule has an attribute ``revision``, an integer that is raised when its plans would be chosen anew; so has the
vector work of solvers. Variants have theirs in ``REVISIONS`` of ``cpu/variants/__init__.py`` and
``cuda/variants/options.py``, 1 where it has none. Plans of another revision are never used.

The lock repeats these, so that nothing has to be imported for them, and has for each schedule a digest of the tokens of
the sources that it depends on, comments and layout left out, and those of earlier sources that are known to be as good.
A plan of other sources is *aged*. `python -m benchmarks.revisions` writes the lock; a test fails where it is not as the
sources are.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from akx.core.errors import DatabaseError

__all__ = ["ALL", "LOCK", "SOLVERS", "Sources", "revision", "sources", "variant_revision"]

LOCK = Path(__file__).with_name("revisions.json")
#: In the place of a schedule: all of a backend, and all with the vector work of solvers.
ALL, SOLVERS = "all", "solvers"
_LANES = re.compile(r"-\d+$")


@dataclass(frozen=True)
class Sources:
    """What a schedule depends on.

    Attributes
    ----------
    revision : int
    tokens : str
        Digest of the tokens of its sources.
    equal : frozenset of str
        Digests of earlier sources that choose, and run, the same plans as well.
    """

    revision: int
    tokens: str
    equal: frozenset[str]

    def are(self, digest: str) -> bool:
        """Whether sources of another akx are these, or as good."""
        return digest == self.tokens or digest in self.equal


def sources(backend: str, schedule: str) -> Sources | None:
    """The sources of a schedule, or :data:`ALL` or :data:`SOLVERS`; None of one that the lock does not have."""
    return _lock()[0].get(f"{backend}/{schedule}")


def revision(backend: str, schedule: str) -> int:
    """The revision of a schedule: by the lock, or as one of another package declares it; else 1."""
    found = sources(backend, schedule)
    if found is not None:
        return found.revision
    from akx.backends import registry

    other = registry.find(backend, schedule)
    return 1 if other is None else other.revision


def variant_revision(backend: str, variant: str) -> int:
    """The revision of a variant: its own, or that of its name without lanes, else 1."""
    from akx.backends import registry

    other = registry.variant(backend, variant)
    if other is not None:
        return other.revision
    known = _lock()[1].get(backend, {})
    return known.get(variant) or known.get(_LANES.sub("", variant), 1)


@lru_cache(maxsize=1)
def _lock() -> tuple[Mapping[str, Sources], Mapping[str, Mapping[str, int]]]:
    try:
        content = json.loads(LOCK.read_bytes())
        found = {
            name: Sources(int(entry["revision"]), str(entry["tokens"]), frozenset(entry["equal"]))
            for name, entry in content["sources"].items()
        }
        return found, {backend: dict(known) for backend, known in content["variants"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DatabaseError(
            "revisions of kernels cannot be read", found=str(error), hint="install akx again"
        ) from error
