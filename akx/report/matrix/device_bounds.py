"""What products of a matrix would do on other devices, going by what is known of their memory.

Of devices that were calibrated (:mod:`akx.cost.calibration`: the user's files, and those shipped with akx) the
measured bandwidths are taken, from cache where the matrix fits it. Of a few others the bandwidth that the papers behind
akx give, which is that of the data sheet as a rule, of one what akx has measured, and of one FPGA the packets of
:mod:`akx.report.matrix.fpga_packets`. A bound says what a product cannot exceed, not what it reaches.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from akx.core.errors import AkxError, ArgumentError, brief
from akx.cost.calibration import Calibration, calibration_folder
from akx.plandb import shipped_plans

if TYPE_CHECKING:
    from akx.report.matrix.format_storage import FormatStorage
    from akx.report.matrix.fpga_packets import PacketSchedule

__all__ = ["FPGA", "Device", "DeviceBound", "device_bound", "known_devices", "select_devices"]

_THESIS = "M. Mehri Dehnavi, McGill 2012, appendix II"
_RENNICH = "S. Rennich, Block SpMV on GPU, NVIDIA"
#: Name, bytes a second, where that is said.
_PUBLISHED = (
    ("NVIDIA GT8800", 57.6e9, _THESIS),
    ("NVIDIA GTX280", 141.7e9, _THESIS),
    ("NVIDIA GTX285", 159e9, _RENNICH),
    ("NVIDIA GTX480", 177.4e9, _THESIS),
    ("NVIDIA Tesla M2070", 150e9, _THESIS),
    ("NVIDIA Tesla C2070", 144e9, f"{_RENNICH}, without ECC"),
    ("NVIDIA H100 80GB HBM3", 3.0e12, "akx's own measurement of a copy, read and written"),
)
#: The name of the FPGA, its clock in Hz, and the rows that its 16-bit columns can name.
FPGA, FPGA_CLOCK, FPGA_ROWS = "FPGA Virtex-2 Pro 100 (Zhang et al. 2009)", 170e6, 2**16


@dataclass(frozen=True)
class Device:
    """A device, as `--device` finds it, and what is known of its memory: bytes a second, where that is from, and all
    figures where it was calibrated.
    """

    name: str
    bandwidth: float
    source: str
    calibration: Calibration | None = None

    def rate(self, working_set: float) -> float:
        """Bytes a second for so many bytes read again and again."""
        if self.calibration is None:
            return self.bandwidth
        return self.calibration.all_threads.bandwidth(working_set)


@dataclass(frozen=True)
class DeviceBound:
    """What a matrix would do on a device: its name, where its bandwidth (bytes a second) is from, the bound of the
    product in CSR (None for an FPGA), and the layout with the highest bound and that bound (None where the matrix is
    not for it).
    """

    device: str
    source: str
    bandwidth: float
    csr_gflops: float | None
    layout: str | None
    gflops: float | None

    def to_json(self) -> dict[str, Any]:
        """A dict of JSON types, keyed by the attribute names."""
        return asdict(self)


def known_devices() -> tuple[Device, ...]:
    """Calibrated devices, by name, then those of the papers, the FPGA the last."""
    calibrated: dict[str, Device] = {}
    for folder in (shipped_plans().directory / "machines", calibration_folder()):
        for path in sorted(folder.glob("*.json")) if folder.is_dir() else ():
            try:
                found = Calibration.from_json(json.loads(path.read_bytes()))
            except (OSError, ValueError, RecursionError, AkxError):
                continue  # as `find_calibration` does
            rate = found.all_threads.slow_bandwidth
            calibrated[found.device_class] = Device(found.device_class, rate, "calibrated", found)
    rest = [Device(*facts) for facts in _PUBLISHED]
    fpga = Device(FPGA, 5 * 80 / 8 * FPGA_CLOCK, "Zhang et al., FPGA vs. GPU for sparse matrix vector multiply")
    return (*(calibrated[name] for name in sorted(calibrated)), *rest, fpga)


def select_devices(names: Sequence[str]) -> tuple[Device, ...]:
    """The known devices with one of `names` in their names, whatever the case; ``"all"`` are all.

    Raises
    ------
    ArgumentError
        Where a name is in none.
    """
    devices = known_devices()
    chosen: dict[str, Device] = {}
    for name in names:
        found = [one for one in devices if name.lower() in ("all", "") or name.lower() in one.name.lower()]
        if not found:
            raise ArgumentError(
                "--device is not known",
                expected="all, or part of one of: " + ", ".join(one.name for one in devices),
                found=brief(name),
                hint="akx doctor --calibrate makes the device of a machine known there",
            )
        chosen |= {one.name: one for one in found}
    return tuple(chosen.values())


def device_bound(device: Device, layouts: Sequence[FormatStorage], packets: PacketSchedule) -> DeviceBound:
    """What the matrix with these layouts, ``csr`` first, and packets of five slots would do on `device`."""
    facts = device.name, device.source, device.bandwidth
    if device.name == FPGA:
        fits = packets.slot.size <= FPGA_ROWS
        layout = f"packets of {packets.slots}" if fits else None
        return DeviceBound(*facts, None, layout, packets.gflops(FPGA_CLOCK) if fits else None)
    bounds = {one.name: one.bound(device.rate(one.moved)) for one in layouts}
    best = max(bounds, key=lambda name: bounds[name])
    return DeviceBound(*facts, bounds[layouts[0].name], best, bounds[best])
