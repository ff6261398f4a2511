"""The routes of what is believed, and why: participants, pairs, an item's place."""

from typing import TYPE_CHECKING, Annotated

import numpy as np
from fastapi import APIRouter, Query
from numpy.typing import NDArray
from starlette.responses import Response

from haystream.posterior.rows import Posterior
from haystream_service.api.desk import Desk, Opened
from haystream_service.api.guards import DeskOf, Limit, PathId, QueryOf, answer
from haystream_service.api.items import as_answer, find_item
from haystream_service.api.messages import Belief, Beliefs, Contact, Neighbourhood, PairBelief, PairBeliefs, Why
from haystream_service.api.problems import not_found, unavailable
from haystream_service.wire import VerdictRecord, decode_ranking, encode_verdict, read_record

if TYPE_CHECKING:
    from haystream.collection.graph import Graph

router = APIRouter(tags=["beliefs"])

MOST_PAIRS = 64
"""Of one item: an item between many people lies on thousands."""
Contacts = Annotated[int, Query(ge=1, le=500)]


@router.get("/v1/queries/{query_id}/participants", response_model=Beliefs)
async def list_participants(opened: QueryOf, desk: DeskOf, limit: Limit = 50) -> Response:
    """Participants who are believed to matter most."""
    found = await _believed(desk, opened)
    best = _first(found.posterior.participant_mean, limit)
    people = tuple(found.person(int(u)) for u in best)
    return answer(
        Beliefs(query_id=opened.query_id, count=len(found.posterior.participant_mean), participants=people)
    )


@router.get("/v1/queries/{query_id}/participants/{participant}", response_model=Neighbourhood)
async def show_participant(opened: QueryOf, participant: PathId, desk: DeskOf, limit: Contacts = 50) -> Response:
    """What is believed of a participant, and of those around it."""
    found = await _believed(desk, opened)
    u = found.graph.participant(participant)
    if u is None or u >= len(found.posterior.participant_mean):
        raise not_found(f"participant {participant!r}")
    edges = found.graph.edges_of(u)
    edges = edges[edges < len(found.posterior.edge_mean)]
    best = edges[_first(found.posterior.edge_mean[edges], limit)]
    me = found.person(u)
    return answer(
        Neighbourhood(
            query_id=opened.query_id,
            participant=participant,
            mean=me.mean,
            sd=me.sd,
            contacts=tuple(found.contact(u, int(e)) for e in best),
            contacts_cut=len(edges) - len(best),
        )
    )


@router.get("/v1/queries/{query_id}/pairs", response_model=PairBeliefs)
async def list_pairs(opened: QueryOf, desk: DeskOf, limit: Limit = 50) -> Response:
    """Pairs whose items are believed to be relevant most often."""
    found = await _believed(desk, opened)
    best = _first(found.posterior.edge_mean, limit)
    pairs = tuple(found.pair(int(e)) for e in best)
    return answer(PairBeliefs(query_id=opened.query_id, count=len(found.posterior.edge_mean), pairs=pairs))


@router.get("/v1/queries/{query_id}/items/{item_id}", response_model=Why)
async def explain_item(opened: QueryOf, item_id: PathId, desk: DeskOf) -> Response:
    """Why an item is ranked where it is, or is not: `because`, if it is, its pairs, and all that was said of it."""
    item = await find_item(desk, opened.collection, item_id)
    scope = opened.settings.scope
    if scope is not None and not scope.admits(item):
        raise not_found(f"item {item_id!r} in the scope of query {opened.query_id!r}")
    raw = await desk.store.read_ranking(opened.query_id)
    ranked = () if raw is None else decode_ranking(raw).items
    found = await _believed(desk, opened)
    pairs = item.pairs()
    edges = [found.graph.edge_between(pair) for pair in pairs]
    known = [e for e in edges if e is not None and e < len(found.posterior.edge_mean)][:MOST_PAIRS]
    said = await desk.store.find_verdicts(opened.query_id, item_id)
    said.sort(key=lambda verdict: (verdict.decided_at, verdict.verdict_id))
    return answer(
        Why(
            query_id=opened.query_id,
            item=as_answer(item),
            ranked=next((entry for entry in ranked if entry.item_id == item_id), None),
            pairs=tuple(map(found.pair, known)),
            pairs_cut=len(pairs) - len(known),
            verdicts=tuple(read_record(VerdictRecord, encode_verdict(v), limit=1 << 20) for v in said),
        )
    )


class _Believed:
    """A query's posterior, with the names that its rows have."""

    def __init__(self, graph: "Graph", posterior: Posterior) -> None:
        self.graph = graph
        self.posterior = posterior

    def person(self, u: int) -> Belief:
        """The participant of that row."""
        variance = self.posterior.participant_variance[u]
        return Belief(
            participant=self.graph.participants[u],
            mean=float(self.posterior.participant_mean[u]),
            sd=float(np.sqrt(max(variance, 0.0))),
        )

    def pair(self, edge: int) -> PairBelief:
        """The pair of that row."""
        return PairBelief(
            participants=self.graph.names(edge),
            mean=float(self.posterior.edge_mean[edge]),
            sd=float(np.sqrt(max(self.posterior.edge_variance[edge], 0.0))),
            screened=float(self.posterior.screened[edge]),
            relevant=float(self.posterior.relevant[edge]),
        )

    def contact(self, u: int, edge: int) -> Contact:
        """Who is at the pair's other end."""
        ends = self.graph.ends(edge)
        other = self.person(ends[1] if ends[0] == u else ends[0])
        return Contact(participant=other.participant, mean=other.mean, sd=other.sd, pair=self.pair(edge))


async def _believed(desk: Desk, opened: Opened) -> _Believed:
    found = await desk.graphs.posterior(opened.settings)
    if found is None:
        raise unavailable(f"query {opened.query_id!r} has no posterior yet")
    return _Believed(*found)


def _first(means: NDArray[np.float64], limit: int) -> NDArray[np.int64]:
    """Where the greatest are, the greatest first; of equal ones those that came first."""
    return np.argsort(-means, kind="stable")[:limit].astype(np.int64)
