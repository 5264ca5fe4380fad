"""Seconds of a plan that nobody measured: figures of the machine, what rows cost, and the predicted plan."""
