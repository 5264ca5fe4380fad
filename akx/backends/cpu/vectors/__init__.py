"""What solvers do with vectors on the CPU: by NumPy alone, or by compiled passes of a thread team."""
