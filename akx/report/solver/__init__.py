"""What solvers did, as tables and as a picture."""
