"""Plain data, and what all rooms need; nothing of akx above it is imported.

matrix, canonical, features, fingerprint, io   matrices: checked, looked at, digested, read from files
basis, leja, spectrum                          polynomial bases, and shifts for them
plan, options, plugins                         plans, what schedules declare of them, names of other packages
errors, arguments, device_arrays               typed errors; what callers hand over
numba_import, numba_jit, lazy_names            what is imported and compiled when it is asked for
parallel, process, fork_safety                 threads, processes, and forks
atomic_files, checksum                         files in one step; checksums of memory
progress, garbage_collection                   progress lines; no collection while a clock runs
"""
