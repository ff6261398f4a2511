import errno
import gzip
import os
import re
import threading
import tracemalloc
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from haystream_service.importers import (
    ImportFailed,
    Making,
    Skipped,
    UriTemplate,
    mail_reader,
    money_or_finance,
    read_csv,
    read_eml,
    read_maildir,
    read_mbox,
)
from haystream_service.importers.results import Imported
from haystream_service.wire import ItemRecord, times

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
    results = list(read_csv(file, Making("c")))
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


@pytest.mark.parametrize("name", ["calls.csv.gz", "CALLS.CSV.GZ"])
def test_packed_tables_without_roles(tmp_path, name):
    file = tmp_path / name
    file.write_bytes(gzip.compress("\ufeffitem_id,participants\nm1,b;a;é\n".encode()))
    assert [item.participants for item in good(list(read_csv(file)))] == [("b", "a", "é")]


@pytest.mark.parametrize("participants", ["", " ", " ; "])
def test_a_cell_of_participants_that_names_nobody_leaves_sender_and_recipients(
    tmp_path: Path, participants: str
) -> None:
    file = tmp_path / "t.csv"
    file.write_text(f"item_id,sender,recipients,participants\nm1,a,b,{participants}\n")
    assert [(item.sender, item.recipients) for item in good(list(read_csv(file)))] == [("a", ("b",))]


def test_broken_rows_of_a_table_are_not_fatal(tmp_path):
    file = tmp_path / "t.csv"
    long = "x" * 200_000
    file.write_bytes(b"item_id,sender,recipients\nm1,a,\xff\n" + f'm2,a,{long}\nm3,a,b\nm4,"a\nb",c\n'.encode())
    results = list(read_csv(file))
    assert [item.item_id for item in good(results)] == ["m3"]
    assert bad(results) == [("t.csv:2", "invalid_value"), ("t.csv:3", "too_large"), ("t.csv:6", "invalid_value")]


@pytest.mark.parametrize(
    ("rows", "imported", "where"),
    [
        ('m1,a,b\nm2,"a,b\nm3,a,b\nm4,a,b\n', ["m1"], "t.csv:5"),
        ('m1,a,b\nm2,"a,b\nm3,"a",b\nm4,a,b\n', ["m1", "m4"], "t.csv:4"),
    ],
    ids=["to the end", "to the next quote"],
)
def test_a_quote_that_is_not_closed_takes_no_rows_with_it_in_silence(
    tmp_path: Path, rows: str, imported: list[str], where: str
) -> None:
    file = tmp_path / "t.csv"
    file.write_text("item_id,sender,recipients\n" + rows)
    results = list(read_csv(file))
    assert [item.item_id for item in good(results)] == imported
    (skipped,) = (result for result in results if isinstance(result, Skipped))
    assert (skipped.where, skipped.code) == (where, "unreadable")
    assert skipped.detail.startswith("not CSV from line 3 on: ")


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", ""])
@pytest.mark.parametrize(
    ("row", "text"),
    [
        ('"m1" ,"ann"\t,"bob"  ,"hello" ', "hello"),
        ('"m1" ,ann,bob,"hello"', "hello"),
        ('"m1" ,ann,bob,"hello\nx,carol,dave,bye"', "hello\nx,carol,dave,bye"),
        ('m1,ann,bob,"one\ntwo" \t', "one\ntwo"),
        ('"m1" ,ann,bob,"she said, ""no"" ,and ""yes"" , too"', 'she said, "no" ,and "yes" , too'),
        ('"m1" ,ann,bob,"a,""b"" ,""c"" ,d\n,"""" ,""e"" ,"', 'a,"b" ,"c" ,d\n,"" ,"e" ,'),
        ('m1, "ann",\t"bob" , "hello"', "hello"),
        (' "m1",ann,bob,  "hello, ""bob"""', 'hello, "bob"'),
        ('m1,ann,bob, "one\n x, ""y"" ,z"', 'one\n x, "y" ,z'),
        ('m1,ann,bob, "hello" she said', '"hello" she said'),
        ('m1,ann,bob,she said "hello"', 'she said "hello"'),
        ('"m1" ,ann,bob,she said "no" ,', None),
    ],
)
def test_blanks_between_a_comma_and_quotes_belong_to_nothing(
    tmp_path: Path, row: str, text: str | None, end: str
) -> None:
    file = tmp_path / "t.csv"
    file.write_text(f"item_id,sender,recipients,text\n{row}{end}", newline="")
    (item,) = read_csv(file, Making(text=True))
    if text is None:
        assert isinstance(item, Skipped), "a cell too many"
    else:
        assert isinstance(item, ItemRecord), item
        assert (item.item_id, item.sender, item.recipients, item.text) == ("m1", "ann", ("bob",), text)


