"""What lies in files that are replaced while we run: secrets and certificates. New connections use the new ones.

A file that is missing or half written for a moment is not the end of anything: what was last read is used, with a
warning.
"""

import logging
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import SecretStr
from typing_extensions import override

from haystream_service.errors import UserError

log = logging.getLogger(__name__)


class MountedSecret:
    """A secret as it is now: a given one, or what the file holds, but for the end of its line."""

    def __init__(self, value: SecretStr | None, file: Path | None) -> None:
        self._value = value
        self._file = file

    def __bool__(self) -> bool:
        """Whether there is one."""
        return self._value is not None or self._file is not None

    def read(self) -> str:
        """The secret in clear; empty where there is none."""
        if self._file is not None:
            try:
                self._value = SecretStr(self._file.read_text().rstrip("\r\n"))
            except (OSError, UnicodeDecodeError) as error:
                log.warning("cannot read the secret in %s: %s", self._file, getattr(error, "strerror", "no UTF-8"))
        return "" if self._value is None else self._value.get_secret_value()


class MountedTls(ssl.SSLContext):
    """A client's TLS context that checks the server's name and certificate, by the files as they are now.

    `ca` defaults to the certificates that the system trusts. `cert` is for mutual TLS; `key` defaults to it.

    Raises:
        UserError: the files cannot be used. Once made, it warns, and goes on with what it had.
    """

    _files: Sequence[Path | None]
    _key_password: MountedSecret
    _seen: object
    _current: ssl.SSLContext

    def __new__(
        cls, *, ca: Path | None, cert: Path | None, key: Path | None, key_password: MountedSecret
    ) -> "MountedTls":
        """The context, with the files read."""
        made = super().__new__(cls, ssl.PROTOCOL_TLS_CLIENT)
        made._files = ca, cert, key
        made._key_password = key_password
        try:
            made._seen = made._stamps()
            made._current = made._read()
        except (OSError, ValueError) as error:
            raise UserError(made._unusable(error)) from None
        return made

    @override
    def wrap_bio(self, *args: Any, **options: Any) -> ssl.SSLObject:
        """TLS for one connection of asyncio."""
        try:
            stamps = self._stamps()
            if stamps != self._seen:
                self._current = self._read()
                self._seen = stamps
        except (OSError, ValueError) as error:
            log.warning("%s. The last ones are used", self._unusable(error))
        return self._current.wrap_bio(*args, **options)

    def _stamps(self) -> object:
        """What differs once a file was replaced."""
        found = [path.stat() for path in self._files if path is not None]
        return [(stat.st_ino, stat.st_mtime_ns, stat.st_size) for stat in found], self._key_password.read()

    def _read(self) -> ssl.SSLContext:
        ca, cert, key = self._files
        context = ssl.create_default_context(cafile=ca)
        if cert is not None:
            # Given as bytes, an empty password too: OpenSSL would ask for one on the terminal.
            context.load_cert_chain(cert, key, password=self._key_password.read().encode())
        return context

    def _unusable(self, error: Exception) -> str:
        names = ", ".join(str(path) for path in self._files if path is not None)
        return f"the certificates or the key in {names} cannot be used: {getattr(error, 'strerror', None) or error}"
