"""What a plan makes a GPU do, and what a GPU can do at most."""