def test_a_header_has_such_blanks_too_wherever_it_stands(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    for before in ("", "\n", "\r\n\n", ",,\n"):
        for header in ('"item_id" ,"sender", "recipients"', " item_id,sender , recipients\t"):
            file.write_text(f"{before}{header}\nm1,ann,bob\n", newline="")
            assert [item.item_id for item in good(list(read_csv(file)))] == ["m1"], repr(before)


def test_rows_of_nothing_but_commas_are_passed_over(tmp_path: Path) -> None:
    """Spreadsheets write them where somebody emptied rows, or coloured them."""
    file = tmp_path / "t.csv"
    file.write_text('item_id,sender,recipients\nm1,ann,bob\n,,\n ,"",,,\nm2,ann,bob\n,ann,\n')
    results = list(read_csv(file))
    assert [item.item_id for item in good(results)] == ["m1", "m2"]
    assert bad(results) == [("t.csv:6", "invalid_value")]


@pytest.mark.parametrize("charset", ["utf-16", "utf-16-le"])
def test_a_table_in_another_encoding_is_told_which_is_read(tmp_path: Path, charset: str) -> None:
    file = tmp_path / "t.csv"
    file.write_text("item_id,sender,recipients\nm1,ann,bob\n", encoding=charset)
    with pytest.raises(ImportFailed, match="its first line is not text in UTF-8"):
        list(read_csv(file))


def test_a_column_that_is_read_is_there_once(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text("item_id,sender,recipients,x,x,text,text,,\nm1,a,b,1,2,3,4,,\n")
    assert len(good(list(read_csv(file)))) == 1
    for making, labels, twice in (
        (Making(uri=UriTemplate.parse("https://x/{x}")), [], "x"),
        (Making(), ["x"], "x"),
        (Making(text=True), [], "text"),
    ):
        with pytest.raises(ImportFailed, match=f"more than one column {twice}"):
            list(read_csv(file, making, labels=labels))
    file.write_text("item_id,sender,recipients,sender\nm1,a,b,c\n")
    with pytest.raises(ImportFailed, match="more than one column sender"):
        list(read_csv(file))


@pytest.mark.parametrize("text", ["", "id,from,to\n", "item_id,sender\n"])
def test_tables_without_the_columns_are_refused(tmp_path, text):
    file = tmp_path / "t.csv"
    file.write_text(text)
    with pytest.raises(ImportFailed, match="needs the columns"):
        list(read_csv(file))


@pytest.mark.parametrize(
    ("between", "shown"), [(";", "item_id;sender;recipients"), ("\t", r"item_id\tsender\trec")]
)
def test_a_table_with_something_else_than_commas_is_told_what_it_lacks(
    tmp_path: Path, between: str, shown: str
) -> None:
    file = tmp_path / "t.csv"
    file.write_text("item_id,sender,recipients\nm1,a,b\n".replace(",", between))
    with pytest.raises(ImportFailed, match="with commas between; it has " + re.escape(shown)):
        list(read_csv(file))


def test_a_column_of_truths_may_have_become_one_of_numbers(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_text("item_id,sender,recipients,relevant\nm1,a,b,1.0\nm2,a,b,0.0\nm3,a,b,\n")
    assert [item.labels for item in good(list(read_csv(file)))] == [{"relevant": True}, {"relevant": False}, None]


@pytest.mark.parametrize("read", [read_csv, read_mbox])
def test_files_that_cannot_be_read_are_named(tmp_path, read):
    with pytest.raises(ImportFailed, match=r"cannot read .*none: No such file"):
        list(read(tmp_path / "none"))
    file = tmp_path / "t.gz"
    file.write_bytes(b"no gzip")
    with pytest.raises(ImportFailed, match=r"cannot read .*t\.gz: Not a gzipped file"):
        list(read(file))
    packed = bytearray(gzip.compress(bytes(range(256)) * 99))
    packed[20:40] = bytes(20)
    file.write_bytes(packed)
    with pytest.raises(ImportFailed, match=r"cannot read .*t\.gz: .* decompressing"):
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
    for none in ("x" * 600, " "):
        assert mail(tmp_path, f"Message-ID: <{none}>\n{text}").item_id.startswith("sha256:")  # type: ignore[union-attr]


def test_groups_are_spelled_out(tmp_path):
    item = mail(tmp_path, "From: a@x\nTo: Team: b@x, c@x;\nCc: undisclosed-recipients:;\nDate: nonsense\n\n")
    assert isinstance(item, ItemRecord)
    assert item.recipients == ("b@x", "c@x")
    assert item.sent_at is None


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("bob@home.example <b@x>", ["b@x"]),
        ("'b@x' <b@x>, Cho (c@home.example) <c@x>", ["b@x", "c@x"]),
        ("bob@home.example cho@home.example\n <b@x>,<c@x>", ["b@x", "c@x"]),
        ("'b@x', 'o'hara@x, o'hara'@x", ["b@x", "'o'hara@x", "o'hara'@x"]),
        ("b@x <>, c@x </O=ORG/CN=CHO>", ["b@x", "c@x"]),
        ("<@relay.example,@other.example:b@x>", ["b@x"]),
        ("Team: bob@home.example <b@x>, c@x;", ["b@x", "c@x"]),
    ],
)
def test_an_address_is_what_is_in_its_brackets_and_in_its_apostrophes(
    tmp_path: Path, given: str, meant: list[str]
) -> None:
    item = mail(tmp_path, f"From: ann@home.example <A@x>\nTo: {given}\n\n")
    assert isinstance(item, ItemRecord)
    assert (item.sender, list(item.recipients or ())) == ("a@x", meant)


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
    assert ("no address in From or Sender" in result.detail) == (code == "missing_field")


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


@pytest.mark.parametrize(
    "given",
    [
        "<1@x>",
        "<1@x> (added by postmaster@y)",
        "\n <1@x>\n (added by postmaster@y)",
        "<<1@x>>",
        "< 1@x >",
        "1@x",
        "<1@x",
    ],
)
def test_a_message_id_is_what_is_in_its_brackets(tmp_path: Path, given: str) -> None:
    item = mail(tmp_path, f"From: a@x\nTo: b@x\nMessage-ID: {given}\n\n")
    assert isinstance(item, ItemRecord)
    assert (item.item_id, item.uri) == ("1@x", "mid:1@x")


@pytest.mark.parametrize(("year", "meant"), [("101", "2001"), ("99", "1999"), ("01", "2001"), ("2001", "2001")])
def test_a_year_may_be_short(tmp_path: Path, year: str, meant: str) -> None:
    item = mail(tmp_path, f"From: a@x\nTo: b@x\nDate: 4 May {year} 10:00:00 +0000\n\n")
    assert isinstance(item, ItemRecord)
    assert item.sent_at == f"{meant}-05-04T10:00:00+00:00"


def test_a_mark_of_the_byte_order_belongs_to_no_header(tmp_path: Path) -> None:
    marked = b"\xef\xbb\xbf"
    plain = mail(tmp_path, MAIL)
    assert mail(tmp_path, marked + MAIL.encode()) == plain
    file = tmp_path / "a.mbox"
    file.write_bytes(marked + b"From ann\n" + MAIL.encode())
    assert list(read_mbox(file)) == [plain]
    without = MAIL.split("\n", 1)[1]
    assert mail(tmp_path, marked + without.encode()) == mail(tmp_path, without)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("kind", ["eml", "mbox", "csv"])
def test_a_pipe_may_stand_for_a_file(tmp_path: Path, kind: str) -> None:
    texts = {"eml": MAIL, "mbox": f"From ann\n{MAIL}", "csv": "item_id,participants\n1@example.org,a;b\n"}
    read: Callable[..., Any] = {"eml": read_eml, "mbox": read_mbox, "csv": read_csv}[kind]
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_text, args=[texts[kind]])
    writer.start()
    (item,) = good(list(read(pipe)))
    writer.join()
    assert item.item_id == "1@example.org"


