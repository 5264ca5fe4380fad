"""Backends: what devices are and do, the schedules that compute matrix powers there, and their registry."""
