"""`ghost` on the CPU: blocks with ghost zones."""
