"""Plans that were recorded for the benchmark of solvers on a GPU."""

from __future__ import annotations

import pytest

from benchmarks import steps, steps_gpu


def test_labels_say_all_of_a_plan() -> None:
    for labels in steps_gpu._labels().values():
        for k, label in labels:
            assert steps_gpu.parsed(label, k).label() == label
    for label in (
        "cpu/wavefront/dia natural k=4x2 block=64KiB threads=2 sigma=1 split=interleaved",
        "cpu/ghost/csr16 metis k=8x1 block=1.5KiB threads=1",
        "cuda/sweep/pcsr natural k=1x8 threads=1 ahead=4 block=256 once=True pad=2 sigma=1 stored=full",
    ):
        assert steps_gpu.parsed(label, 8).label() == label


@pytest.mark.parametrize(("k", "vectors"), [(1, 1), (8, 2), (6, 1)])
def test_every_matrix_has_candidates(k: int, vectors: int) -> None:
    for name in (*steps.DEFINITE, *steps.OTHERS):
        found = list(steps_gpu._candidates(name, k, vectors))
        assert found
        assert all(plan.k == k and plan.k_per_pass <= k for plan in found)
        both = [plan for plan in found if plan.options.get("vectors") == 2 or plan.schedule == "wavefront"]
        assert vectors == 1 or k == 1 or both