@pytest.mark.parametrize("zone", ["+0530", "+05:30", "GMT+0530", "UTC+05:30", "GMT +0530", "+0530 (GMT-07:00)"])
def test_a_date_keeps_its_offset_however_it_is_written(tmp_path: Path, zone: str) -> None:
    for seconds in ("", ":00"):
        item = mail(tmp_path, f"From: a@x\nTo: b@x\nDate: Fri, 4 May 2001 10:00{seconds} {zone}\n\n")
        assert isinstance(item, ItemRecord)
        assert item.sent_at == "2001-05-04T10:00:00+05:30"


@pytest.mark.parametrize(
    ("zone", "offset"),
    [("EST", "-05:00"), ("edt", "-04:00"), ("CST", "-06:00"), ("CDT", "-05:00"), ("MST", "-07:00")]
    + [("MDT", "-06:00"), ("PST", "-08:00"), ("PDT", "-07:00"), ("GMT", "+00:00"), ("UT", "+00:00")]
    + [(zone, "+00:00") for zone in ("CET", "IST", "A", "-0000", "")],
)
def test_a_zone_by_name_is_what_rfc_5322_says_and_a_table_takes_none(
    tmp_path: Path, zone: str, offset: str
) -> None:
    item = mail(tmp_path, f"From: a@x\nTo: b@x\nDate: Fri, 4 May 2001 10:00:00 {zone}\n\n")
    assert isinstance(item, ItemRecord)
    assert item.sent_at is not None
    assert times.parse(item.sent_at) == datetime.fromisoformat(f"2001-05-04T10:00:00{offset}")
    if zone.isalpha():
        (tmp_path / "t.csv").write_text(f"item_id,sender,recipients,sent_at\nm1,a,b,2001-05-04 10:00:00 {zone}\n")
        assert bad(list(read_csv(tmp_path / "t.csv"))) == [("t.csv:2", "invalid_value")]


