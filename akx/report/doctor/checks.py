"""All checks of ``akx doctor``: what is installed, what is missing and how to get it, and what akx sees here."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from akx.backends.selection import array_backend, backend_of
from akx.core.errors import AkxError
from akx.report.doctor.check import Check
from akx.report.doctor.gpu import gpu, gpu_memory, nvidia_driver, usable_backends
from akx.report.doctor.machine import calibrations, machine
from akx.report.doctor.packages import (
    akx_version,
    compiled_code,
    disk_caches,
    mkl,
    optional_package,
    python_version,
    required_package,
)
from akx.report.doctor.plan_layers import plan_layers
from akx.report.doctor.process import folders, limits, thread_variables

__all__ = ["inspect_environment"]
_REQUIRED = ("numpy", "scipy", "numba", "pymetis", "optuna", "platformdirs", "typer", "rich")
#: module -> (distribution, extra, what it is for)
_OPTIONAL = {
    "mtkahypar": ("mtkahypar", "hypergraph", "hypergraph partitions"),
    "matplotlib": ("matplotlib", "plot", "figures"),
    "psycopg": ("psycopg", "postgres", "plans on a server"),
}


def inspect_environment(db: str | None = None) -> dict[str, list[Check]]:
    """All checks by group, those of python first; none raises, whatever the environment is like.

    Parameters
    ----------
    db : str, optional
        The plan database to look at; by default that of the environment.
    """
    looks: dict[str, list[tuple[str, Callable[[], Iterable[Check]]]]] = {
        # First: most of what follows needs it.
        "caches": [("compiled code", compiled_code), ("disk caches", disk_caches)],
        "python": [("python", lambda: [python_version(), akx_version()])],
        "environment": [("variables", thread_variables), ("folders", folders), ("limits", limits)],
        "packages": [(name, partial(required_package, name)) for name in _REQUIRED],
        "optional": [
            ("mkl", lambda: [mkl()]),
            *((about[0], partial(optional_package, module, *about)) for module, about in _OPTIONAL.items()),
        ],
        "gpu": [
            ("nvidia driver", lambda: [nvidia_driver()]),
            *((about[0], partial(optional_package, module, *about)) for module, about in _of_gpu().items()),
            ("gpu", gpu),
            ("gpu memory", gpu_memory),
            ("backends", lambda: [usable_backends()]),
        ],
        "machine": [("machine", machine), ("calibration", calibrations)],
        "database": [("plans", lambda: plan_layers(db))],
    }
    told: set[str] = set()
    found = {
        title: [check for name, look in group for check in _safely(name, look, told)] for title, group in looks.items()
    }
    order = ("python", "environment", "packages", "optional", "gpu", "machine", "caches", "database")
    return {title: found[title] for title in order if found[title]}


def _of_gpu() -> dict[str, tuple[str, str, str]]:
    backend = backend_of(array_backend())
    return {module: (package, backend.extra, "the GPU backend") for module, package in backend.modules.items()}


def _safely(name: str, look: Callable[[], Iterable[Check]], told: set[str]) -> list[Check]:
    """What a look finds. Where it fails that is the finding: once, as many may fail for the same reason."""
    checks: list[Check] = []
    try:
        checks.extend(look())
    except Exception as error:
        if str(error) in told:
            return checks
        told.add(str(error))
        if isinstance(error, AkxError):
            parts = (
                error.what,
                error.expected and f"expected {error.expected}",
                error.found and f"found {error.found}",
            )
            checks.append(Check(name, "problem", ", ".join(part for part in parts if part), error.hint or ""))
        else:
            text = " ".join(f"{type(error).__name__}: {error}".split())
            checks.append(Check(name, "problem", text, "correct what it names, or report it"))
    return checks
