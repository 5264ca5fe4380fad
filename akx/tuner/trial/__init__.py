"""One trial: the problem that is run and its check, and the bench that prepares, runs and times a plan."""