@pytest.mark.parametrize("charset", ["utf-8", "latin-1"])
def test_who_has_letters_that_are_not_ascii_is_nobody_else(tmp_path: Path, charset: str) -> None:
    text = "Message-ID: <é@x.de>\nFrom: Jörg <JÖRG@x.de>\nTo: järg@x.de, è@x.de\n\n"
    item = mail(tmp_path, text.encode(charset))
    assert isinstance(item, ItemRecord)
    assert (item.item_id, item.uri) == ("é@x.de", "mid:%C3%A9@x.de")
    assert (item.sender, item.recipients) == ("jörg@x.de", ("järg@x.de", "è@x.de"))


@pytest.mark.parametrize("lost", ["\ufffd".encode(), b"\x81"])
def test_an_id_that_has_lost_letters_is_none(tmp_path: Path, lost: bytes) -> None:
    item = mail(tmp_path, b"Message-ID: <" + lost + b"@x.de>\nFrom: a@x\nTo: b@x\n\n")
    assert isinstance(item, ItemRecord)
    assert item.item_id.startswith("sha256:")


NESTED = {
    "brackets": b"Cc: " + b"(" * 1100,
    "brackets in quotes": b'Cc: ("' + b"(" * 100_000,
    "closed brackets": b"Cc: " + b"(" * 1100 + b")" * 1100,
    "groups": b"Cc: " + b"a:" * 20_000,
}
LARGE = {
    "one header": b"To: " + b", ".join(b"Person %d <p%d@example.org>" % (n, n) for n in range(10_000)),
    "a header of many lines": b"To: b@x,\n" + b" c@x,\n" * 50_000 + b" d@x",
    "many headers": b"Received: x\n" * 30_000 + b"To: b@x",
    "no end": b"To: b@x\nX: " + b"x" * 1_000_000,
}


@pytest.mark.parametrize(
    ("header", "code"),
    [*((text, "invalid_value") for text in NESTED.values()), *((text, "too_large") for text in LARGE.values())],
    ids=[*NESTED, *LARGE],
)
@pytest.mark.parametrize("kind", ["eml", "maildir", "mbox"])
def test_headers_that_are_too_large_or_too_deep_cost_their_message_alone(
    tmp_path: Path, kind: str, header: bytes, code: str
) -> None:
    bad_one, good_one = b"From: a@x\nTo: b@x\n" + header + b"\n\nbody\n", MAIL.encode()
    if kind == "mbox":
        file = tmp_path / "a.mbox"
        file.write_bytes(b"From x\n" + bad_one + b"\nFrom y\n" + good_one)
        results = list(read_mbox(file))
    else:
        folder = tmp_path / ("cur" if kind == "maildir" else "mails")
        folder.mkdir()
        (folder / "1.eml").write_bytes(bad_one)
        (folder / "2.eml").write_bytes(good_one)
        results = list((read_maildir if kind == "maildir" else read_eml)(tmp_path))
    assert bad(results)[0][1] == code
    assert "1@example.org" in [item.item_id for item in good(results)]


