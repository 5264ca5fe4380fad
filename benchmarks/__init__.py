"""The harness behind every figure in the README: matrices by formula, measurements with their machine, tables."""
