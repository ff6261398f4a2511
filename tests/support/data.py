"""Where tests find real data (docs/data.md)."""

import os
from pathlib import Path

DATA = Path(os.environ.get("HAYSTREAM_DATA") or "../shared/data")
"""What needs files of it skips where they are not there."""
