"""See :mod:`akx.kernels.cuda.timing`."""

from akx.kernels.cuda.timing import DeviceCall, HostCall

__all__ = ["DeviceCall", "HostCall"]
