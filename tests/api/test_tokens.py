"""Tokens: keys of a file that changes while it is used, and those that an OpenID provider signs."""

import asyncio
import time
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from haystream_service.api import tokens
from haystream_service.api.access import Role
from haystream_service.api.problems import Problem
from haystream_service.api.tokens import Doorkeeper, KeyFile, Provider, new_key, read_keys, write_keys
from haystream_service.errors import UserError
from haystream_service.settings import Settings

ISSUER, AUDIENCE = "https://login.example", "haystream"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "keys.json"


def test_a_key_is_known_until_it_is_taken_out(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "LOOK_SECONDS", 0.0)
    key, line = new_key("kim", [Role.ANALYST], ["mail"])
    write_keys(file, [line])
    assert key not in file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    keys = KeyFile(file)
    caller = keys.caller(key)
    assert caller is not None
    assert (caller.subject, caller.roles, caller.collections) == ("kim", {Role.ANALYST}, {"mail"})
    assert keys.caller(key + "x") is None
    file.write_text("{")
    assert keys.caller(key) == caller  # half written: what was there before is used
    write_keys(file, [])
    assert keys.caller(key) is None


@pytest.mark.parametrize(
    "text", ["{}", '[{"sha256": "x"}]', '[{"sha256": "%s", "subject": "k", "roles": ["king"]}]' % ("0" * 64)]
)
def test_a_file_that_is_none_of_keys_is_said_to_be(file: Path, text: str) -> None:
    file.write_text(text)
    with pytest.raises(UserError, match=r"keys\.json cannot be used"):
        read_keys(file)


def test_nobody_could_use_an_api_without_keys() -> None:
    with pytest.raises(UserError, match="HAYSTREAM_API_KEYS_FILE"):
        Doorkeeper.of(Settings())


class Login:
    """An OpenID provider that counts how often it is asked for its keys."""

    def __init__(self) -> None:
        self.asked = 0
        self.away = False
        self.keys = {"one": rsa.generate_private_key(65537, 2048)}

    def answer(self, request: httpx.Request) -> httpx.Response:
        self.asked += 1
        if self.away:
            return httpx.Response(500)
        algorithm = jwt.algorithms.RSAAlgorithm
        found = [
            {**algorithm.to_jwk(key.public_key(), as_dict=True), "kid": name, "alg": "RS256"}
            for name, key in self.keys.items()
        ]
        return httpx.Response(200, json={"keys": found})

    def token(self, key: Any = None, *, kid: str = "one", algorithm: str = "RS256", **claims: Any) -> str:
        payload = {
            "iss": ISSUER,
            "aud": AUDIENCE,
            "sub": "kim",
            "exp": time.time() + 60,
            "haystream_roles": ["analyst", "king"],
            "haystream_collections": ["mail"],
            **claims,
        }
        payload = {name: value for name, value in payload.items() if value is not None}
        return jwt.encode(payload, key or self.keys["one"], algorithm=algorithm, headers={"kid": kid})


@pytest.fixture
def login() -> Login:
    return Login()


@pytest.fixture
def doorkeeper(login: Login) -> Doorkeeper:
    client = httpx.AsyncClient(transport=httpx.MockTransport(login.answer))
    return Doorkeeper(None, Provider(ISSUER, AUDIENCE, f"{ISSUER}/keys", client=client))


@pytest.mark.asyncio
async def test_a_signed_token_says_who_it_is(login: Login, doorkeeper: Doorkeeper) -> None:
    for _ in range(3):
        caller = await doorkeeper.caller(f"Bearer {login.token()}")
    assert (caller.subject, caller.roles, caller.collections) == ("kim", {Role.ANALYST}, {"mail"})
    assert login.asked == 1
    nothing = await doorkeeper.caller(
        f"Bearer {login.token(haystream_roles='analyst', haystream_collections=None)}"
    )
    assert (nothing.roles, nothing.collections) == (set(), set())
    await doorkeeper.close()


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": time.time() - 3600},
        {"exp": None},
        {"aud": "another"},
        {"aud": None},
        {"iss": "https://evil.example"},
        {"sub": None},
        {"nbf": time.time() + 3600},
    ],
    ids=lambda claims: " ".join(claims),
)
@pytest.mark.asyncio
async def test_a_token_that_is_not_for_us_is_not_taken(
    login: Login, doorkeeper: Doorkeeper, claims: dict[str, Any]
) -> None:
    with pytest.raises(Problem, match="unauthenticated"):
        await doorkeeper.caller(f"Bearer {login.token(**claims)}")


