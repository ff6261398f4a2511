"""Who calls: a bearer token is a key of a file of ours, or a token that an OpenID provider has signed.

The file is JSON: a list of `{"sha256", "subject", "roles", "collections"}`, as `haystream api-key` writes it. Keys
are random, of 256 bits, so their plain hash tells nothing of them. It is read again when it has changed.
"""

import asyncio
import binascii
import hashlib
import logging
import secrets
import time
from base64 import b64decode
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import jwt
import orjson
from pydantic import Field, TypeAdapter, ValidationError

from haystream_service.api.access import Caller, Role
from haystream_service.api.problems import ApiCode, Problem, unavailable
from haystream_service.errors import UserError
from haystream_service.settings import Settings
from haystream_service.wire.fields import Id, JsonObject
from haystream_service.wire.reading import rejection

log = logging.getLogger(__name__)

PREFIX = "hs_"
"""Begins every key of ours, so that those who look for leaked secrets know it."""
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "EdDSA")
"""Those of a private key. With one that is shared, whoever can check a token could make one."""
LEEWAY_SECONDS = 30
LOOK_SECONDS = 1.0
"""Between two looks whether the file has changed."""
KEYS_SECONDS = 300.0
"""For how long a provider's keys are used without asking again."""
ASK_SECONDS = 10.0
"""Between two times that a provider is asked that did not have a key, or did not answer."""


class Key(JsonObject):
    """A line of the key file."""

    sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    subject: Id
    roles: tuple[Role, ...]
    collections: tuple[Id, ...]


_KEYS = TypeAdapter(list[Key])


class SignedClaims(JsonObject):
    """What a signed token says of its subject, who is an analyst in whatever it writes."""

    sub: Id


def new_key(subject: str, roles: list[Role], collections: list[str]) -> tuple[str, Key]:
    """A new key, and the line of the file that knows it."""
    key = PREFIX + secrets.token_urlsafe(32)
    return key, Key(sha256=_hash(key), subject=subject, roles=tuple(roles), collections=tuple(collections))


def read_keys(path: Path) -> list[Key]:
    """The lines of the file. Raises `UserError`."""
    try:
        return _KEYS.validate_json(path.read_bytes())
    except OSError as error:
        raise UserError(f"cannot read the keys in {path}: {error.strerror}") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"])))
        raise UserError(f"the keys in {path} cannot be used: {where}") from None


def write_keys(path: Path, keys: list[Key]) -> None:
    """Replace the file, which nobody else may read. Raises `UserError`."""
    new = path.with_name(path.name + ".new")
    try:
        new.touch(mode=0o600)
        new.write_bytes(orjson.dumps([key.model_dump() for key in keys], option=orjson.OPT_INDENT_2))
        new.replace(path)
    except OSError as error:
        raise UserError(f"cannot write the keys to {path}: {error.strerror}") from None


