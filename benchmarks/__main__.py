"""``python -m benchmarks``: measure what is asked for, then write the tables. Arguments: as benchmarks.powers."""

from __future__ import annotations

import sys

from benchmarks import powers, table

if __name__ == "__main__":
    measured = powers.main()
    sys.exit(measured or table.main([]))
