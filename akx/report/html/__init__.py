"""One HTML page of what a database knows of its plans: no script, and nothing from outside of it."""
