"""The schedules of the CPU, one package each."""
