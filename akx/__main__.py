"""``python -m akx`` is the command ``akx``."""

from __future__ import annotations

import sys

from akx.cli import main

__all__: list[str] = []

if __name__ == "__main__":
    sys.exit(main())
