"""What several commands take alike."""

from pathlib import Path
from typing import Annotated

import typer

Config = Annotated[
    Path | None,
    typer.Option(help="A TOML file of settings. The environment (HAYSTREAM_…) wins over it.", metavar="FILE"),
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on standard output.")]
HELP = {"help_option_names": ["-h", "--help"]}
"""Settings of a group of commands: either asks for help."""
