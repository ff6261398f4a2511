"""The verdicts of one query: what holds of each item, as a function of the set of facts.

Of the verdicts on one item that which was decided last holds, whoever gave it; of two at the same microsecond, the
one with the greater id.
"""

from collections.abc import Iterator, KeysView, Mapping

from haystream.errors import Code, Rejected
from haystream.events import Outcome, Verdict


class Verdicts(Mapping[str, Verdict]):
    """All verdicts that there ever were, by id, in the order in which they came."""

    def __init__(self) -> None:
        self._by_id: dict[str, Verdict] = {}
        self._holding: dict[str, Verdict] = {}
        """By item."""

    def __getitem__(self, verdict_id: str) -> Verdict:
        return self._by_id[verdict_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_id)

    def __len__(self) -> int:
        return len(self._by_id)

    @property
    def items_judged(self) -> KeysView[str]:
        """The items, by id, of which somebody has said something, also if that is retracted."""
        return self._holding.keys()

    def outcome(self, item_id: str) -> Outcome:
        """What holds of the item; RETRACTED where nobody has said anything."""
        verdict = self._holding.get(item_id)
        return Outcome.RETRACTED if verdict is None else verdict.outcome

    def add(self, verdict: Verdict) -> bool:
        """Take a verdict; True if it is a new fact, False if the same verdict is known.

        Raises:
            Rejected: VERDICT_CONFLICT if its id is known with other content.
        """
        known = self._by_id.get(verdict.verdict_id)
        if known is not None:
            if known != verdict:
                raise Rejected(Code.VERDICT_CONFLICT, f"verdict {verdict.verdict_id!r} is known with other content")
            return False
        self._by_id[verdict.verdict_id] = verdict
        holds = self._holding.get(verdict.item_id)
        if holds is None or _rank(verdict) > _rank(holds):
            self._holding[verdict.item_id] = verdict
        return True


def _rank(verdict: Verdict) -> tuple[int, str]:
    return verdict.decided_at, verdict.verdict_id
