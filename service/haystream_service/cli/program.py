"""How `haystream` runs and ends: what it says of errors, and where it says it."""

import errno
import io
import os
import sys
from pathlib import Path
from typing import NoReturn

import typer

from haystream_service.cli.root import app
from haystream_service.errors import UserError

NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
"""What a file, which standard output may be, refuses more with. Of files that they write, commands say the name."""


def main() -> NoReturn:
    """Run the command that the arguments name. Exit code 2: it was used in a way that cannot work."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # it was closed (>&-): nobody wants to know
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115 - open as long as the process
    if isinstance(sys.stdout, io.TextIOWrapper):
        # As standard error is: an encoding without some letter of a result must not lose the result.
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        _check_arguments(sys.argv[1:])
        app(prog_name="haystream")
    except Exception as error:
        if not _for_the_user(error):
            raise
        from haystream_service.console import shown

        for line in str(error).splitlines():
            typer.echo(f"haystream: {shown(line)}", err=True)
        try:
            sys.stdout.flush()
        except OSError:  # or Python would try once more to write what is left, and end with 120
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(2)
    sys.exit(0)


def _check_arguments(arguments: list[str]) -> None:
    """Raise `UserError` for one that is no UTF-8, and no file either: no id, topic or address is like that."""
    for argument in arguments:
        try:
            argument.encode()
        except UnicodeEncodeError:
            if not os.path.lexists(argument):
                raise UserError(f"{argument!r} is not UTF-8, and there is no such file") from None


def _for_the_user(error: Exception) -> bool:
    """Whether the error's text is all that a user needs; everything else is a bug and keeps its traceback."""
    if isinstance(error, UserError) or (isinstance(error, OSError) and error.errno in NO_ROOM):
        return True
    from haystream_service.local import ServerUnavailable
    from haystream_service.store.base import StoreDamaged, StoreUnavailable

    return isinstance(error, ServerUnavailable | StoreUnavailable | StoreDamaged)
