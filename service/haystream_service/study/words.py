"""Searches for words: tables whose labels say which items hold a word, and the plan that surveys them.

    python -m haystream_service.study.words TABLE.csv.gz … --out DIR
    HAYSTREAM_DATA=DIR python -m haystream_service.study.survey DIR/plan.toml --out results/words

A table has the columns item_id, sent_at, sender and recipients, and subject or text. The words are drawn at random
from those that a share of the items hold, so nobody has chosen them with a model in mind.
"""

import argparse
import csv
import gzip
import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

from haystream_service.errors import UserError

KEPT = ("item_id", "sent_at", "sender", "recipients")
SAID = ("subject", "text")
WORD = re.compile(r"[a-z]{4,}")
LEAST, MOST = 0.01, 0.05
"""Of a table's items, how many hold a word that may be drawn."""


def label(table: Path, count: int, rng: Random, out: Path) -> list[str]:
    """Write the table with a column of 0 and 1 for each of up to `count` words, which are returned.

    Raises:
        UserError: it cannot be read, or lacks a column.
    """
    try:
        with gzip.open(table, "rt", newline="") if table.suffix == ".gz" else table.open(newline="") as file:
            rows = list(csv.DictReader(file))
    except (OSError, EOFError, UnicodeDecodeError, csv.Error) as error:
        raise UserError(f"cannot read {table}: {error}") from None
    columns = rows[0].keys() if rows else ()
    missing = [name for name in KEPT if name not in columns]
    if missing or not any(name in columns for name in SAID):
        raise UserError(f"{table} has no column {missing[0] if missing else ' or '.join(SAID)}")
    held = [set(WORD.findall(" ".join(row.get(name) or "" for name in SAID).lower())) for row in rows]
    holding = Counter(word for words in held for word in words)
    drawable = sorted(word for word, items in holding.items() if LEAST * len(rows) <= items <= MOST * len(rows))
    words = rng.sample(drawable, min(count, len(drawable)))
    with gzip.open(out, "wt", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*KEPT, *(f"label_{word}" for word in words)])
        writer.writerows(
            [*(row[name] for name in KEPT), *(int(word in of_item) for word in words)]
            for row, of_item in zip(rows, held, strict=True)
        )
    return words


def plan(tables: dict[str, list[str]]) -> str:
    """The survey of these tables' words, a sort a table, as TOML."""
    return "\n".join(
        f'[[table]]\nname = "{name}"\ndata = "{name}.csv.gz"\n'
        + "".join(f'columns.label_{word} = "words of {name}"\n' for word in words)
        for name, words in tables.items()
        if words
    )


def write(tables: Sequence[Path], count: int, seed: int, out: Path) -> None:
    """Label every table, and write the plan. Raises `UserError`."""
    rng, made = Random(seed), dict[str, list[str]]()
    try:
        out.mkdir(parents=True, exist_ok=True)
        for table in tables:
            name = table.name.removesuffix(".gz").removesuffix(".csv")
            made[name] = label(table, count, rng, out / f"{name}.csv.gz")
        (out / "plan.toml").write_text(plan(made))
    except OSError as error:
        raise UserError(f"cannot write to {out}: {error.strerror}") from None
    for name, words in made.items():
        sys.stdout.write(f"{name}: {', '.join(words) or 'no word is held by so many items'}\n")


def main() -> None:
    """Exit code 2: that cannot be done."""
    parser = argparse.ArgumentParser(
        description="Label the items of tables by words drawn at random that 1 to 5 % of them hold."
    )
    parser.add_argument("table", type=Path, nargs="+", metavar="TABLE.csv.gz")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="for the tables and plan.toml")
    parser.add_argument("--words", type=int, default=14, metavar="N", help="of each table; default: 14")
    parser.add_argument("--seed", type=int, default=5, metavar="N")
    given = parser.parse_args()
    csv.field_size_limit(sys.maxsize)
    try:
        write(given.table, given.words, given.seed, given.out)
    except UserError as error:
        parser.error(str(error))


if __name__ == "__main__":
    main()
