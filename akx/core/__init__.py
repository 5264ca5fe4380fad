"""Plain data: matrices, bases, plans, errors and files, and what all rooms need. It imports nothing of akx above it."""
