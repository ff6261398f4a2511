"""What is said where a key of ours holds something else than we wrote: which key, and what mends it.

Somebody else was at it: a script, a person, another program with the same prefix. What was there is gone, so only
the topics have it.
"""

from collections.abc import Collection, Sequence
from typing import Any

from haystream_service.store.base import SharedDamaged, StoreDamaged, StoreUnavailable
from haystream_service.store.keys import Keys, type_of

REBUILD = "put back what was there, or stop the workers and run `haystream rebuild`"


async def damage(redis: Any, names: Keys, keys: Collection[str], said: str) -> StoreDamaged | StoreUnavailable:
    """What to raise where one of the keys holds something of another type; `said` is the server's word on it.

    What is about one query or one collection is their trouble alone. What is shared has to be mended before
    anything can be done, and is waited for. Where nothing is wrong any more, it is tried again. May raise what the
    client raises.
    """
    for key in keys:
        wanted, found = type_of(key, names.prefix), (await redis.type(key)).decode()
        if found in {"none", wanted}:
            continue
        return _said(names, key, f"the Redis key {key} holds a {found}, and a {wanted} belongs there")
    if keys:
        return StoreUnavailable(f"Redis had something else under a key of ours: {said}")
    return StoreDamaged(f"Redis has something else under a key of ours: {said}")


def unreadable(names: Keys, keys: Sequence[str], said: object) -> StoreDamaged | SharedDamaged:
    """What to raise where what is under these keys has the right type, and cannot be what we wrote."""
    return _said(names, keys[0], f"what is in {' or '.join(keys)} in Redis cannot be read ({said})")


def _said(names: Keys, key: str, what: str) -> StoreDamaged | SharedDamaged:
    if key == names.up_to:  # which only notes what can be found out again
        mend = f"redis-cli DEL {key}; workers end once then, and read all topics again"
        return SharedDamaged(f"{what}. Mend it with: {mend}")
    return (SharedDamaged if names.is_shared(key) else StoreDamaged)(f"{what}: {REBUILD}")
