"""Formats: how the entries of a matrix, or of a block of it, are laid out; what they store, and whether they fit."""
