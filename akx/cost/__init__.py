"""Counts of work, what devices do in a second, and what a count costs, as data files: below all backends."""
