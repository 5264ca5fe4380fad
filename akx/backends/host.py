"""Facts of the host processor: cores, caches, name. Read from the operating system, never guessed silently."""

from __future__ import annotations

import platform
import re
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

from akx.backends.device import Device
from akx.core.process import available_cores, default_threads, resolve_threads

__all__ = ["HostDevice", "default_threads", "host_device", "resolve_threads"]

_SYS = Path("/sys/devices/system/cpu/cpu0/cache")
_CPUINFO = Path("/proc/cpuinfo")
#: Parts of a name whose digits are none of a model's: a clock, a number of cores, the version of an emulator.
_NO_MODEL = r"(?i)@.*|\b\d+-core\b|\bversion\b.*"
#: Used where the operating system does not tell (bytes per core for L1 and L2, in all for L3).
_FALLBACK = {1: 32 * 1024, 2: 1024 * 1024, 3: 16 * 1024 * 1024}


@dataclass(frozen=True)
class HostDevice(Device):
    """A host processor.

    Attributes
    ----------
    name : str
        Model name as the operating system gives it; with the numbers of family and model, where it is one that a
        virtual machine gives to processors of any generation, as "AMD EPYC".
    cores : int
        Cores this process may run on: those of its affinity, and no more than a quota of its control group pays for.
    l1_bytes, l2_bytes : int
        Data cache per core, in bytes.
    l3_bytes : int
        Last-level cache shared by the cores, in bytes.
    """

    name: str
    cores: int
    l1_bytes: int
    l2_bytes: int
    l3_bytes: int
    backend: str = "cpu"

    @property
    def device_class(self) -> str:
        """What a plan is keyed by: machines of one class share plans."""
        mib = 1024 * 1024
        return f"cpu/{self.name}/{self.cores} cores/L2 {self.l2_bytes / mib:g} MiB/L3 {self.l3_bytes / mib:g} MiB"

    @property
    def identity(self) -> str:
        """One for all processes on this host."""
        return f"the processors of {platform.node() or 'this host'}"

    def whole(self) -> HostDevice:
        """This machine's processor with all cores of this process; another one as it is."""
        here = host_device()
        return here if replace(self, cores=here.cores) == here else self


def _cache_bytes() -> dict[int, int]:
    sizes = dict(_FALLBACK)
    for index in sorted(_SYS.glob("index*")) if _SYS.is_dir() else ():
        try:
            kind = (index / "type").read_text().strip()
            level = int((index / "level").read_text())
            text = (index / "size").read_text().strip()
        except (OSError, ValueError):
            continue
        unit = {"K": 1024, "M": 1024**2, "G": 1024**3}.get(text[-1:], 0)
        if kind in ("Data", "Unified") and unit and text[:-1].isdigit():
            sizes[level] = int(text[:-1]) * unit
    return sizes


def _model_name(cpuinfo: Path = _CPUINFO) -> str:
    """The name of the first processor, and what it is where the name does not tell."""
    facts: dict[str, str] = {}
    try:
        for line in cpuinfo.read_text().splitlines():
            field, _, value = line.partition(":")
            facts.setdefault(field.strip(), " ".join(value.split()))
    except (OSError, UnicodeDecodeError):
        pass
    name = facts.get("model name")
    if not name:
        return platform.processor() or platform.machine() or "unknown processor"
    family, model = facts.get("cpu family", ""), facts.get("model", "")
    if any(letter.isdigit() for letter in re.sub(_NO_MODEL, "", name)) or not (family.isdigit() and model.isdigit()):
        return name
    return f"{name} family {family} model {model}"


@lru_cache(maxsize=1)
def host_device() -> HostDevice:
    """The processor this process runs on."""
    caches = _cache_bytes()
    return HostDevice(_model_name(), available_cores(), caches[1], caches[2], caches.get(3, caches[2]))
