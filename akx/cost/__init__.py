"""What cost models are made of, below all backends; the models are in ``schedules/NAME/cost.py`` of each backend.

counts         work of a plan: bytes by tier, flops, cycles, launches
rows           statistics of the rows of a matrix
device_model   figures of a machine, and prices of formats
coefficients   what a count costs, from a file for each backend: ``cpu.json`` and others
calibration    figures measured on one machine, in a file

Seconds are made of these in :mod:`akx.tuner.model`.
"""
