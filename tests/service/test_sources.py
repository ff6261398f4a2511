import gzip
from itertools import islice
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from support.data import DATA

from haystream_service.errors import UserError
from haystream_service.importers import money_or_finance
from haystream_service.sources import infect, mail, read_source, synthetic, table


def test_a_seed_says_everything():
    one, same, other = synthetic(seed=3), synthetic(seed=3), synthetic(seed=4)
    assert list(one) == list(same)
    assert [one.truth(item.item_id) for item in one] == [same.truth(item.item_id) for item in same]
    assert list(islice(one, 20)) != list(islice(other, 20))


def test_the_simulation_follows_the_papers_scheme():
    source = synthetic(seed=1, edges=2000)
    assert abs(len(source.pairs) - 2000) < 40
    assert len({pair for item in source for pair in item.pairs()}) == source.edges == len(source.pairs)
    # Poisson(30) items an edge: the mean of 2,000 has a standard error of sqrt(30 / 2000).
    assert abs(len(source) / source.edges - 30) < 4 * (30 / source.edges) ** 0.5
    by_kind: dict[int, list[bool]] = {0: [], 1: [], 2: []}
    number = {name: i for i, name in enumerate(sorted({name for pair in source.pairs for name in pair}))}
    assert len(number) == len(source.relevance), "a participant without an edge: choose another seed"
    for item in source:
        ((a, b),) = item.pairs()
        kind = int(source.relevance[number[a]]) + int(source.relevance[number[b]])
        by_kind[kind].append(source.truth(item.item_id))
    for kind, p in enumerate((0.0, 0.2, 0.9)):
        outcomes = by_kind[kind]
        error = (p * (1 - p) / len(outcomes)) ** 0.5
        assert abs(np.mean(outcomes) - p) <= 4 * error
    assert source.relevant == sum(map(sum, by_kind.values()))


def test_neighbours_share_their_relevance_as_rho_says():
    graph: nx.Graph[int] = nx.path_graph(4001)
    for rho in (0.1, 0.5, 0.9):
        z = infect(graph, rho, np.random.default_rng(5))
        agree = np.mean(z[1:] == z[:-1])
        assert abs(agree - rho) < 4 * (rho * (1 - rho) / 4000) ** 0.5


def test_every_component_is_reached():
    graph: nx.Graph[int] = nx.empty_graph(1000)
    z = infect(graph, 1.0, np.random.default_rng(5))
    assert 400 < z.sum() < 600


def test_large_simulations_are_made_as_they_are_read():
    source = synthetic(edges=100_000)
    assert abs(source.edges - 100_000) < 500
    assert len(source) > 2_900_000
    last = f"m{len(source) - 1:07}"
    assert source.truth(last) in {True, False}


@pytest.mark.parametrize("item_id", ["", "m", "x1", "m9999999", "m-1"])
def test_strangers_have_no_truth(item_id):
    with pytest.raises(KeyError):
        synthetic(edges=56).truth(item_id)


def test_a_table_is_a_source(tmp_path):
    file = tmp_path / "mails.csv"
    file.write_text("item_id,sender,recipients,relevant\nm1,a,b;c,1\nm2,b,a,0\nm3,a,a,1\nm4,a,b,\nm1,a,b,0\n")
    source = table(file, collection="c")
    assert [(item.item_id, source.truth(item.item_id)) for item in source] == [("m1", True), ("m2", False)]
    assert (len(source), source.edges, source.relevant, source.name) == (2, 2, 1, "mails.csv")
    assert source.skipped == {"too_few_participants": 1, "unlabelled": 1, "repeated": 1}
    assert {item.collection for item in source} == {"c"}


def test_a_table_without_truth_is_refused(tmp_path):
    file = tmp_path / "mails.csv"
    file.write_text("item_id,sender,recipients\nm1,a,b\n")
    with pytest.raises(UserError, match="needs a column relevant"):
        table(file)


def test_the_enron_table_is_taken_whole():
    file = DATA / "enron" / "dyadic_n642_e731.csv.gz"
    if not file.exists():
        pytest.skip(f"no {file}: set HAYSTREAM_DATA to the folder with the data")
    source = table(file)
    assert (len(source), source.edges, source.relevant, source.skipped) == (7796, 731, 416, {})


MAIL = "From: ann@x\nTo: bob@x, cho@x\nMessage-ID: <1@x>\nSubject: Money\n\nhello\n"
OTHER = "From: bob@x\nTo: ann@x\nMessage-ID: <2@x>\nSubject: lunch\n\nno finances here\n"