LONG = 250_000
ENDLESS = {
    "ends of lines": b"X: " + b"\r" * LONG + b"x",
    "brackets": b"Message-ID: " + b"<" * LONG,
    "blanks": b"Date: Fri, 4 May 2001 10:00" + b" " * LONG + b"x",
    "signs": b"Cc: '\"" + b"@" * LONG + b'"@x',
    "words that do not end": b"Cc: " + b"=?a?q?b" * (LONG // 7),
}


@pytest.mark.timeout(30)
@pytest.mark.parametrize("header", ENDLESS.values(), ids=ENDLESS)
def test_nobody_can_have_a_header_be_read_for_minutes(tmp_path: Path, header: bytes) -> None:
    (tmp_path / "1.eml").write_bytes(b"From: a@x\nTo: b@x\n" + header + b"\n\nbody\n")
    assert len(list(read_eml(tmp_path, Making(text=True)))) == 1


@pytest.mark.timeout(60)
def test_nobody_can_have_a_text_be_read_for_days(tmp_path: Path) -> None:
    (tmp_path / "1.eml").write_bytes(b"From: a@x\nTo: b@x\r\r\n\n" + b"\r" * 1_000_000 + b"x")
    assert len(list(read_eml(tmp_path, Making(text=True)))) == 1


def test_parts_in_parts_cost_their_message_alone(tmp_path: Path) -> None:
    parts = b"".join(b'Content-Type: multipart/mixed; boundary="b%d"\n\n--b%d\n' % (n, n) for n in range(1500))
    (tmp_path / "1.eml").write_bytes(b"From: a@x\nTo: b@x\n" + parts)
    (tmp_path / "2.eml").write_bytes(MAIL.encode())
    results = list(read_eml(tmp_path, rule=money_or_finance))
    assert bad(results) == [("1.eml", "invalid_value")]
    assert len(good(results)) == 1


def memory_of(read: Callable[[], Any]) -> int:
    """The most bytes that Python held at once meanwhile."""
    tracemalloc.start()
    try:
        read()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", ["eml", "mbox"])
def test_of_a_message_that_is_too_large_no_more_is_held_than_may_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr("haystream_service.importers.mail.MESSAGE_BYTES", 1 << 20)
    attached = MAIL.split("From the desk")[0].encode() + b"x" * (16 << 20)
    file = tmp_path / f"a.{kind}"
    file.write_bytes(attached if kind == "eml" else b"From x\n" + attached + b"\n\nFrom y\n" + MAIL.encode())
    results: list[Imported] = []
    read = read_eml if kind == "eml" else read_mbox
    assert memory_of(lambda: results.extend(read(file))) < 8 << 20
    assert bad(results)[0][1] == "too_large"
    assert len(good(results)) == (kind == "mbox")


def packed_table(path: Path, *lines: bytes) -> Path:
    with gzip.open(path, "wb", compresslevel=1) as file:
        file.write(b"item_id,sender,recipients\nm1,ann,bob\n")
        for line in lines:
            file.write(line)
        file.write(b"m2,ann,bob\n")
    return path


@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ([b"x" * (4 << 20) + b"\n"], "too_large"),
        ([b"a," * (2 << 20) + b"\n"], "too_large"),
        ([b'm3,ann,"', b'bob;\n","' * 40_000, b'x"\n'], "too_large"),
        ([b"m3,ann,", b"x" * 200_000, b"\n"], "too_large"),
        ([b"m3,ann,", b";".join(b"%0510d" % n for n in range(250)), b"\n"], None),
        ([b"\n" * (1 << 19)], None),
    ],
    ids=["a line", "cells", "lines of a row", "a cell", "a wide row", "empty lines"],
)
def test_rows_that_are_too_large_are_skipped_and_the_next_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: list[bytes], code: str | None
) -> None:
    monkeypatch.setattr("haystream_service.importers.tables.ROW_CHARACTERS", 1 << 18)
    file = packed_table(tmp_path / "t.csv.gz", *lines)
    results: list[Imported] = []
    assert memory_of(lambda: results.extend(read_csv(file))) < 32 << 20
    assert {"m1", "m2"} <= {item.item_id for item in good(results)}
    assert [code for _, code in bad(results)][:1] == ([code] if code else [])


