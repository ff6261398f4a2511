import gzip
from pathlib import Path

import pytest

from haystream_service.importers import ImportFailed, Skipped, read_csv, read_eml, read_maildir, read_mbox
from haystream_service.importers.results import Imported
from haystream_service.wire import ItemRecord, Limits

MAIL = """\
Message-ID: <1@example.org>
Date: Fri, 4 May 2001 10:00:00 -0700
From: "Ann, Head of" <Ann@Example.org>
To: bob@example.org, Cho <cho@example.org>,
\tdan@example.org
Cc: BOB@example.org
Subject: lunch

From the desk of Ann
"""


def good(results: list[Imported]) -> list[ItemRecord]:
    return [result for result in results if isinstance(result, ItemRecord)]


def bad(results: list[Imported]) -> list[tuple[str, str]]:
    return [(result.where, result.code) for result in results if isinstance(result, Skipped)]


def mail(tmp_path: Path, text: str | bytes) -> Imported:
    file = tmp_path / "one.eml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    (result,) = read_eml(file)
    return result


TABLE = """\
item_id,sent_at,sender,recipients,relevant,extra
m1,2001-05-04T10:00:00Z,ann,bob; cho ;,1,x
m2,,ann,bob,0,x
m3,yesterday,ann,bob,1,x
m4,,ann,ann,1,x
,,ann,bob,1,x
m6,,,bob,1,x
m7,,ann,bob,perhaps,x
m8,,ann,bob,1,x,y
m9,,ann,bob
"""


def test_tables_give_items_and_say_what_is_wrong(tmp_path):
    file = tmp_path / "mails.csv"
    file.write_text(TABLE)
    results = list(read_csv(file, collection="c"))
    first, second, unlabelled, short = good(results)
    assert first == ItemRecord(
        item_id="m1",
        collection="c",
        sender="ann",
        recipients=("bob", "cho"),
        sent_at="2001-05-04T10:00:00Z",
        labels={"relevant": True},
    )
    assert second.labels == {"relevant": False}
    assert second.sent_at is None
    assert unlabelled.labels is None
    assert short.item_id == "m9"
    assert bad(results) == [
        ("mails.csv:4", "invalid_value"),
        ("mails.csv:5", "too_few_participants"),
        ("mails.csv:6", "invalid_value"),
        ("mails.csv:7", "missing_field"),
        ("mails.csv:9", "unreadable"),
    ]


def test_packed_tables_without_roles(tmp_path):
    file = tmp_path / "calls.csv.gz"
    file.write_bytes(gzip.compress("\ufeffitem_id,participants\nm1,b;a;é\n".encode()))
    assert [item.participants for item in good(list(read_csv(file)))] == [("b", "a", "é")]


def test_broken_rows_of_a_table_are_not_fatal(tmp_path):
    file = tmp_path / "t.csv"
    long = "x" * 200_000  # more than the csv module takes in one field
    file.write_bytes(b"item_id,sender,recipients\nm1,a,\xff\n" + f'm2,a,{long}\nm3,a,b\nm4,"a\nb",c\n'.encode())
    results = list(read_csv(file, limits=Limits(recipients=2)))
    assert [item.item_id for item in good(results)] == ["m3"]
    assert bad(results) == [("t.csv:2", "invalid_value"), ("t.csv:3", "unreadable"), ("t.csv:6", "invalid_value")]


@pytest.mark.parametrize("text", ["", "id,from,to\n", "item_id,sender\n"])
def test_tables_without_the_columns_are_refused(tmp_path, text):
    file = tmp_path / "t.csv"
    file.write_text(text)
    with pytest.raises(ImportFailed, match="needs the columns"):
        list(read_csv(file))


@pytest.mark.parametrize("read", [read_csv, read_mbox])
def test_files_that_cannot_be_read_are_named(tmp_path, read):
    with pytest.raises(ImportFailed, match=r"cannot read .*none: No such file"):
        list(read(tmp_path / "none"))
    file = tmp_path / "t.gz"
    file.write_bytes(b"no gzip")
    with pytest.raises(ImportFailed, match=r"cannot read .*t\.gz: Not a gzipped file"):
        list(read(file))
    file.write_bytes(gzip.compress(b"item_id,sender,recipients\n" * 9)[:-9])
    with pytest.raises(ImportFailed, match=r"cannot read .*t\.gz|is not an mbox"):
        list(read(file))


def test_a_message_becomes_an_item(tmp_path):
    item = mail(tmp_path, MAIL)
    assert item == ItemRecord(
        item_id="1@example.org",
        sender="ann@example.org",
        recipients=("bob@example.org", "cho@example.org", "dan@example.org"),
        sent_at="2001-05-04T10:00:00-07:00",
        uri="mid:1@example.org",
    )


