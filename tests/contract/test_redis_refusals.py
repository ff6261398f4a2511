"""A Redis that answers, but refuses: what its errors mean, by their codes, and that all goes on afterwards."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from redis._parsers.base import BaseParser
from redis.asyncio import Redis
from redis.exceptions import ClusterError, DataError, RedisClusterException
from support.changes import change, rows, tables
from support.cluster import ClusterServer
from support.refusals import PERMISSIONS, REFUSALS, USER, allow, command_gone
from support.world import lease, verdict

from haystream.events import Action, Item
from haystream_service.commands.connected import connected
from haystream_service.errors import UserError
from haystream_service.local import ValkeyServer
from haystream_service.settings import Settings
from haystream_service.store.base import Position, StoreRefused, StoreUnavailable
from haystream_service.store.claims import Offer, Offers
from haystream_service.store.redis import RedisStore
from haystream_service.store.refusals import is_of_what_was_found, unavailable
from haystream_service.wire import decode_lease

ROOT = Path(__file__).parents[2]
AGAIN = [
    "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.",
    "CLUSTERDOWN Hash slot not served",
    "LOADING Valkey is loading the dataset in memory",
    "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.",
    "MISCONF Errors writing to the AOF file: No space left on device",
    "MOVED 3999 127.0.0.1:6381",
    "ASK 3999 127.0.0.1:6381",
    "NOREPLICAS Not enough good replicas to write.",
    "OOM command not allowed when used memory > 'maxmemory'. script: 8c7e, on @user_script:5.",
    "READONLY You can't write against a read only replica.",
    "ERR Script killed by user with SCRIPT KILL. script: 8c7e, on @user_script:5.",
    "ERR Error running script (call to f_8c7e): @user_script:5: Script killed by user with SCRIPT KILL...",
    "ERR Script attempted to access a non local key in a cluster node script: 8c7e, on @user_script:5.",
    "ERR Can not execute a command 'hget' while the cluster is down script: 8c7e, on @user_script:5.",
    "TRYAGAIN Multiple keys request during rehashing of slot",
    "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)",
]
REFUSED = [
    "DENIED Redis is running in protected mode because protected mode is enabled and no password is set for the "
    "default user.",
    "ERR unknown command 'EVALSHA', with args beginning with: '8c7e' '1' 'haystream:probe' ",
    "NOAUTH Authentication required.",
    "NOPERM User haystream has no permissions to run the 'evalsha' command",
    "WRONGPASS invalid username-password pair or user is disabled.",
    "ERR ACL failure in script: User haystream has no permissions to run the 'hset' command",
    "ERR AUTH <password> called without any password configured for the default user. Are you sure your "
    "configuration is correct?",
]
BUGS = [
    "ERR wrong number of arguments for 'get' command",
    "WRONGTYPE Operation against a key holding the wrong kind of value",
    "CROSSSLOT Keys in request don't hash to the same slot",
]


@pytest.mark.parametrize("said", [*AGAIN, *REFUSED, *BUGS])
def test_every_answer_of_redis_has_one_meaning(said: str) -> None:
    error = unavailable(BaseParser.parse_error(said))  # as redis-py makes an exception of it
    if said in BUGS:
        assert error is None
        return
    assert type(error) is (StoreRefused if said in REFUSED else StoreUnavailable)
    assert not is_of_what_was_found(BaseParser.parse_error(said))
    assert said.removeprefix("ERR ") in str(error).replace("NOPERM ACL", "ACL").replace("ERR ", "")


def test_what_is_no_answer_of_the_server() -> None:
    for error in (ConnectionResetError("reset"), ClusterError("TTL exhausted."), RedisClusterException("no node")):
        assert type(unavailable(error)) is StoreUnavailable
    assert unavailable(DataError("a bug of ours")) is None
    assert unavailable(ValueError("as is this")) is None


@pytest.mark.asyncio
async def test_what_speaks_another_language_is_no_redis() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1") as server:
        host, port = server.sockets[0].getsockname()
        store = RedisStore.connect(f"redis://{host}:{port}/0")
        with pytest.raises(StoreRefused, match=r"no Redis \(HAYSTREAM_REDIS\)"):
            await store.item_count("c")
        await store.close()


@pytest.mark.asyncio
@pytest.mark.redis
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"redis": "9999"}, "no database of that number (HAYSTREAM_REDIS)"),
        ({"redis_sentinel": "mymaster"}, "no sentinel (HAYSTREAM_REDIS_SENTINEL)"),
        ({"redis_cluster": True}, "no Redis Cluster (HAYSTREAM_REDIS_CLUSTER)"),
    ],
)
async def test_a_server_that_is_another_than_the_settings_say(
    own_valkey: ValkeyServer, settings: dict[str, Any], said: str
) -> None:
    address, _, database = own_valkey.url.rpartition("/")
    redis = f"{address}/{settings.get('redis', database)}"
    store = RedisStore.open(Settings(**{**settings, "redis": redis}))
    with pytest.raises(StoreRefused, match=re.escape(said)):
        await store.item_count("c")
    await store.close()


@pytest.mark.redis
def test_a_command_says_at_once_that_redis_does_not_let_it_in(
    own_valkey: ValkeyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HAYSTREAM_REDIS", own_valkey.url)
    monkeypatch.setenv("HAYSTREAM_REDIS_USER", "nobody")
    monkeypatch.setenv("HAYSTREAM_REDIS_PASSWORD", "wrong")
    with pytest.raises(UserError, match=r"does not let us in: WRONGPASS"), connected(None):
        pass


def test_a_command_says_that_certificates_of_kafka_are_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ca.pem").write_text("no certificate")
    monkeypatch.setenv("HAYSTREAM_KAFKA_TLS", "true")
    monkeypatch.setenv("HAYSTREAM_KAFKA_CA_FILE", str(tmp_path / "ca.pem"))
    with pytest.raises(UserError, match=r"certificates .* cannot be used"), connected(None):
        pass


@pytest_asyncio.fixture
async def store(own_valkey: ValkeyServer, password: Path, redis_prefix: str) -> AsyncIterator[RedisStore]:
    await allow(own_valkey, redis_prefix, "S3cret")
    settings = Settings(
        redis=own_valkey.url, redis_prefix=redis_prefix, redis_user=USER, redis_password_file=password
    )
    store = RedisStore.open(settings)
    yield store
    await store.wipe()
    await store.close()


@pytest.mark.asyncio
@pytest.mark.redis
async def test_the_rights_that_are_documented_are_enough_for_leases(store: RedisStore) -> None:
    await store.save_query(change(offers=Offers([Offer("a", 0.5, 0.25)], complete=True)))
    (lease,) = await store.claims.claim("q", "ann", 1, 60)
    await store.claims.extend("q", lease.lease_id, "ann", 90)
    await store.claims.release("q", lease.lease_id, "ann")
    await store.claims.claim("q", "bo", 1, 0)
    assert (await store.claims.expire("q")).expired == 1
    assert await store.claims.live("q") == []


def test_the_rights_that_are_given_here_are_those_that_are_documented() -> None:
    assert f" {' '.join(PERMISSIONS)}\n" in (ROOT / "docs" / "operations.md").read_text()


@pytest.mark.asyncio
@pytest.mark.redis
@pytest.mark.parametrize("name", REFUSALS)
async def test_refused_is_said_and_then_it_goes_on(
    store: RedisStore, own_valkey: ValkeyServer, password: Path, name: str
) -> None:
    await store.append_items("c", [Item("1", "c", "a", ("b",))])
    await store.ping()
    async with REFUSALS[name](own_valkey, password) as code:
        kind = StoreRefused if code in {"NOPERM", "WRONGPASS"} else StoreUnavailable
        for call in (lambda: store.append_items("c", [Item("2", "c", "a", ("b",))]), store.ping):
            with pytest.raises(kind, match=rf": {code} \w") as caught:
                await call()
            assert type(caught.value) is kind
    await store.ping()
    await store.append_items("c", [Item("2", "c", "a", ("b",))])
    assert await store.item_count("c") == 2


OFFERS = Offers([Offer(f"item-{n}", 1 / n, 0.5 / n) for n in range(1, 1500)], complete=False)
BEFORE = change(
    verdicts=[verdict(1)],
    leases=[lease(1, item=2), lease(2, item=2), lease(3, item=3)],
    tables=tables(rows([0, 1]), rows([2, 3])),
    offers=OFFERS,
)
AFTER = change(
    expected=10,
    revision=20,
    position=Position(5, 8, 2, 4),
    settings=None,
    verdicts=[verdict(3)],
    leases=[lease(1, "released", item=2), lease(4, item=4), lease(5, item=4)],
    ended=["l3"],
    tables=tables(rows([0, 2], 7.0), rows([1], 9.0), whole=True),
    offers=OFFERS._replace(items=OFFERS.items[4:]),
)


async def everything(redis: Any) -> dict[bytes, Any]:
    """By key, what a server holds."""
    read = {
        b"hash": redis.hgetall,
        b"string": redis.get,
        b"set": redis.smembers,
        b"list": lambda key: redis.lrange(key, 0, -1),
        b"zset": lambda key: redis.zrange(key, 0, -1, withscores=True),
    }
    return {key: await read[await redis.type(key)](key) async for key in redis.scan_iter()}


@pytest.mark.asyncio
@pytest.mark.redis
@pytest.mark.parametrize("command", ["hset", "hdel", "zadd", "zrem", "set", "setrange", "del", "rpush"])
async def test_a_save_that_is_refused_halfway_is_whole_when_it_is_tried_again(
    store: RedisStore, own_valkey: ValkeyServer, command: str
) -> None:
    async with Redis(port=own_valkey.port) as admin:
        await store.save_query(BEFORE)
        await store.save_query(AFTER)
        whole = await everything(admin)
        await store.wipe()
        await store.save_query(BEFORE)
        async with command_gone(own_valkey, command):
            for _ in range(2):
                with pytest.raises(StoreRefused, match="NOPERM"):
                    await store.save_query(AFTER)
                assert await store.read_revision("q") == BEFORE.revision
        for _ in range(2):  # the answer to the first may be lost
            await store.save_query(AFTER)
            assert await everything(admin) == whole


@pytest.mark.asyncio
@pytest.mark.redis
@pytest.mark.parametrize("command", ["hset", "hdel", "zrem", "xadd"])
@pytest.mark.parametrize("action", [Action.RELEASED, Action.EXPIRED])
async def test_a_lease_whose_end_is_refused_halfway_ends_when_that_is_tried_again(
    store: RedisStore, own_valkey: ValkeyServer, command: str, action: Action
) -> None:
    await store.save_query(BEFORE)
    seconds = 0 if action is Action.EXPIRED else 60
    (claimed,) = await store.claims.claim("q", "ann", 1, seconds)

    async def end() -> None:
        if action is Action.EXPIRED:
            await store.claims.expire("q")
        else:
            await store.claims.release("q", claimed.lease_id, "ann")

    async with command_gone(own_valkey, command):
        with pytest.raises(StoreRefused, match="NOPERM"):
            await end()
    await end()
    told = [decode_lease(each.value, each.key) for each in await store.claims.outbox("q", 10)]
    assert [fact.action for fact in told if fact.lease_id == claimed.lease_id][-1] is action
    assert claimed.lease_id not in [each.lease_id for each in await store.claims.live("q")]
    (again,) = await store.claims.claim("q", "bo", 1, 60)
    assert again.item_id == claimed.item_id


@pytest.mark.asyncio
@pytest.mark.redis
async def test_a_cluster_without_its_slots() -> None:
    with ClusterServer() as server:
        store = RedisStore.connect(server.url, cluster=True)
        await store.append_items("c", [Item("1", "c", "a", ("b",))])
        async with Redis(port=server.port) as node:
            await node.execute_command("CLUSTER", "DELSLOTSRANGE", 0, 16383)
            with pytest.raises(StoreUnavailable):
                await store.append_items("c", [Item("2", "c", "a", ("b",))])
            await node.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
            while b"cluster_state:ok" not in await node.execute_command("CLUSTER", "INFO"):
                pass
        await store.append_items("c", [Item("2", "c", "a", ("b",))])
        assert await store.item_count("c") == 2
        await store.close()
