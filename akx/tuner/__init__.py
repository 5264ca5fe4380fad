"""From a matrix to a plan: :func:`tune` measures, :func:`predict` only models, :func:`exhaustive` measures all.

:func:`read_recording` has the trials that either wrote to a file, and :func:`replay` searches over them.
"""

from akx.tuner.predict import predict
from akx.tuner.recording import RECORDING_SCHEMA, RecordedTrial, Recording, Run, read_recording
from akx.tuner.replay import REPLAY_SCHEMA, ReplayResult, replay
from akx.tuner.result import RESULT_SCHEMA, Counts, Finalist, Progress, Roofline, Trial, TuneResult, Untuned
from akx.tuner.settings import Settings
from akx.tuner.tuning import exhaustive, plan_key, tune

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
