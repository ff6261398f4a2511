"""The finished searches of a simulation on disk, so that one that was stopped goes on where it was."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from hashlib import blake2b
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import orjson

from haystream_service.errors import UserError
from haystream_service.study.network import Network
from haystream_service.study.plan import Setting, Task
from haystream_service.study.simulation import Outcome, Searches

FILE = "runs.jsonl"
VERSION = 1
"""Of the lines: a journal of another version is not read."""


class Journal:
    """A file of one line a search, after a first line that says what is searched.

    A search of other models, policies or runs may use the same file: it takes from it what it needs. A line that
    was torn by a crash is not counted.

    Raises:
        UserError: the folder cannot be written, or its journal is of other items, steps or another seed.
    """

    def __init__(self, folder: Path, searches: Searches) -> None:
        path = folder / FILE
        header = orjson.dumps(
            {
                "version": VERSION,
                "items": _digest(searches.networks),
                "steps": searches.steps,
                "seed": searches.seed,
            }
        )
        try:
            folder.mkdir(parents=True, exist_ok=True)
            lines = path.read_bytes().split(b"\n") if path.exists() else []
            if lines[:1] not in ([], [b""], [header]):
                raise UserError(
                    f"{path} is of another table, other steps or another seed: remove it, or give another --out"
                )
            self._file = path.open("ab")
            if not lines or lines == [b""]:
                self._file.write(header + b"\n")
            elif lines[-1]:
                self._file.write(b"\n")
        except OSError as error:
            raise UserError(f"cannot write {path}: {error.strerror}") from None
        self.finished = _finished(lines[1:])

    def add(self, task: Task, outcome: Outcome) -> None:
        """Keep it."""
        self.finished[task] = outcome
        line = {**task._asdict(), "outcome": asdict(outcome)}
        self._file.write(orjson.dumps(line, default=list, option=orjson.OPT_APPEND_NEWLINE))
        self._file.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def finished_in(folder: Path) -> dict[Task, Outcome]:
    """The searches of a folder's journal, whatever they are of.

    Raises:
        UserError: there is none, it cannot be read, or it is of another version.
    """
    path = folder / FILE
    try:
        header, *lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from None
    if not header.startswith(b'{"version":%d,' % VERSION):
        raise UserError(f"{path} is no journal of this version")
    finished = _finished(lines)
    if not finished:
        raise UserError(f"{path} has no finished search")
    return finished


def _finished(lines: Iterable[bytes]) -> dict[Task, Outcome]:
    finished = {}
    for line in lines:
        try:
            fields = orjson.loads(line)
        except orjson.JSONDecodeError:  # torn, or the empty one at the end
            continue
        task = Task(_setting(fields["model"]), _setting(fields["policy"]), fields["query"], fields["run"])
        finished[task] = Outcome(**{name: _tuples(value) for name, value in fields["outcome"].items()})
    return finished


def _digest(networks: Mapping[str, Network]) -> str:
    """Of every item, what it is between, and for which queries it is relevant."""
    digest = blake2b(digest_size=16)
    for query, network in networks.items():
        digest.update(query.encode() + b"\0" + network.relevant.tobytes())
    collection = network.collection
    digest.update(orjson.dumps([collection.participants, collection.pairs.tolist(), collection.item_ids]))
    for array in (network.item_set, network.set_start, network.set_edge):
        digest.update(array.tobytes())
    return digest.hexdigest()


def _setting(fields: list[Any]) -> Setting:
    return Setting(fields[0], tuple((name, value) for name, value in fields[1]))


def _tuples(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value
