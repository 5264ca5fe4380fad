"""Which devices are so alike that a plan tuned on one is worth a measurement on the other, by their device classes.

A class (`HostDevice.device_class`, `CudaDevice.device_class`) is all
that a record knows of the device it was measured on. Two are alike, careful rather than generous, where

processors  they are one processor for other numbers of threads; or of one name (but for trademarks and clocks), or of
            one generation of server processors whose names tell it, with an L2 cache of the same size and last-level
            caches within a factor of 1.5. Numbers of cores may differ: a plan is fitted to the threads there are. A
            name without the number of a model tells too little; family and model, which the class of a processor has
            behind such a name (:mod:`akx.backends.host`), tell the design
GPUs        of one compute capability, with multiprocessors and L2 caches within a factor of 1.25, whatever the memory

Classes with a memory budget, or with an allowed error of values, are like no other.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable

from akx.backends.selection import BACKENDS

__all__ = ["device_similarity", "of_gpus", "of_hosts", "threads_of_class"]

_NUMBER = r"[0-9.e+-]+"
_HOST = re.compile(
    rf"cpu/(?P<name>.*)/(?P<cores>[1-9]\d{{0,5}}) cores/L2 (?P<l2>{_NUMBER}) MiB/L3 (?P<l3>{_NUMBER}) MiB"
    r"(/(?P<threads>[1-9]\d{0,5}) threads)?"
)
_GPU = re.compile(
    rf"[^/]+/(?P<name>.*)/sm_(?P<arch>\d+)/(?P<sms>[1-9]\d{{0,5}}) SMs/L2 (?P<l2>{_NUMBER}) MiB"
    r"/(?P<memory>\d{1,9}) GiB"
)
#: Parts of a processor's name that say nothing of what it is.
_TRIMMINGS = re.compile(r"\((?:r|tm)\)|@\s*[\d.]+\s*[gm]hz|\bcpu\b|\bprocessor\b|\b\d+-core\b")
#: Names that say which generation of a server processor it is: the second digit of a Xeon's number, the first and the
#: last of an EPYC's.
_GENERATIONS = (
    re.compile(r"\b(xeon) (?:platinum|gold|silver|bronze) \d(\d)\d\d[a-z+]*\b"),
    re.compile(r"\b(epyc) (\d)[0-9a-z]{2}(\d)[a-z]*\b"),
)
#: A name with a number of a model in it, which is none of an architecture.
_MODEL = re.compile(r"^(?!(?:x86_64|i[3-6]86|amd64|aarch64|arm\w*|ppc64\w*|riscv64|s390x)$).*\d")
_L3_RATIO, _GPU_RATIO = 1.5, 1.25


def device_similarity(one: str, other: str) -> float | None:
    """How far two like devices are from one another, by their classes; None where they are not alike.

    Parameters
    ----------
    one, other : str
        Device classes.

    Returns
    -------
    float or None
        Below 1 where it is the same silicon: a processor, the nearer the less its number of threads differs, or a GPU
        whose memory is another (0). Below 2 for devices of one name, more for devices of one generation.
    """
    name, begin = one.split("/", 1)[0], other.split("/", 1)[0]
    backend = BACKENDS.get(name) if name == begin else None
    return None if backend is None else backend.device_similarity(one, other)


def of_hosts(one: str, other: str) -> float | None:
    """Of processors."""
    return _compared(_HOST, _of_hosts, one, other)


def of_gpus(one: str, other: str) -> float | None:
    """Of NVIDIA GPUs."""
    return _compared(_GPU, _of_gpus, one, other)


def _compared(
    pattern: re.Pattern[str], compare: Callable[[re.Match[str], re.Match[str]], float | None], one: str, other: str
) -> float | None:
    first, second = pattern.fullmatch(one), pattern.fullmatch(other)
    if first is None or second is None:
        return None
    try:
        return compare(first, second)
    except ValueError:  # a number that is none
        return None


def threads_of_class(device_class: str) -> int | None:
    """Threads of the host that plans of a class may use; None where it does not tell."""
    found = _HOST.fullmatch(device_class)
    return None if found is None else _threads(found)


def _threads(host: re.Match[str]) -> int:
    return int(host["threads"] or host["cores"])


def _of_hosts(one: re.Match[str], other: re.Match[str]) -> float | None:
    same = ("name", "cores", "l2", "l3")
    if all(one[part] == other[part] for part in same):
        return min(abs(math.log2(_threads(one) / _threads(other))) / 16, 0.99)
    if one["l2"] != other["l2"] or not _is_near(one["l3"], other["l3"], _L3_RATIO):
        return None
    names = [" ".join(_TRIMMINGS.sub(" ", match["name"].lower()).split()) for match in (one, other)]
    if not all(_MODEL.search(name) for name in names):
        return None
    far = abs(math.log2(int(one["cores"]) / int(other["cores"]))) / 16  # at most 2^16 cores
    if names[0] == names[1]:
        return 1.0 + min(far, 0.99)
    generations = [_generation(name) for name in names]
    return 2.0 + min(far, 0.99) if generations[0] is not None and generations[0] == generations[1] else None


def _of_gpus(one: re.Match[str], other: re.Match[str]) -> float | None:
    if one["arch"] != other["arch"]:
        return None
    if not _is_near(one["sms"], other["sms"], _GPU_RATIO) or not _is_near(one["l2"], other["l2"], _GPU_RATIO):
        return None
    if all(one[part] == other[part] for part in ("name", "sms", "l2")):
        return 0.0
    far = abs(math.log2(int(one["sms"]) / int(other["sms"])))
    return (1.0 if one["name"] == other["name"] else 2.0) + min(far, 0.99)


def _generation(name: str) -> tuple[str, ...] | None:
    found = (pattern.search(name) for pattern in _GENERATIONS)
    return next((match.groups() for match in found if match is not None), None)


def _is_near(one: str, other: str, ratio: float) -> bool:
    first, second = float(one), float(other)
    return 0 < max(first, second) <= ratio * min(first, second)
