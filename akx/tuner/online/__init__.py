"""Tuning by calls that a user makes anyway: each call is a trial, and exploring has a budget."""
