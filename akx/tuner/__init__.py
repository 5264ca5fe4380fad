"""From a matrix to a plan: :func:`tune` measures, :func:`predict` only models, :func:`exhaustive` measures all.

:mod:`akx.tuner.search.tune` tells how: a `request` on a `space` of plans; `candidates`, from the database (`history`,
`fallback`), a `model` and its `surrogate`; each a `trial`, with code from `warmup`, in a `sandbox`, timed by `measure`;
the best of them by `select`. `online` does the same with a user's own calls. :func:`read_recording` has the trials that
a tuning wrote to a file (`trace`), and :func:`replay` searches over them. What is not asked for is not imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from akx.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from akx.tuner.history.result import RESULT_SCHEMA, Counts, Finalist, Roofline, TuneResult, Untuned
    from akx.tuner.history.trial import Progress, Trial
    from akx.tuner.model.predict import predict
    from akx.tuner.request import Settings
    from akx.tuner.search.exhaustive import exhaustive
    from akx.tuner.search.replay import REPLAY_SCHEMA, ReplayResult, replay
    from akx.tuner.search.tune import tune
    from akx.tuner.space import plan_key
    from akx.tuner.trace.recording import RECORDING_SCHEMA, RecordedTrial, Recording, Run, read_recording

__all__ = [
    "RECORDING_SCHEMA",
    "REPLAY_SCHEMA",
    "RESULT_SCHEMA",
    "Counts",
    "Finalist",
    "Progress",
    "RecordedTrial",
    "Recording",
    "ReplayResult",
    "Roofline",
    "Run",
    "Settings",
    "Trial",
    "TuneResult",
    "Untuned",
    "exhaustive",
    "plan_key",
    "predict",
    "read_recording",
    "replay",
    "tune",
]

__getattr__ = lazy_names(
    __name__,
    {
        **dict.fromkeys(
            ("RECORDING_SCHEMA", "RecordedTrial", "Recording", "Run", "read_recording"), "akx.tuner.trace.recording"
        ),
        **dict.fromkeys(("REPLAY_SCHEMA", "ReplayResult", "replay"), "akx.tuner.search.replay"),
        **dict.fromkeys(
            ("RESULT_SCHEMA", "Counts", "Finalist", "Roofline", "TuneResult", "Untuned"), "akx.tuner.history.result"
        ),
        **dict.fromkeys(("Progress", "Trial"), "akx.tuner.history.trial"),
        "Settings": "akx.tuner.request",
        "plan_key": "akx.tuner.space",
        "predict": "akx.tuner.model.predict",
        "exhaustive": "akx.tuner.search.exhaustive",
        "tune": "akx.tuner.search.tune",
    },
)
