"""Small networks with a known truth, and the program as it is called."""

import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from haystream.events import Item
from haystream_service import cli
from haystream_service.study.network import Network, network


def made(seed: int, *, items: int, people: int = 12, most: int = 1) -> Network:
    """A network of random items with up to `most` recipients each, relevant more often where low numbers are."""
    rng = np.random.default_rng(seed)
    known: list[Item] = []
    truth: dict[str, bool] = {}
    for number in range(items):
        size = int(rng.integers(1, most + 1))
        sender, *recipients = rng.choice(people, size=size + 1, replace=False).tolist()
        known.append(Item(f"m{number}", "study", f"p{sender}", tuple(sorted(f"p{r}" for r in recipients))))
        truth[f"m{number}"] = bool(rng.random() < 0.8 - 0.06 * min(sender, *recipients))
    return network("made", known, truth.__getitem__)


@pytest.fixture
def pairs() -> Network:
    """Items of two parties."""
    return made(1, items=120)


@pytest.fixture
def parties() -> Network:
    """Items of up to four parties."""
    return made(2, items=120, most=3)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table of 90 items, with two rows that are no items, and topics beside the relevance."""
    rng = np.random.default_rng(3)
    rows = ["item_id,sent_at,sender,recipients,relevant,topic"]
    for number in range(90):
        u, v, w = rng.choice(8, size=3, replace=False).tolist()
        recipients = f"p{v};p{w}" if number % 10 == 0 else f"p{v}"
        rows.append(f"m{number},,p{u},{recipients},{int(u < 3)},{u - 2}")
    rows += ["m90,,p1,p1,0,1", "m91,,p1,,0,1"]
    path = tmp_path / "mails.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.fixture
def haystream(monkeypatch, capfdbinary) -> Callable[..., tuple[int, str, str]]:
    """Runs the program; exit code, standard output and standard error."""

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["haystream", *map(str, arguments)])
        with pytest.raises(SystemExit) as left:
            cli.main()
        out, err = capfdbinary.readouterr()
        return left.value.code, out.decode(), err.decode()  # type: ignore[return-value]

    return call
