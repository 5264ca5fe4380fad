"""Plans, keys and records to test with, and a way to run code without the rights of root."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from akx.backends.revisions import SOLVERS, revision
from akx.core.plan import Plan
from akx.plandb import PlanKey, PlanRecord, SolverTiming, TimingKey


def make_key(number: int = 0, **changes: Any) -> PlanKey:
    """A key for pattern `number`, that of :func:`make_plan`."""
    fields: dict[str, Any] = {
        "fingerprint": f"{number:064x}",
        "dtype": "float64",
        "index_type": "int32",
        "basis": "monomial",
        "k": 8,
        "start_vectors": 1,
        "device_class": "cpu/Some Processor/2 cores",
        "revisions": "plan 1, wavefront 1, sell16 1",
    }
    return PlanKey(**(fields | changes))


def of_search(number: int = 0, **changes: Any) -> PlanKey:
    """The key of a search for pattern `number`."""
    return make_key(number, **{"revisions": ""} | changes)


def make_plan(k: int = 8, **changes: Any) -> Plan:
    """A plan for k powers."""
    fields: dict[str, Any] = {
        "backend": "cpu", "schedule": "wavefront", "variant": "sell16", "k": k, "k_per_pass": min(k, 4), "threads": 2,
        "options": {"sigma": 256, "prefetch": True, "share": 0.1, "order": "rcm"},
    }  # fmt: skip
    return Plan(**(fields | changes))


def make_record(number: int = 0, *, seconds: float = 1e-3, key: PlanKey | None = None, **changes: Any) -> PlanRecord:
    """A record for pattern `number`."""
    key = of_search(number) if key is None else key
    fields: dict[str, Any] = {
        "key": key,
        "plan": make_plan(key.k),
        "seconds": seconds,
        "baseline_name": "sweep/csr",
        "baseline_seconds": 2e-3,
        "prepare_seconds": 0.25,
        "tuning_seconds": 31.5,
        "created": "2024-05-06T07:08:09.123456+00:00",
        "matrix_name": f"matrix{number}.mtx",
        "provenance": {"machine": {"cores": 2}, "samples": [0.1, 0.2, 1 / 3]},
        "trials": {"complete": 20, "pruned": 3, "failed": 1},
    }
    return PlanRecord(**(fields | changes))


def make_timing(number: int = 0, *, of: PlanRecord | None = None, **changes: Any) -> SolverTiming:
    """What steps of cg and ca_cg took for pattern `number`; given a plan, the s of ca_cg that was found with it."""
    solver, steps = ("cg", {"cg": 2e-3, "ca_cg": 1 / 900}) if of is None else ("ca_cg", {"ca_cg": 1 / 900})
    key = make_key(number) if of is None else of.key
    names = ("fingerprint", "dtype", "index_type", "device_class")
    fields: dict[str, Any] = {name: getattr(key, name) for name in names}
    fields |= {"solver": solver, "basis": key.basis, "revision": revision("cpu", SOLVERS)}
    asked = {name: changes.pop(name) for name in [*changes] if name in TimingKey.__dataclass_fields__}
    figures: dict[str, Any] = {"seconds": steps, "created": "2024-06-07T08:09:10.000011+00:00"}
    if of is not None:
        figures |= {"best_s": 8, "plan_created": of.created, "matrix_name": of.matrix_name}
    return SolverTiming(TimingKey(**(fields | asked)), **(figures | changes))


def without_root(action: Callable[[], object]) -> Any:
    """The result of `action`, run by a process for which permission bits count; its exception is raised here."""
    if not hasattr(os, "geteuid"):
        pytest.skip("permission bits mean something else on this system")
    if os.geteuid() != 0:
        return action()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            answer: tuple[bool, object] = (True, action())
        except BaseException as error:
            answer = (False, error)
        try:
            with os.fdopen(writer, "wb") as stream:
                pickle.dump(answer, stream)
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as stream:
        data = stream.read()
    os.waitpid(child, 0)
    fine, result = pickle.loads(data)
    if fine:
        return result
    raise result
