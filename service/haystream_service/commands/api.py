"""`haystream api` and `haystream api-key`."""

import sys
from pathlib import Path

import typer

from haystream_service.blas import use_one_thread
from haystream_service.commands.serving import served
from haystream_service.console import notes, write_json
from haystream_service.errors import UserError
from haystream_service.logs import configure
from haystream_service.settings import load


def run(*, config: Path | None = None) -> None:
    """Serve until told to stop; ends the process with the exit code. Raises `UserError`."""
    settings = load(config)
    use_one_thread()
    try:
        from haystream_service.api.serve import serve
    except ImportError as missing:
        raise UserError(
            f"the API needs packages that are not there ({missing.name}): pip install 'haystream[api]'"
        ) from None
    configure(settings.log_format)
    sys.exit(served(serve(settings)))


def run_key(
    file: Path, subject: str, roles: list[str], collections: list[str], *, revoke: bool, json: bool
) -> None:
    """Add a key to the file and print it, once; or take all of the subject's out of it. Raises `UserError`."""
    from haystream_service.api.access import Role
    from haystream_service.api.tokens import new_key, read_keys, write_keys
    from haystream_service.wire import as_id

    if revoke:
        _revoke(file, subject)
        return
    for option, text in (("SUBJECT", subject), *(("--collection", name) for name in collections)):
        if as_id(text.encode(errors="surrogateescape")) is None:
            raise UserError(f"{option} {text!r}: expected 1 to 512 characters, none of them a control character")
    if not roles:
        raise UserError(f"name a role with --role: {', '.join(Role)}")
    key, line = new_key(subject, [Role(role) for role in roles], collections or ["*"])
    write_keys(file, [*(read_keys(file) if file.exists() else []), line])
    notes.print(f"{file} knows the hash of this key; nobody can be told the key again", markup=False)
    if json:
        write_json({"token": key, "subject": subject})
    else:
        typer.echo(key)


def _revoke(file: Path, subject: str) -> None:
    from haystream_service.api.tokens import read_keys, write_keys

    keys = read_keys(file)
    left = [key for key in keys if key.subject != subject]
    if left == keys:
        raise UserError(f"{file} has no key of {subject!r}: nothing is taken out of it")
    write_keys(file, left)
    notes.print(f"{len(keys) - len(left)} keys of {subject!r} are taken out of {file}", markup=False)
