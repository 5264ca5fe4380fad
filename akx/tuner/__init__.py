"""From a matrix to a plan: :func:`tune` measures, :func:`predict` only models, :func:`exhaustive` measures all."""

from akx.tuner.predict import predict
from akx.tuner.result import RESULT_SCHEMA, Counts, Finalist, Progress, Roofline, Trial, TuneResult
from akx.tuner.settings import Settings
from akx.tuner.tuning import exhaustive, plan_key, tune

__all__ = [
    "RESULT_SCHEMA",
    "Counts",
    "Finalist",
    "Progress",
    "Roofline",
    "Settings",
    "Trial",
    "TuneResult",
    "exhaustive",
    "plan_key",
    "predict",
    "tune",
]
