"""Kernels of all backends. Those of the CPU are compiled by Numba, which is looked at before any is imported."""

from akx._numba import check_numba

check_numba()
