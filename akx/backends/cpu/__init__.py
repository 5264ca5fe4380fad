"""Schedules on the CPU, compiled by Numba, which is looked at before any of them is imported."""

from akx.core.numba_jit import check_numba

check_numba()
