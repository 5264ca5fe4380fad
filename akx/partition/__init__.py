"""Partitions of the rows: orders, cuts into blocks, ghost zones, and what they cost."""