def test_a_message_without_an_id_gets_the_same_one_every_time(tmp_path):
    text = MAIL.split("\n", 1)[1]
    item = mail(tmp_path, text)
    assert isinstance(item, ItemRecord)
    assert item.item_id.startswith("sha256:")
    assert item.uri is None
    again = mail(tmp_path, text.replace("\n", "\r\n") + "\r\n")
    assert again == item
    assert mail(tmp_path, text + "more") != item
    assert mail(tmp_path, f"Message-ID: <{'x' * 600}>\n{text}").item_id.startswith("sha256:")  # type: ignore[union-attr]


def test_groups_are_spelled_out(tmp_path):
    item = mail(tmp_path, "From: a@x\nTo: Team: b@x, c@x;\nCc: undisclosed-recipients:;\nDate: nonsense\n\n")
    assert isinstance(item, ItemRecord)
    assert item.recipients == ("b@x", "c@x")
    assert item.sent_at is None


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (b"", "missing_field"),
        (b"\x00\xff\xfe binary", "missing_field"),
        (b"To: b@x\n\n", "missing_field"),
        (b"From: a@x\nTo: undisclosed-recipients:;\n\n", "too_few_participants"),
        (b"From: a@x\nTo: A@X\n\n", "too_few_participants"),
        (b"From: a@x\nTo: " + b", ".join(b"p%d@x" % i for i in range(1001)) + b"\n\n", "too_large"),
        (b"From: a@x\nTo: " + b"b" * 600 + b"@x\n\n", "too_large"),
    ],
)
def test_messages_that_are_no_items_say_why(tmp_path, text, code):
    result = mail(tmp_path, text)
    assert isinstance(result, Skipped)
    assert (result.where, result.code) == ("one.eml", code)


@pytest.mark.parametrize(
    "text",
    [
        b"From: \xe9ric <\xe9ric@x>\nTo: b@x\nMessage-ID: <\xff@x>\n\n",
        b"From: =?nonsense?q?=E9?= <a@x>\nTo: b@x\n\n",
        b"From: a@x\nTo: (((((((((, b@x\n\n",
        b"From: a@x\nTo: b@x\nDate: Fri, 4 May 99999999999 10:00:00 +9999\n\n",
        b"Sender: a@x\nTo: b@x\nDate: \n\n",
    ],
)
def test_broken_headers_stop_nothing(tmp_path, text):
    mail(tmp_path, text)


@pytest.mark.parametrize("packed", [False, True])
def test_mboxes_are_split_at_their_from_lines(tmp_path, packed):
    second = MAIL.replace("1@", "2@").replace("From the desk", ">From the desk")
    text = f"From ann Fri May  4\n{MAIL}\nFrom bob Fri May  4\n{second}\nFrom nobody Fri May  4\n\n".encode()
    file = tmp_path / ("a.mbox.gz" if packed else "a.mbox")
    file.write_bytes(gzip.compress(text) if packed else text)
    results = list(read_mbox(file))
    # 'From the desk' follows a blank line: an mbox writer would have escaped it. It costs no more than a skip.
    assert [item.item_id for item in good(results)] == ["1@example.org", "2@example.org"]
    assert bad(results) == [(f"{file.name}#2", "missing_field"), (f"{file.name}#4", "missing_field")]


def test_what_is_no_mbox_is_refused(tmp_path):
    file = tmp_path / "a.mbox"
    file.write_text("\nitem_id,sender\n")
    with pytest.raises(ImportFailed, match="is not an mbox"):
        list(read_mbox(file))
    file.write_text("")
    assert list(read_mbox(file)) == []


def test_maildirs_are_read_with_their_folders(tmp_path):
    for number, name in enumerate(("cur/b", "new/a", "tmp/c", ".Sent/cur/d", "notes"), start=1):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(MAIL.replace("1@", f"{number}@"))
    assert [item.item_id[0] for item in good(list(read_maildir(tmp_path)))] == ["4", "1", "2"]


def test_trees_with_a_message_a_file_are_maildirs_too(tmp_path):
    for number in (1, 2):
        (tmp_path / f"inbox{number}").mkdir()
        (tmp_path / f"inbox{number}" / "1.").write_text(MAIL.replace("1@", f"{number}@"))
    assert [item.item_id[0] for item in good(list(read_maildir(tmp_path)))] == ["1", "2"]


def test_eml_folders_and_files_that_vanish(tmp_path):
    (tmp_path / "b.EML").write_text(MAIL)
    (tmp_path / "a.eml").symlink_to(tmp_path / "gone")
    (tmp_path / "c.txt").write_text(MAIL)
    results = list(read_eml(tmp_path))
    assert len(good(results)) == 1
    assert bad(results) == [("a.eml", "unreadable")]
    with pytest.raises(ImportFailed, match="there is no"):
        list(read_eml(tmp_path / "none"))
    with pytest.raises(ImportFailed, match="not a folder"):
        list(read_maildir(tmp_path / "c.txt"))
