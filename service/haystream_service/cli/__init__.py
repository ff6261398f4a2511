"""What the commands of `haystream` are called and take. What they do is in `commands`, one module each.

A command's module is imported when the command runs, so that --help does not wait for numpy or Faust.
"""

from haystream_service.cli.program import main
from haystream_service.cli.root import app

__all__ = ["app", "main"]