@pytest.mark.parametrize(
    "subject", ["", "kim\nx", "kim\x00", "kim\ud800", "x" * 513], ids=["empty", "line", "nul", "half", "long"]
)
@pytest.mark.asyncio
async def test_a_subject_that_no_event_could_name_is_refused(
    login: Login, doorkeeper: Doorkeeper, subject: str
) -> None:
    with pytest.raises(Problem, match=r"unauthenticated: .*sub") as refused:
        await doorkeeper.caller(f"Bearer {login.token(sub=subject)}")
    assert (refused.value.status, refused.value.headers["WWW-Authenticate"][:6]) == (401, "Bearer")
    for taken in ("x" * 512, "auth0|kim", "Kim Ü"):
        assert (await doorkeeper.caller(f"Bearer {login.token(sub=taken)}")).subject == taken


@pytest.mark.asyncio
async def test_a_token_that_somebody_else_has_signed_is_not_taken(login: Login, doorkeeper: Doorkeeper) -> None:
    other = rsa.generate_private_key(65537, 2048)
    public = login.keys["one"].public_key()
    forged = [
        login.token(other),
        login.token(other, kid="two"),
        login.token(ec.generate_private_key(ec.SECP256R1()), algorithm="ES256"),
        login.token("x" * 64, algorithm="HS256"),
        jwt.encode({"sub": "kim"}, None, algorithm="none"),
        "a.b.c",
        "not one at all",
    ]
    assert public
    for token in forged:
        with pytest.raises(Problem, match="unauthenticated"):
            await doorkeeper.caller(f"Bearer {token}")


@pytest.mark.asyncio
async def test_a_new_key_of_the_provider_is_asked_for_but_not_too_often(
    login: Login, doorkeeper: Doorkeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    await doorkeeper.caller(f"Bearer {login.token()}")
    login.keys["two"] = rsa.generate_private_key(65537, 2048)
    token = login.token(login.keys["two"], kid="two")
    for _ in range(3):
        with pytest.raises(Problem, match="does not tell of"):
            await doorkeeper.caller(f"Bearer {token}")
    assert login.asked == 1
    monkeypatch.setattr(tokens, "ASK_SECONDS", 0.0)
    assert (await doorkeeper.caller(f"Bearer {token}")).subject == "kim"
    login.away = True
    monkeypatch.setattr(tokens, "KEYS_SECONDS", 0.0)
    assert (await doorkeeper.caller(f"Bearer {token}")).subject == "kim"


@pytest.mark.asyncio
async def test_a_provider_that_is_away_from_the_start_is_waited_for(login: Login, doorkeeper: Doorkeeper) -> None:
    login.away = True
    with pytest.raises(Problem, match="unavailable"):
        await doorkeeper.caller(f"Bearer {login.token()}")


@pytest.mark.asyncio
async def test_who_comes_while_a_provider_is_silent_from_the_start_waits_once(
    login: Login, doorkeeper: Doorkeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A provider that says nothing takes five seconds to be given up."""
    login.away = True
    asked = (doorkeeper.caller(f"Bearer {login.token()}") for _ in range(10))
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert [str(answer) for answer in answers if isinstance(answer, Problem)] == [str(answers[0])] * 10
    assert "unavailable" in str(answers[0])
    assert login.asked == 1
    login.away = False
    monkeypatch.setattr(tokens, "ASK_SECONDS", 0.0)
    assert (await doorkeeper.caller(f"Bearer {login.token()}")).subject == "kim"
