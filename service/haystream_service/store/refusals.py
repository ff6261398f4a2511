"""What an error of redis-py means: try again, or a bug. (Nothing that Redis says is the fault of a record.)"""

from collections.abc import Mapping
from enum import Enum

from redis.exceptions import (
    AuthenticationError,
    ClusterError,
    InvalidResponse,
    RedisClusterException,
    RedisError,
    ResponseError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from haystream_service.store.base import StoreRefused, StoreUnavailable


class Meaning(Enum):
    """What to do about it."""

    AGAIN = "Redis cannot serve now"
    REFUSED = "Redis does not let us in"
    """Try again, too, but only a person can mend it."""


CODES: Mapping[str, Meaning] = {
    # The server, or its cluster, is not ready, or not for everything.
    "BUSY": Meaning.AGAIN,  # somebody's script runs
    "CLUSTERDOWN": Meaning.AGAIN,
    "LOADING": Meaning.AGAIN,
    "MASTERDOWN": Meaning.AGAIN,
    "MISCONF": Meaning.AGAIN,  # it cannot write to its disk
    "NOREPLICAS": Meaning.AGAIN,
    "OOM": Meaning.AGAIN,
    "READONLY": Meaning.AGAIN,  # a replica, after a failover
    "UNBLOCKED": Meaning.AGAIN,
    # Slots on the move, or a cluster that is taken for a single server (HAYSTREAM_REDIS_CLUSTER).
    "ASK": Meaning.AGAIN,
    "MOVED": Meaning.AGAIN,
    "TRYAGAIN": Meaning.AGAIN,
    # Passwords and permissions.
    "DENIED": Meaning.REFUSED,  # it takes nobody from elsewhere, as it has no password (protected-mode)
    "NOAUTH": Meaning.REFUSED,
    "NOPERM": Meaning.REFUSED,
    "WRONGPASS": Meaning.REFUSED,
}
"""By the first word of the server's answer. What is not here is a bug."""

WRONG_TYPE = "WRONGTYPE"
"""The code where a key holds a value of another type than ours."""

SCRIPT_ERRORS = "@user_script", "is not an integer"
"""What an error has in its text that a script raises, or a command that counts."""

IN_SCRIPT = "ACL failure in script"
"""How an ERR begins that is a NOPERM for what a script does."""

BROKEN_OFF = "killed by user", "a non local key in a cluster node", "while the cluster is down"
"""What an ERR has in its text where a script is broken off, and not for what it found: a person killed it, its
slot moved, or its cluster went down, meanwhile."""

NO_DATABASE = "Redis has no database of that number (HAYSTREAM_REDIS)"
SOMETHING_ELSE: Mapping[str, str] = {
    "DB index is out of range": NO_DATABASE,
    "invalid DB index": NO_DATABASE,
    "SELECT is not allowed": NO_DATABASE,
    "unknown command 'SENTINEL'": "that is no sentinel (HAYSTREAM_REDIS_SENTINEL)",
    "Cluster mode is not enabled": "that is no Redis Cluster (HAYSTREAM_REDIS_CLUSTER)",
    "unknown command": "that Redis does not have all that is asked of it (HAYSTREAM_REDIS): it is older than 7, a "
    "sentinel, or a command of it was renamed",
}
"""What a server's error has in its text that is another one than the settings say."""

UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"
"""In the text, which is all that redis-py leaves of it, where the server's certificate is not trusted."""


def code(error: RedisError) -> str:
    """The first word of the server's answer; empty where the error is not an answer."""
    if str(error).startswith(IN_SCRIPT):
        return "NOPERM"
    if error.status_code is not None:
        return error.status_code  # redis-py takes the codes that it knows out of the text
    return str(error).partition(" ")[0] if isinstance(error, ResponseError) else ""


def is_of_another_type(error: Exception) -> bool:
    """Whether the server says that a key holds a value of another type than ours."""
    return isinstance(error, RedisError) and code(error) == WRONG_TYPE


def is_of_what_was_found(error: Exception) -> bool:
    """Whether a command or a script of ours stumbled over what is under a key: what they write, they can use."""
    stumbled = isinstance(error, ResponseError) and any(said in str(error) for said in SCRIPT_ERRORS)
    return stumbled and not is_of_another_type(error) and unavailable(error) is None


def unavailable(error: Exception) -> StoreUnavailable | None:
    """What to raise in its place, with what Redis said; None where it is a bug."""
    if UNTRUSTED in str(error):
        return StoreRefused(
            f"Redis cannot be used: its certificate is not trusted (HAYSTREAM_REDIS_CA_FILE): {error}"
        )
    if isinstance(error, InvalidResponse):
        return StoreRefused(f"what answers is no Redis (HAYSTREAM_REDIS): {error}")
    if isinstance(error, ResponseError | RedisClusterException):
        for said, meant in SOMETHING_ELSE.items():
            if said in str(error):
                return StoreRefused(f"{meant}: {error}")
    if not isinstance(error, RedisError):
        # A cluster's client, and the sockets, have errors of their own.
        known = isinstance(error, RedisClusterException | OSError)
        return StoreUnavailable(f"Redis cannot be reached (HAYSTREAM_REDIS): {error}") if known else None
    word = code(error)
    meaning = Meaning.AGAIN if any(said in str(error) for said in BROKEN_OFF) else CODES.get(word)
    if meaning is None and isinstance(error, AuthenticationError):
        meaning = Meaning.REFUSED
    if meaning is not None:
        said = f"{word} {str(error).removeprefix(word).strip()}"
        kind = StoreRefused if meaning is Meaning.REFUSED else StoreUnavailable
        return kind(f"{meaning.value}: {said}")
    if isinstance(error, RedisConnectionError | RedisTimeoutError | ClusterError):
        return StoreUnavailable(f"Redis cannot be reached (HAYSTREAM_REDIS): {error}")
    return None
