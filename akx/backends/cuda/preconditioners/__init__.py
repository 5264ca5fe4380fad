"""Preconditioners made and applied on the device."""
