"""The search itself: tune() and exhaustive(), its budgets and phases, replays, and studies of several workers."""
