"""Time that passes only where somebody sleeps, so that nothing else can be seen in a figure; and a result."""

from __future__ import annotations

from typing import Any

__all__ = ["Seconds", "TunerSeconds", "gpu_entry"]


class Seconds:
    """What `benchmarks.clock` uses of the module `time`."""

    def __init__(self) -> None:
        self.now = 0.0

    def perf_counter(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class TunerSeconds:
    """A clock for the tuner (:class:`akx.tuner.measure.Clock`), with the same `sleep`."""

    def __init__(self) -> None:
        self.passed = 0.0

    def now(self) -> float:
        self.passed += 1e-9  # looking takes a while
        return self.passed

    def pause(self, seconds: float) -> None:
        self.passed += seconds

    sleep = pause


def gpu_entry(matrix: str = "brick", k: int = 16, step: float = 5e-6, **more: Any) -> dict[str, Any]:
    """An entry of :mod:`benchmarks.gpu`: CSR takes 5 times as long as `step` seconds, SpMVOp 4 times."""
    plan = {"schedule": "resident", "variant": "1x1-1", "spread": 0.01}
    times = {
        name: factor * k * step for name, factor in (("cusparse_alg1", 5), ("cusparse_alg2", 6), ("cusparse_op1", 4))
    }
    row = {**times, "akx": k * step, "untuned": 2 * k * step, "cupy": 9 * k * step}
    return {
        "matrix": matrix,
        "group": "gallery",
        "rows": 3,
        "nnz": 5,
        "k": k,
        "dtype": "float64",
        "baselines": times,
        "best": {**plan, "seconds": k * step},
        "speedup": 5.0,
        "speedup_best": 4.0,
        "spreads": dict.fromkeys(row, 0.01),
        "latency": {name: seconds + 1e-5 for name, seconds in row.items()},
        "untuned": {**plan, "seconds": 2 * k * step, "plan": "cuda/sweep/csr-1"},
        "loop": 9 * k * step,
        "refused": [],
        "prepare_seconds": 0.1,
        "error": 0.1,
        "plan": "cuda/resident/1x1-1",
        "tuner_seconds": 0.9 * k * step,
        "tuning_seconds": 20.0,
        "tuned_within": 20.0,
        "stopped": "time budget",
        "trials": 30,
        "sweep": 3 * k * step,
        **more,
    }