@pytest.mark.parametrize("first", [True, False])
def test_a_packed_file_that_never_ends_a_line_is_no_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: bool
) -> None:
    monkeypatch.setattr("haystream_service.importers.tables.SKIMMED_CHARACTERS", 8 << 20)
    file = tmp_path / "t.csv.gz"
    with gzip.open(file, "wb", compresslevel=1) as packed:
        packed.write(b"" if first else b"item_id,sender,recipients\nm1,ann,bob\n")
        for _ in range(64):
            packed.write(b"x" * (1 << 20))

    def read() -> None:
        with pytest.raises(ImportFailed, match="is no table: line"):
            list(read_csv(file))

    assert memory_of(read) < 32 << 20


def test_items_that_no_message_would_hold_are_skipped(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    cell = "\U0001f600" * 100_000
    file.write_text(f"item_id,sender,recipients,x,y,z\nm1,a,b,{cell},{cell},{cell}\nm2,a,b,,,\n")
    results = list(read_csv(file, labels=["x", "y", "z"]))
    assert bad(results) == [("t.csv:2", "too_large")]
    assert [item.item_id for item in good(results)] == ["m2"]


@pytest.mark.parametrize("packed", [False, True])
def test_mboxes_are_split_at_their_from_lines(tmp_path, packed):
    second = MAIL.replace("1@", "2@").replace("From the desk", ">From the desk")
    nobody = "From nobody Fri May  4 10:00:00 2001\n"
    text = f"From ann Fri May  4\n{MAIL}\nFrom bob Fri May  4\n{second}\n{nobody}\n".encode()
    file = tmp_path / ("a.mbox.gz" if packed else "a.mbox")
    file.write_bytes(gzip.compress(text) if packed else text)
    results = list(read_mbox(file))
    assert [item.item_id for item in good(results)] == ["1@example.org", "2@example.org"]
    assert bad(results) == [(f"{file.name}#3", "missing_field")]


def test_a_paragraph_that_begins_with_from_costs_a_mail_nothing(tmp_path: Path) -> None:
    """Writers of an mbox should escape it, and not all do."""
    file = tmp_path / "a.mbox"
    said = "From my side all is well.\n\nFrom now on: yes.\nAnn"
    text = MAIL.replace("From the desk of Ann\n", f"{said}\n")
    file.write_text(f"From ann\n{text}\nFrom bob\n{text.replace('1@', '2@')}")
    items = good(list(read_mbox(file, Making(text=True))))
    assert [(item.item_id[0], item.text) for item in items] == [("1", said), ("2", said)]


@pytest.mark.parametrize(
    "line",
    [
        "From ann@example.org Fri May  4 10:00:00 2001",
        "From 1234@xxx Fri May 04 10:00:00 +0000 2001\r",
        "From - Fri May  4 10:00 PDT 2001",
    ],
)
def test_mboxes_are_split_where_no_empty_line_precedes_a_from_line(tmp_path: Path, line: str) -> None:
    file = tmp_path / "a.mbox"
    text = MAIL.replace("From the desk", "At the desk")
    file.write_bytes("".join(f"{line}\n{text.replace('1@', f'{number}@')}" for number in (1, 2, 3)).encode())
    items = good(list(read_mbox(file, Making(text=True))))
    assert [(item.item_id[0], item.text) for item in items] == [(n, "At the desk of Ann") for n in "123"]


def test_a_line_of_text_that_begins_with_from_splits_no_mbox(tmp_path: Path) -> None:
    file = tmp_path / "a.mbox"
    text = MAIL.replace("From the desk", "At the desk")
    said = "From ann at 10:00 in 2001\nFrom May 4 2001\nFrom bob@x Mon Jan  1 10:00:00 2001\nhe wrote"
    file.write_text(f"From ann Fri May  4\n{text}{said}\n")
    (item,) = good(list(read_mbox(file, Making(text=True))))
    assert item.text == f"At the desk of Ann\n{said}"


def test_what_an_mbox_escapes_is_read_without_and_makes_no_other_item_of_a_message(tmp_path: Path) -> None:
    escaped, nameless = (
        MAIL.replace("From the", ">From the") + ">>From one\n> From two\n",
        "Message-ID: <1@example.org>\n",
    )
    file = tmp_path / "a.mbox"
    file.write_text(f"From ann Fri May  4\n{escaped}")
    (item,) = good(list(read_mbox(file, Making(text=True))))
    assert item.text == "From the desk of Ann\n>From one\n> From two"
    # Nor is it another item than it was before anybody looked at how it is escaped.
    file.write_text(f"From ann Fri May  4\n{escaped.replace(nameless, '')}")
    (item,) = good(list(read_mbox(file)))
    assert item.item_id == good([mail(tmp_path, escaped.replace(nameless, ""))])[0].item_id
    assert good([mail(tmp_path, escaped)]) == good([mail(tmp_path, MAIL)])


@pytest.mark.parametrize("end", ["\r\n", "\r", "\r\r\n"])
def test_lines_may_end_in_any_way(tmp_path: Path, end: str) -> None:
    file, said = tmp_path / "a.mbox", MAIL.replace("From the desk", "At the desk") + "and more\n"
    text = "".join(f"From ann Fri May  4\n{said.replace('1@', f'{number}@')}\n" for number in (1, 2))
    file.write_bytes(text.replace("\n", end).encode())
    items = good(list(read_mbox(file, Making(text=True))))
    assert [(item.item_id[0], item.text) for item in items] == [(n, "At the desk of Ann\nand more") for n in "12"]
    file = tmp_path / "a.eml"
    file.write_bytes((said + "x" * 300_000).replace("\n", end).encode())
    (item,) = good(list(read_eml(file)))
    assert item.item_id == "1@example.org"


def test_an_mbox_is_not_taken_for_one_message(tmp_path: Path) -> None:
    one, file = f"From ann Fri May  4\n{MAIL}\n", tmp_path / "a.eml"
    file.write_text(one)
    assert [item.item_id for item in good(list(read_eml(file)))] == ["1@example.org"]
    file.write_text(one + one)
    assert bad(list(read_eml(tmp_path))) == [("a.eml", "unreadable")]
    with pytest.raises(ImportFailed, match=r"a\.eml is an mbox of several messages: haystream import mbox"):
        list(read_eml(file))


def test_a_mark_of_the_byte_order_hides_no_mbox(tmp_path: Path) -> None:
    file = tmp_path / "archive"
    file.write_bytes(f"\ufeffFrom ann Fri May  4\n{MAIL}".encode())
    assert mail_reader(file) is read_mbox
    assert [item.item_id for item in good(list(read_mbox(file)))] == ["1@example.org"]


@pytest.mark.parametrize("name", ["a.eml.gz", "a.eml", "a.mbox", "a.mbox.gz"])
def test_what_is_packed_is_unpacked_whatever_it_is_called(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(gzip.compress(f"From ann Fri May  4\n{MAIL}".encode()))
    reader = mail_reader(tmp_path / name)
    assert reader is (read_eml if "eml" in name else read_mbox)
    assert [item.item_id for item in good(list(reader(tmp_path / name)))] == ["1@example.org"]
    assert [item.item_id for item in good(list(read_maildir(tmp_path)))] == ["1@example.org"]
    (tmp_path / name).write_bytes(gzip.compress(MAIL.encode())[:-20])
    assert bad(list(read_maildir(tmp_path))) == [(name, "unreadable")]


def test_a_packed_table_may_have_any_name(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_bytes(gzip.compress(b"item_id,participants\nm1,b;a\n"))
    assert [item.item_id for item in good(list(read_csv(file)))] == ["m1"]


@pytest.mark.parametrize(
    "head",
    [
        MAIL.replace(":", " :", 1).replace("From:", "From\t:"),
        MAIL.replace("Date:", ">From uucp Fri May  4 10:00:00 2001\nDate:"),
        f"\n\n{MAIL}",
        f"\r\n{MAIL}",
    ],
)
def test_headers_are_read_though_python_would_end_them(tmp_path: Path, head: str) -> None:
    file = tmp_path / "a.mbox"
    file.write_text(f"From ann Fri May  4\n{head}")
    for results in (read_mbox(file, Making(text=True)), [mail(tmp_path, head)]):
        (item,) = good(list(results))
        assert (item.item_id, item.sender, len(item.recipients or ())) == ("1@example.org", "ann@example.org", 3)
        assert item.text in {"From the desk of Ann", None}


@pytest.mark.parametrize(
    ("given", "people"),
    [
        ('"Bob <bob@example.org>, cho@example.org', ("bob@example.org", "cho@example.org")),
        ('"Bob \\" B" <bob@example.org>', ("bob@example.org",)),
        ("=?utf-8?Q?Bob_=3Cbob=40example.org=3E?=", ("bob@example.org",)),
        ("=?utf-8?B?Ym9iQGV4YW1wbGUub3Jn?=", ("bob@example.org",)),
        ("=?utf-8?Q?no_address?= <bob@example.org>", ("bob@example.org",)),
    ],
)
def test_addresses_are_found_where_a_quote_is_not_closed_or_all_is_encoded(
    tmp_path: Path, given: str, people: tuple[str, ...]
) -> None:
    (item,) = good([mail(tmp_path, f"Message-ID: <1@x>\nFrom: ann@example.org\nTo: {given}\n\n")])
    assert item.recipients == people


def test_a_name_that_begins_with_a_dot_is_no_messages_in_a_maildir(tmp_path: Path) -> None:
    tree = messages(tmp_path, "cur/1", "new/2", "cur/.DS_Store", "new/.nfs01", ".Sent/cur/5", ".Sent/new/.6")
    results = list(read_maildir(tree))
    assert ([item.item_id[0] for item in good(results)], bad(results)) == (["5", "1", "2"], [])


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


def messages(root: Path, *names: str) -> Path:
    """The folder, with a message in each of the files."""
    for number, name in enumerate(names, start=1):
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(MAIL.replace("1@", f"{number}@"))
    return root


def test_a_folder_that_is_called_new_makes_no_maildir_of_a_tree(tmp_path: Path) -> None:
    tree = messages(tmp_path, "ann/inbox/1.", "ann/new/1.", "bob/cur/1.", "bob/sent/1.eml")
    results = list(read_maildir(tree))
    assert ([item.item_id[0] for item in good(results)], bad(results)) == (["1", "2", "3", "4"], [])
    assert mail_reader(tree) is read_eml
    messages(tmp_path, "ann/cur/1.")
    assert mail_reader(tree) is read_maildir


def test_what_lies_beside_the_messages_of_a_maildir_is_reported_unless_it_is_the_maildirs_own(
    tmp_path: Path,
) -> None:
    tree = messages(tmp_path, "ann/cur/1", "ann/tmp/2", "ann/dovecot-uidlist", "bob/inbox/4.", "tmp/5")
    (tree / "ann" / "new").mkdir()
    results = list(read_maildir(tree))
    assert [item.item_id[0] for item in good(results)] == ["1"]
    assert bad(results) == [("bob/inbox/4.", "unreadable"), ("tmp/5", "unreadable")]
    (tree / "ann" / "new").rmdir()  # as copies have it that leave out what is empty
    assert list(read_maildir(tree)) == results


@pytest.mark.parametrize("read", [read_maildir, read_eml])
def test_folders_that_are_not_looked_into_are_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Callable[..., Any]
) -> None:
    tree, scandir = messages(tmp_path / "tree", "a/1.eml", "locked/2.eml"), os.scandir
    (tree / "linked").symlink_to(messages(tmp_path / "elsewhere", "3.eml"))
    locked = "locked"

    def guarded(folder: Any) -> Any:
        if Path(folder).name == locked:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), folder)
        return scandir(folder)

    monkeypatch.setattr("os.scandir", guarded)
    results = list(read(tree))
    assert [item.item_id[0] for item in good(results)] == ["1"]
    assert bad(results) == [("linked", "unreadable"), ("locked", "unreadable")]
    locked = "tree"
    with pytest.raises(ImportFailed, match=r"cannot read .*tree: Permission denied"):
        list(read(tree))


@pytest.mark.timeout(20)
@pytest.mark.parametrize("read", [read_maildir, read_eml])
def test_a_pipe_in_a_folder_of_mail_is_not_waited_for(tmp_path: Path, read: Callable[..., Any]) -> None:
    tree = messages(tmp_path, "2.eml")
    os.mkfifo(tree / "1.eml")
    results = list(read(tree))
    assert (len(good(results)), bad(results)) == (1, [("1.eml", "unreadable")])


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