def _hash(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()


class KeyFile:
    """The callers that a file of keys knows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._looked = 0.0
        self._stamp: object = None
        self._callers: dict[str, Caller] = {}
        self._read()

    def caller(self, token: str) -> Caller | None:
        """Whoever has the key; None where it is none."""
        if time.monotonic() - self._looked > LOOK_SECONDS:
            try:
                self._read()
            except UserError as error:
                log.warning("%s. The last ones are used", error)
        return self._callers.get(_hash(token))

    def _read(self) -> None:
        self._looked = time.monotonic()
        try:
            stat = self._path.stat()
        except OSError as error:
            raise UserError(f"cannot read the keys in {self._path}: {error.strerror}") from None
        stamp = stat.st_ino, stat.st_mtime_ns, stat.st_size
        if stamp != self._stamp:
            self._callers = {
                key.sha256: Caller(key.subject, frozenset(key.roles), frozenset(key.collections))
                for key in read_keys(self._path)
            }
            self._stamp = stamp


class _One(NamedTuple):
    hash: str
    one: Caller

    def caller(self, token: str) -> Caller | None:
        """Whoever has the key; None where it is none."""
        return self.one if secrets.compare_digest(_hash(token), self.hash) else None


class Provider:
    """An OpenID provider, of which only its public keys are asked for.

    A token's subject is its `sub`; its claims `haystream_roles` and `haystream_collections` are lists.
    """

    def __init__(self, issuer: str, audience: str, jwks: str, *, client: httpx.AsyncClient | None = None) -> None:
        self._issuer = issuer
        self._audience = audience
        self._jwks = jwks
        self._client = client or httpx.AsyncClient(timeout=5.0)
        self._keys: dict[str | None, jwt.PyJWK] = {}
        self._asked = -KEYS_SECONDS
        self._asking = asyncio.Lock()

    async def caller(self, token: str) -> Caller:
        """Whoever the token is of. Raises `Problem`."""
        try:
            header = jwt.get_unverified_header(token)
            if header.get("alg") not in ALGORITHMS:
                raise _unauthenticated("the token is signed in a way that is not taken")
            key = await self._key(header.get("kid"))
            claims = jwt.decode(
                token,
                key,
                algorithms=ALGORITHMS,
                audience=self._audience,
                issuer=self._issuer,
                leeway=LEEWAY_SECONDS,
                options={"require": ["exp", "iss", "aud", "sub"]},
            )
            subject = SignedClaims.model_validate(claims).sub
        except jwt.PyJWTError as error:
            raise _unauthenticated(f"the token is not taken: {error}") from None
        except ValidationError as error:
            raise _unauthenticated(f"the token is not taken: {rejection(error).detail}") from None
        roles = {role.value for role in Role} & _texts(claims, "haystream_roles")
        return Caller(subject, frozenset(map(Role, roles)), frozenset(_texts(claims, "haystream_collections")))

    async def close(self) -> None:
        """Let go of connections."""
        await self._client.aclose()

    async def _key(self, name: str | None) -> jwt.PyJWK:
        async with self._asking:
            age = time.monotonic() - self._asked
            if age > KEYS_SECONDS or (name not in self._keys and age > ASK_SECONDS):
                await self._ask()
        if not self._keys:
            raise unavailable("who signs the tokens cannot be asked just now")
        if name not in self._keys:
            raise _unauthenticated("the token is signed with a key that its issuer does not tell of")
        return self._keys[name]

    async def _ask(self) -> None:
        try:
            answer = await self._client.get(self._jwks)
            answer.raise_for_status()
            found = jwt.PyJWKSet.from_dict(answer.json())
        except (httpx.HTTPError, ValueError, jwt.PyJWTError) as error:
            log.warning("the keys at %s cannot be had: %r", self._jwks, error)
        else:
            self._keys = {key.key_id: key for key in found.keys}
        self._asked = time.monotonic()


def _texts(claims: Mapping[str, Any], name: str) -> set[str]:
    given = claims.get(name, [])
    return {value for value in given if isinstance(value, str)} if isinstance(given, list) else set()


def _unauthenticated(detail: str) -> Problem:
    return Problem(ApiCode.UNAUTHENTICATED, detail, headers={"WWW-Authenticate": 'Bearer realm="haystream"'})


class Doorkeeper:
    """Says who a request is of, by its Authorization header."""

    def __init__(self, keys: "KeyFile | _One | None", provider: Provider | None) -> None:
        self._keys = keys
        self._provider = provider

    @classmethod
    def of(cls, settings: Settings) -> "Doorkeeper":
        """As the settings say. Raises `UserError` where they name neither keys nor a provider."""
        if settings.api_keys_file is None and settings.api_oidc_issuer is None:
            raise UserError(
                "nobody could use the API: name a file of keys in HAYSTREAM_API_KEYS_FILE (`haystream api-key` "
                "makes one), or an OpenID provider in HAYSTREAM_API_OIDC_ISSUER"
            )
        provider = None
        if settings.api_oidc_issuer and settings.api_oidc_audience and settings.api_oidc_jwks:
            provider = Provider(settings.api_oidc_issuer, settings.api_oidc_audience, settings.api_oidc_jwks)
        return cls(KeyFile(settings.api_keys_file) if settings.api_keys_file else None, provider)

    @classmethod
    def for_one(cls, token: str, caller: Caller) -> "Doorkeeper":
        """One that knows a single token."""
        return cls(_One(_hash(token), caller), None)

    async def caller(self, authorization: str | None, *, basic: bool = False) -> Caller:
        """Whoever the header is of; with `basic`, the token may be a password, as browsers send it.

        Raises a `Problem`.
        """
        scheme, _, token = (authorization or "").partition(" ")
        token = token.strip()
        if basic and scheme.lower() == "basic":
            token = _password(token)
        elif scheme.lower() != "bearer" or not token:
            problem = _unauthenticated("this takes a token: Authorization: Bearer …")
            if basic:
                problem.headers["WWW-Authenticate"] = 'Basic realm="haystream", charset="UTF-8"'
            raise problem
        if self._keys is not None and (caller := self._keys.caller(token)) is not None:
            return caller
        if self._provider is not None and token.count(".") == 2:
            return await self._provider.caller(token)
        raise _unauthenticated("the token is not known")

    async def close(self) -> None:
        """Let go of connections."""
        if self._provider is not None:
            await self._provider.close()


def _password(credentials: str) -> str:
    try:
        return b64decode(credentials, validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        return ""
