"""What a network's true rates are like, beside what the paper's model expects of them before any verdict.

    python -m haystream_service.study.describe ITEMS.csv

Prints one JSON object.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from haystream_service.console import write_json
from haystream_service.errors import UserError
from haystream_service.study.models import MODELS
from haystream_service.study.network import Floats, Network, read_network, read_topics

ENOUGH_ITEMS = 5.0
"""Items that an edge, or a participant beside it, must have for its rate to be looked at."""
HIGH_SHARE = 0.1
"""A participant is `high` beside an edge if more than this share of the items on its other edges is relevant."""


def described(network: Network) -> dict[str, Any]:
    """The rates of edges, by what their ends show elsewhere, those of sets by size, and the prior's mean and sd."""
    items, rates = network.items_on, network.rates
    return {
        "rate": float((rates * items).sum() / items.sum()),
        "sd": _spread(rates, items),
        "edges_without": float((rates == 0.0).mean()),
        "edges_half": int((rates >= 0.5).sum()),
        "ends": _by_ends(network),
        "sets": _by_size(network),
        "prior": [
            {"mean": mean, "table": table, **_prior(network, mean, table)}
            for table in (1, 2, 3)
            for mean in (0.05, 0.25)
        ],
    }


def _spread(rates: Floats, items: Floats) -> float:
    """The standard deviation of rates between edges, without what their few items add to it by chance."""
    enough = items >= ENOUGH_ITEMS
    rates, items = rates[enough], items[enough]
    mean = np.average(rates, weights=items)
    chance = np.average(mean * (1.0 - mean) / items, weights=items)
    return float(np.sqrt(max(np.average((rates - mean) ** 2, weights=items) - chance, 0.0)))


def _by_ends(network: Network) -> dict[str, Any]:
    """Edges and their rate where neither, one or both ends are high (`HIGH_SHARE`) on their other edges."""
    items, found = network.items_on, network.items_on * network.rates
    people = len(network.participants)

    def elsewhere(amount: Floats, ends: np.ndarray[Any, np.dtype[np.int32]]) -> Floats:
        total = np.bincount(network.tail, amount, people) + np.bincount(network.head, amount, people)
        return np.asarray(total[ends] - amount)

    known = np.ones(network.edges, dtype=np.bool_)
    high = np.zeros(network.edges, dtype=np.int64)
    for ends in (network.tail, network.head):
        others = elsewhere(items, ends)
        known &= others >= ENOUGH_ITEMS
        high += elsewhere(found, ends) > HIGH_SHARE * others
    groups = {name: known & (high == count) for count, name in enumerate(("neither", "one", "both"))}
    return {
        name: {"edges": int(of.sum()), "rate": float(found[of].sum() / items[of].sum()) if of.any() else None}
        for name, of in groups.items()
    }


SIZES = (2, 4, 8, 16, 32, 64)
"""Items in a set, from."""


def _by_size(network: Network) -> dict[str, Any]:
    """By the size of item sets: the rate, and how often, after one relevant item, another of the set is."""
    items = np.bincount(network.item_set)
    found = np.bincount(network.item_set, network.relevant)
    again = found * (found - 1.0) / np.maximum(items - 1.0, 1.0)
    groups = {}
    for low, above in zip(SIZES, (*SIZES[1:], None), strict=True):
        of = (items >= low) & (items < (above or np.inf))
        relevant = float(found[of].sum())
        groups[f"{low} or more" if above is None else f"{low} to {above - 1}"] = {
            "sets": int(of.sum()),
            "rate": relevant / float(items[of].sum()) if of.any() else None,
            "after_one": float(again[of].sum()) / relevant if relevant else None,
        }
    return groups


def _prior(network: Network, mean: float, table: float) -> dict[str, float]:
    expected, variance = MODELS["relevance"](network, {"mean": mean, "table": table}).posteriors()
    return {"rate": float(expected.mean()), "sd": float(np.sqrt(variance).mean())}


def main() -> None:
    """Describe the table that is named. Exit code 2: that cannot be done."""
    parser = argparse.ArgumentParser(description="The true rates of a network's edges, and the prior's.")
    parser.add_argument("items", type=Path, metavar="ITEMS.csv")
    parser.add_argument("--topics", metavar="COLUMN", help="of the queries that this column names, each by itself")
    given = parser.parse_args()
    try:
        if given.topics is None:
            write_json(described(read_network(given.items)))
        else:
            networks = read_topics(given.items, [given.topics])[given.topics]
            write_json({name: described(network) for name, network in networks.items()})
    except UserError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