def archive(tmp_path: Path, kind: str) -> Path:
    """The two messages, and one that is no item, as they are found on disks."""
    nobody, mbox = "From: ann@x\n\nfinance\n", f"From ann\n{MAIL}\nFrom bob\n{OTHER}\nFrom ann\nFrom: ann@x\n"
    match kind:
        case "all.mbox":
            (tmp_path / kind).write_text(mbox)
        case "all.mbox.gz":
            (tmp_path / kind).write_bytes(gzip.compress(mbox.encode()))
        case "Inbox":
            (tmp_path / kind).write_text(mbox)
        case _:
            names = {
                "maildir": ("cur/1", "new/2", "new/3"),
                "eml": ("a/1.eml", "2.EML", "3.eml"),
                "tree": ("inbox/1.", "sent/2.", "sent/3."),
            }[kind]
            for name, text in zip(names, (MAIL, OTHER, nobody), strict=True):
                file = tmp_path / kind / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(text)
            (tmp_path / kind / "notes.txt").write_text(nobody)
    return tmp_path / kind


@pytest.mark.parametrize("kind", ["all.mbox", "all.mbox.gz", "Inbox", "maildir", "eml", "tree"])
def test_mail_archives_are_sources(tmp_path, kind):
    source = read_source(archive(tmp_path, kind))
    assert {item.item_id: source.truth(item.item_id) for item in source} == {"1@x": True, "2@x": False}
    assert (len(source), source.edges, source.relevant, source.name) == (2, 2, 1, kind)
    # A tree without .eml files or Maildir folders has a message in every file, so the notes are read too.
    assert source.skipped == {"too_few_participants": 2 if kind == "tree" else 1}


def test_one_message_is_a_source(tmp_path):
    (tmp_path / "one.eml").write_text(MAIL)
    assert [item.item_id for item in read_source(tmp_path / "one.eml")] == ["1@x"]


def test_what_is_no_mail_is_a_table(tmp_path):
    (tmp_path / "mails.csv").write_text("item_id,sender,recipients,relevant\nm1,a,b,1\n")
    assert len(read_source(tmp_path / "mails.csv")) == 1
    with pytest.raises(UserError, match="is no mail archive"):
        mail(tmp_path / "mails.csv")


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("gone.mbox", None, "cannot read .*: No such file"),
        ("empty.mbox", b"", r"no messages that can be used \(it is empty\)"),
        ("alone.mbox", b"From a\nFrom: a@x\nTo: a@x\n", r"no messages .*\(1 too_few_participants\)"),
        ("junk.mbox.gz", b"junk", "cannot read .*: Not a gzipped file"),
        ("empty.csv", b"", "needs the columns .* it has none"),
        ("alone.csv", b"item_id,sender,recipients,relevant\nm1,a,a,1\n", r"no rows .*\(1 too_few_participants\)"),
        ("junk.bin", b"\x89PNG\r\n\x1a\n\xff\x00", "is no table: its first line is not text"),
    ],
)
def test_sources_that_cannot_be_used_say_why_in_one_line(tmp_path, name, content, problem):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError, match=problem) as raised:
        read_source(tmp_path / name)
    assert len(str(raised.value).splitlines()) == 1


def test_an_empty_folder_says_so(tmp_path):
    with pytest.raises(UserError, match=r"no messages that can be used \(it is empty\)"):
        read_source(tmp_path)


@pytest.mark.parametrize(
    ("message", "relevant"),
    [
        ("Subject: the MONEY\n\n", True),
        ("Subject: =?utf-8?b?TW9uZXk=?=\n\n", True),
        ("Subject: =?nonsense?q?money?=\n\n", True),
        ("\nask Finance.\n", True),
        ("\nmoneys, refinance, financed\n", False),
        ("X-Folder: money\n\n", False),
        ("Content-Transfer-Encoding: base64\n\nbW9uZXk=\n", True),
        ("Content-Transfer-Encoding: quoted-printable\n\nmon=\ney\n", True),
        ("Content-Type: text/plain; charset=nonsense\n\nmoney\n", True),
        ("Content-Type: text/html\n\n<b>m</b> <p class='money'>finance</p>", True),
        ("Content-Type: text/html\n\n<p class='money'>lunch</p>", False),
        ("Content-Type: application/pdf\n\nmoney", False),
        ("Content-Type: text/plain\nContent-Disposition: attachment\n\nmoney", False),
        ("Content-Type: multipart/mixed; boundary=b\n\n--b\n\nlunch\n--b\n\nmoney\n--b--\n", True),
        ("Content-Type: multipart/mixed\n\nmoney", True),
        ("", False),
    ],
)
def test_the_papers_rule(message, relevant):
    assert money_or_finance(message.encode()) is relevant
