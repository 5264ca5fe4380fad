"""A tuned plan beside the products of other libraries, timed in one run."""
