"""The base class of facts of a device, whatever its backend."""

from __future__ import annotations

from abc import ABC, abstractmethod

__all__ = ["Device"]


class Device(ABC):
    """The facts of a device: a frozen dataclass, since searches replace its `cores` by the threads they may use.

    Attributes
    ----------
    name : str
        As its driver or the operating system gives it.
    cores : int
        Threads of the host that plans may use at most.
    backend : str
        Of its plans.
    budget : int
        Bytes that plans may take of its memory, vectors included; 0 where nobody said. A device of a backend that keeps
        to budgets (:attr:`akx.backends.base.Backend.keeps_budgets`) has a field of that name.
    """

    name: str
    cores: int
    backend: str
    budget: int = 0

    @property
    @abstractmethod
    def device_class(self) -> str:
        """What a plan is keyed by: devices of one class share plans. It begins with the backend and a slash."""

    @property
    def identity(self) -> str:
        """What the device is called on this host: who measures on it keeps others with the same name waiting."""
        return f"{self.backend} {self.name}"

    def whole(self) -> Device:
        """The device without limits of cores or memory: what figures are measured of."""
        return self
