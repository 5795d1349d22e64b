"""`python -m pylogtable`, the same program as `pylogtable`."""

from __future__ import annotations

import sys

from pylogtable.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
