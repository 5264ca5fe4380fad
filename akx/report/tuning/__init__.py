"""What a search for a plan found, as tables."""
