"""The plan for a call without a tuned one of its own: a plan of a similar key, after a check, or the predicted plan."""
