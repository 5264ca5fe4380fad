"""From a matrix to a plan: :func:`tune` measures, :func:`predict` only models, :func:`exhaustive` measures all.

:func:`read_recording` has the trials that either wrote to a file, and :func:`replay` searches over them.
Searching is imported when it is asked for; a call of an untuned matrix needs none of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from akx.core.lazy_names import lazy_names
from akx.tuner.model.predict import predict

if TYPE_CHECKING:
    from akx.tuner.history.result import RESULT_SCHEMA, Counts, Finalist, Progress, Roofline, Trial, TuneResult, Untuned
    from akx.tuner.request import Settings
    from akx.tuner.search.replay import REPLAY_SCHEMA, ReplayResult, replay
    from akx.tuner.search.tune import exhaustive, tune
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
            ("RESULT_SCHEMA", "Counts", "Finalist", "Progress", "Roofline", "Trial", "TuneResult", "Untuned"),
            "akx.tuner.history.result",
        ),
        "Settings": "akx.tuner.request",
        "plan_key": "akx.tuner.space",
        **dict.fromkeys(("exhaustive", "tune"), "akx.tuner.search.tune"),
    },
)
