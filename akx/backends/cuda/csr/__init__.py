"""Products of CSR arrays as they are, before a plan is ready and where none pays."""
