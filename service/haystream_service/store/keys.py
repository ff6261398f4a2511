"""How the Redis store names its keys. Everything that one script touches shares one hash tag (Redis Cluster).

| key | type | holds |
|---|---|---|
| `P:{c:NAME}:log` | stream | entries 1-0, 2-0, …: what is known of an item from then on; field `item`, JSON |
| `P:{c:NAME}:ids` | hash | item_id → 16-byte digest of its people, then its last entry's number in decimal |
| `P:{c:NAME}:inverse:δ:TOL` | string | (Q⁻¹) on the graph for correlation δ and tolerance TOL (`snapshots`) |
| `P:{c:NAME}:inverse:δ:TOL:KEY` | string | the same of the items in a scope, by `Scope.key`, for a month |
| `P:{q:ID}:meta` | hash | revision, partition, settings, offsets, cursor, history, touched, shared and others |
| `P:{q:ID}:verdicts` | hash | verdict_id → wire JSON |
| `P:{q:ID}:ranking` | string | the last next-items value, JSON |
| `P:{q:ID}:people-told` | string | of each participant that differs from the prior its number in the log, X, O, V |
| `P:{q:ID}:pairs-told` | string | of each edge that does its number, n, y, covariance |
| `P:{q:ID}:participants`, `…:edges` | string | both as formats 1 to 3 have them, until the query is saved |
| `P:{q:ID}:leases` | hash | lease_id → the lease in lines (`lease_functions.lua`) |
| `P:{q:ID}:held` | hash | item_id → how many leases on it are not over |
| `P:{q:ID}:live` | sorted set | the leases that are not over, by when they end |
| `P:{q:ID}:outbox` | stream | facts about leases that are not known to be in the topic yet |
| `P:{q:ID}:offers` | list | `revision complete`, then item, score and mean, in lines, in rank order |
| `P:{q:ID}:note` | hash | queries, verdicts, leases: `first last`, offsets to be read again; quarantine (JSON) |
| `P:{q:ID}:change` | hash | name, offset: of a change of settings that is under way, for a minute |
| `P:{q:ID}:attempts` | set | batches that were begun: by whoever has one in hand, or died of one |
| `P:partitions` | set | the partitions that have keys of their own |
| `P:partition:N` | set | ids of the queries saved from partition N of the queries topic |
| `P:quarantined:N` | set | ids of the queries of partition N that are stopped, or were and have to be taken up |
| `P:leased:N` | set | ids of the queries of partition N that ever had leases, but for those deleted |
| `P:unknown:N` | hash | query_id → `first last`, offsets of verdicts for queries that nobody has opened |
| `P:unknown-leases:N` | hash | the same of leases |
| `P:up-to` | hash | `TOPIC/PARTITION` → the offset before which all is in the store, a moment behind the truth |
| `P:up-to` | hash | also `history` and `counted/…`, by which `worker.written` tells that the store has gone back |
| `P:up-to` | hash | also `counted/listed/N`: how many queries were in `P:partition:N` |
| `P:generation` | string | the mark that a store in use carries |
| `P:probe` | string | nothing: what is written to see whether the server takes writes |

Of a collection that was deleted there is no log, and `ids` has the empty id alone. Of a query that was deleted
there is `meta`, without what is shared, with settings that say so and, once readers were told, `withdrawn`.

`verdicts` in `meta` is how many were saved: a query of which some are gone is not taken for one that has fewer.
`told` is `revision participants edges`: how many bytes of rows there were when that revision was saved.

A number is 4 bytes (uint32) and the rest float64, all little-endian: 28 bytes a row. Rows are in no order, no
number is there twice, and at number 2³² − 1 there is no row. `size` in `meta` is how many participants and edges of
the log they are of, `participants edges`; who of these has no row is as the prior of `settings` says on that graph
(docs/scores.md). In formats 1 to 3 all have a row, in their order and without numbers; where `participants`
is there, these are the query's tables.

Rows are numbered by the log's items that are in the query's scope, where it has one. Where its collection was made
afresh by entry n (`Collection.left_at`), rows of a query whose cursor is below n are as the entries up to its
cursor number them.

Where there is no room in `P:unknown:N` for more queries, the empty id stands for all the others.

`shared` is `{"base_rate", "mean_shift", "variance", "scale", "discrepancy"}`: what all rows are read with. It moves
with every verdict, and no row with it: `haystream.posterior.rows` says why, and `posterior.tables.read` gives means
and variances.

P is the prefix. A hash tag ends at the first `}`, so names and ids have `%`, `{` and `}` percent-encoded.
"""

