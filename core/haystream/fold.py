"""The fold: collections and queries, one event at a time, in any order."""

from dataclasses import dataclass, field

from haystream.collection.collection import Collection
from haystream.engines.local.solves.budget import DEFAULT_TOLERANCE
from haystream.errors import Code, Rejected
from haystream.events import Event, Item, ItemFact, LeaseFact, Query, Status, Verdict, View, Withdrawal
from haystream.facts.leases import Leases
from haystream.facts.merging import ItemLog
from haystream.facts.verdicts import Verdicts
from haystream.query.state import QueryState
from haystream.scope import Scope


@dataclass(slots=True)
class State:
    """Everything: the collections with their logs, the queries, and (by query) what waits for its query: verdicts,
    facts of leases.

    `deleted` has the ids of queries that were deleted: nothing else is left of them, and nothing counts for them.
    """

    logs: dict[str, ItemLog] = field(default_factory=dict)
    collections: dict[View, Collection] = field(default_factory=dict)
    queries: dict[str, QueryState] = field(default_factory=dict)
    orphans: dict[str, Verdicts] = field(default_factory=dict)
    early: dict[str, tuple[Leases, list[LeaseFact]]] = field(default_factory=dict)
    deleted: set[str] = field(default_factory=set)
    tolerance: float = DEFAULT_TOLERANCE

    def collection(self, name: str, scope: Scope | None = None) -> Collection:
        """The collection, or its items in the scope, made if it is new."""
        view = View(name, scope)
        if view not in self.collections:
            self.collections[view] = self._made(view)
        return self.collections[view]

    def made_afresh(self, view: View) -> Collection:
        """The collection of that view once more, of what is known now."""
        self.collections[view] = self._made(view)
        return self.collections[view]

    def _made(self, view: View) -> Collection:
        collection = Collection(*view)
        collection.add_all(self.logs.get(view.collection, ()))
        return collection


def step(state: State, event: Event) -> tuple[str, ...]:
    """The queries, by id, that are not what they were once an event is folded into the state: none by a known fact.

    Raises:
        Rejected: the event is bad; the state is what it was.
    """
    match event:
        case Item() | Withdrawal():
            return _item(state, event)
        case Query():
            return _query(state, event)
        case Verdict():
            return _verdict(state, event)
        case LeaseFact():
            return _lease(state, event)


def _item(state: State, fact: ItemFact) -> tuple[str, ...]:
    entry = state.logs.setdefault(fact.collection, ItemLog()).add(fact)
    if entry is None:
        return ()
    changed: list[str] = []
    for view, collection in list(state.collections.items()):
        if view.collection == fact.collection and collection.add(entry):
            of_view = {q: query for q, query in state.queries.items() if query.collection is collection}
            if collection.outgrown:
                fresh = state.made_afresh(view)
                for query in of_view.values():
                    query.begin_anew(fresh)
            changed += of_view
    return tuple(changed)


def _query(state: State, settings: Query) -> tuple[str, ...]:
    if settings.status == Status.DELETED:
        return _delete(state, settings.query_id)
    _check_not_deleted(state, settings.query_id)
    known = state.queries.get(settings.query_id)
    if known is not None:
        return (settings.query_id,) if known.apply_settings(settings) else ()
    query = QueryState(settings, state.collection(*settings.view), tolerance=state.tolerance)
    state.queries[settings.query_id] = query
    for verdict in state.orphans.pop(settings.query_id, Verdicts()).values():
        query.apply_verdict(verdict)
    _, facts = state.early.pop(settings.query_id, (None, ()))
    for fact in facts:
        query.apply_lease(fact)
    return (settings.query_id,)


def _verdict(state: State, verdict: Verdict) -> tuple[str, ...]:
    _check_not_deleted(state, verdict.query_id)
    query = state.queries.get(verdict.query_id)
    if query is None:
        state.orphans.setdefault(verdict.query_id, Verdicts()).add(verdict)
        return ()
    return (verdict.query_id,) if query.apply_verdict(verdict) else ()


def _lease(state: State, fact: LeaseFact) -> tuple[str, ...]:
    _check_not_deleted(state, fact.query_id)
    query = state.queries.get(fact.query_id)
    if query is None:
        leases, facts = state.early.setdefault(fact.query_id, (Leases(), []))
        if leases.add(fact):
            facts.append(fact)
        return ()
    return (fact.query_id,) if query.apply_lease(fact) else ()


def _delete(state: State, query_id: str) -> tuple[str, ...]:
    if query_id in state.deleted:
        return ()
    state.queries.pop(query_id, None)
    state.orphans.pop(query_id, None)
    state.early.pop(query_id, None)
    state.deleted.add(query_id)
    return (query_id,)


def _check_not_deleted(state: State, query_id: str) -> None:
    if query_id in state.deleted:
        raise Rejected(Code.QUERY_DELETED, f"query {query_id!r} was deleted, for good")
