"""Recorded trials: a file of JSON lines, its reader and writer, and the simulated device that answers from it."""