from dataclasses import dataclass
from urllib.parse import unquote

_ESCAPES = str.maketrans({"%": "%25", "{": "%7B", "}": "%7D"})
_GLOB_ESCAPES = str.maketrans({c: f"\\{c}" for c in "*?[]\\^-"})


_TYPES = {
    "log": "stream",
    "ids": "hash",
    "meta": "hash",
    "verdicts": "hash",
    "leases": "hash",
    "held": "hash",
    "live": "zset",
    "outbox": "stream",
    "offers": "list",
    "note": "hash",
    "change": "hash",
    "attempts": "set",
    "partitions": "set",
    "partition": "set",
    "quarantined": "set",
    "leased": "set",
    "unknown": "hash",
    "unknown-leases": "hash",
    "up-to": "hash",
}
"""By the part of a key's name that says what it is, what Redis calls its type; all others are strings."""


def type_of(key: str, prefix: str) -> str:
    """What Redis calls the type of what belongs under a key of that prefix."""
    _, _, name = key.removeprefix(f"{prefix}:").rpartition("}:")
    return _TYPES.get(name.partition(":")[0], "string")


@dataclass(frozen=True, slots=True)
class Keys:
    """The names of every key under one prefix."""

    prefix: str

    def log(self, collection: str) -> str:
        """The stream of the collection's items."""
        return f"{self.prefix}:{{c:{collection.translate(_ESCAPES)}}}:log"

    def ids(self, collection: str) -> str:
        """The hash of the collection's item ids."""
        return f"{self.prefix}:{{c:{collection.translate(_ESCAPES)}}}:ids"

    def snapshot(self, collection: str, name: str) -> str:
        """What was computed from the collection's graph, under a name of its own."""
        return f"{self.prefix}:{{c:{collection.translate(_ESCAPES)}}}:{name}"

    def derived(self, collection: str) -> str:
        """A pattern for SCAN that matches all that was computed from the collection's graph."""
        name = collection.translate(_ESCAPES).translate(_GLOB_ESCAPES)
        return f"{self.prefix.translate(_GLOB_ESCAPES)}:{{c:{name}}}:inverse:*"

    def query(self, query_id: str, part: str) -> str:
        """One of a query's keys, by the last part of its name."""
        return f"{self.prefix}:{{q:{query_id.translate(_ESCAPES)}}}:{part}"

    @property
    def every_meta(self) -> str:
        """A pattern for SCAN that matches the `meta` of every query."""
        return f"{self.prefix.translate(_GLOB_ESCAPES)}:{{q:*}}:meta"

    def query_of(self, meta: str) -> str:
        """The id of the query whose `meta` that key is."""
        return unquote(meta.removeprefix(f"{self.prefix}:{{q:").removesuffix("}:meta"))

    def partition(self, partition: int) -> str:
        """The set of queries of a partition."""
        return f"{self.prefix}:partition:{partition}"

    def quarantined(self, partition: int) -> str:
        """The set of stopped queries of a partition."""
        return f"{self.prefix}:quarantined:{partition}"

    def unknown(self, partition: int) -> str:
        """The hash of queries that verdicts of a partition name and nobody has opened."""
        return f"{self.prefix}:unknown:{partition}"

    def unknown_leases(self, partition: int) -> str:
        """The hash of queries that leases of a partition name and nobody has opened."""
        return f"{self.prefix}:unknown-leases:{partition}"

    def leased(self, partition: int) -> str:
        """The set of queries of a partition that ever had leases and are not deleted."""
        return f"{self.prefix}:leased:{partition}"

    def is_shared(self, key: str) -> bool:
        """Whether the key is neither one query's nor one collection's."""
        return not key.startswith((f"{self.prefix}:{{q:", f"{self.prefix}:{{c:"))

    @property
    def partitions(self) -> str:
        """The set of partitions that have queries."""
        return f"{self.prefix}:partitions"

    @property
    def generation(self) -> str:
        """The mark of a store in use."""
        return f"{self.prefix}:generation"

    @property
    def up_to(self) -> str:
        """The hash of how far topics are in the store."""
        return f"{self.prefix}:up-to"

    @property
    def probe(self) -> str:
        """What is written to see whether the server takes writes."""
        return f"{self.prefix}:probe"

    @property
    def everything(self) -> str:
        """A pattern for SCAN that matches every key under the prefix, and no other."""
        return f"{self.prefix.translate(_GLOB_ESCAPES)}:*"
