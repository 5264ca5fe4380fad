"""Matrices on the device: what a caller has there, put in canonical order, digested and looked at."""
