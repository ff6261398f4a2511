"""What a message says: real shapes of mail, and what nobody should send."""

import base64
from email.message import EmailMessage
from pathlib import Path

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from haystream_service.importers import Making, Skipped, money_or_finance, read_csv, read_eml
from haystream_service.importers import contents as module
from haystream_service.importers.contents import CUT, Contents, contents
from haystream_service.importers.html import HTML_LENGTH, plain_text
from haystream_service.importers.results import ImportFailed
from haystream_service.wire import ItemRecord, encode_record, limits
from haystream_service.wire.fields import SUBJECT_LENGTH, TEXT_LENGTH


def message(*, subject: str = "lunch", plain: str = "At noon?") -> EmailMessage:
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = "ann@example.org", "bob@example.org", subject
    mail.set_content(plain)
    return mail


def raw(head: bytes, body: bytes = b"") -> bytes:
    return b"From: a@x\nTo: b@x\n" + head + b"\n\n" + body


def test_a_plain_message() -> None:
    assert contents(bytes(message())) == Contents("lunch", "At noon?")


def test_of_two_ways_to_say_it_the_plain_one_is_taken() -> None:
    mail = message()
    mail.add_alternative("<p>At <b>noon</b>, in HTML?</p>", subtype="html")
    assert contents(bytes(mail)).text == "At noon?"


def test_where_the_plain_way_says_nothing_the_other_is_taken() -> None:
    mail = message(plain=" \n")
    mail.add_alternative("<p>At <b>noon</b>?</p>", subtype="html")
    mail.get_payload()[1].add_related(b"GIF89a", "image", "gif", cid="<x>")  # type: ignore[union-attr,index]
    assert contents(bytes(mail)).text == "At noon?"


def test_attachments_and_messages_in_messages_are_left_out_and_inline_parts_are_not() -> None:
    mail = message()
    mail.add_attachment(b"%PDF money", "application", "pdf", filename="a.pdf")
    mail.add_attachment("attached text", filename="b.txt")
    mail.add_attachment("<p>attached page</p>", subtype="html", filename="c.html")
    mail.add_attachment("BEGIN:VCALENDAR", subtype="calendar", disposition="inline")
    mail.add_attachment("and a dessert", disposition="inline")
    mail.add_attachment(message(plain="forwarded"))
    assert contents(bytes(mail)).text == "At noon?\n\nand a dessert"


def test_a_signed_message_with_a_forwarded_page() -> None:
    mail = raw(
        b'Content-Type: multipart/signed; boundary="s"',
        b'--s\nContent-Type: multipart/alternative; boundary="a"\n\n--a\nContent-Type: text/html\n\n'
        b"<p>shown</p>\n--a--\n"
        b"--s\nContent-Type: application/pgp-signature\n\nxxxx\n--s--\n",
    )
    assert contents(mail).text == "shown"


@pytest.mark.parametrize(
    ("charset", "body", "text"),
    [
        ("utf-8", "Grüße".encode(), "Grüße"),
        ("us-ascii", "Grüße".encode(), "Grüße"),
        ("iso-8859-1", "Grüße – “so”".encode("cp1252"), "Grüße – “so”"),
        ("utf-8", "Grüße".encode("latin-1"), "Gr��e"),
        ("gb2312", "会议€".encode("gb18030"), "会议€"),
        ("koi8-r", "встреча".encode("koi8-r"), "встреча"),
        ("iso-2022-jp", "会議".encode("iso-2022-jp"), "会議"),
        ("x-unknown", "Grüße".encode(), "Grüße"),
        ("x-unknown", b"caf\xe9", "café"),
        ("rot13", b"money", "money"),
        ("punycode", b"money-", "money-"),
        ("utf-16", "Grüße".encode("utf-16"), "Grüße"),
        ("utf-16", "Grüße!".encode(), "Grüße!"),
        ("utf-16le", "会议".encode("utf-16le"), "会议"),
        ("utf-7", b"+2AA-x", "?x"),
    ],
)
def test_charsets(charset: str, body: bytes, text: str) -> None:
    head = f"Content-Type: text/plain; charset={charset}\nContent-Transfer-Encoding: 8bit"
    if b"\x00" in body:  # a line end of UTF-16 is no line end of mail's
        head, body = head.replace("8bit", "base64"), base64.b64encode(body)
    assert contents(raw(head.encode(), body)).text == text


@pytest.mark.parametrize("encoding", ["base64", "Base64 \t"])
@pytest.mark.parametrize("left", range(8))
def test_base64_may_be_cut_off_and_have_blanks_after_its_name(encoding: str, left: int) -> None:
    head = f"Content-Type: text/plain\nContent-Transfer-Encoding: {encoding}".encode()
    encoded = base64.encodebytes(b"At noon, then? " * 9)
    text = contents(raw(head, encoded[: 100 - left] + b"\n--\n")).text
    assert text is not None
    assert ("At noon, then? " * 9).startswith(text)
    assert len(text) >= 99 * 3 // 4 - 6


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        (b"=?utf-8?q?Gr=C3=BC=C3=9Fe?=", "Grüße"),
        (b"=?utf-8?b?R3LDvMOfZQ==?=\n =?utf-8?q?_an_alle?=", "Grüße an alle"),
        (b"=?x-unknown?q?Gr=FC=DFe?=", "=?x-unknown?q?Gr=FC=DFe?="),
        (b"=?utf-8?b?a?=", "=?utf-8?b?a?="),
        (b"=?gb2312?q?=E9F?=", "镕"),
        (b"=?ks_c_5601-1987?q?=8Cc?=", "똠"),
        (b"=?iso-8859-8-i?q?=F9?=", "ש"),
        (b"=?shift_jis?q?=87=40?=", "①"),
        (b"=?us-ascii?q?caf=E9?=", "café"),
        (b"=?iso-8859-1?q?=93yes=94?=", "“yes”"),
        (b"=?iso-8859-1?q?caf=C3=A9?=", "café"),
        (b"=?utf-8*de?q?Gr=C3=BC?= =?utf-8?q?=C3=9Fe?=, Ann", "Grüße, Ann"),
        ("Grüße =?utf-8?q?Gr=C3=BC=C3=9Fe?= \\users".encode(), "Grüße Grüße \\users"),
        (b"[=?utf-8?q?=C3=A4?=]", "[ä]"),
        (b"=?utf-8?q?=C3=A4?= and =?x-unknown?q?=C3=A4?=", "ä and =?x-unknown?q?=C3=A4?="),
        ("Grüße".encode(), "Grüße"),
        (b"a\n\tlong\x07 one", "a long one"),
        (b"", None),
        (b"x" * 2000, "x" * SUBJECT_LENGTH),
    ],
)
def test_subjects(subject: bytes, expected: str | None) -> None:
    assert contents(raw(b"Subject: " + subject)).subject == expected


@pytest.mark.parametrize(
    ("charset", "subject", "expected"),
    [
        (b"koi8-r", "встреча".encode("koi8-r"), "встреча"),
        (b"koi8-r", "встреча".encode(), "встреча"),
        (b"", "Grüße".encode("latin-1"), "Grüße"),
    ],
)
def test_a_subject_that_nobody_encoded_is_in_the_charset_of_its_message(
    charset: bytes, subject: bytes, expected: str
) -> None:
    kind = b"Content-Type: text/plain; charset=" + charset if charset else b"X: y"
    assert contents(raw(kind + b"\nSubject: " + subject)).subject == expected


@pytest.mark.parametrize("boundary", [b"", b'; boundary="nowhere"'])
def test_what_should_have_parts_and_has_none_is_text(boundary: bytes) -> None:
    """Archives have it so that kept the text of a message alone, and all of its headers."""
    mail = raw(b"Content-Type: multipart/mixed" + boundary, b"the money\n")
    assert contents(mail).text == "the money"
    assert money_or_finance(mail)


def test_quoted_printable_and_line_ends() -> None:
    head = b"Content-Type: text/plain; charset=utf-8\nContent-Transfer-Encoding: quoted-printable"
    assert contents(raw(head, b"Gr=C3=BC=\r\n=C3=9Fe\r\n\r\n\r\n\r\nAnn\x00\x1b[2J\r\n")).text == "Grüße\n\nAnn[2J"


def test_html_is_what_is_to_be_seen_of_it() -> None:
    page = """<!DOCTYPE html><html><head><title>t</title><style>p {color: red}</style></head><body>
    <!-- hidden --><p>Dear&nbsp;Bob,<br>the &lt;plan&gt;:</p><script>alert(1)</script>
    <table><tr><td>one</td><td>two</td></tr></table><![if !mso]>last<![endif]></body></html>"""
    lines = [line.split() for line in plain_text(page).splitlines() if line.strip()]
    assert lines == [["Dear", "Bob,"], ["the", "<plan>:"], ["one", "two"], ["last"]]


@pytest.mark.parametrize(
    "page", ["<style>x", "<head><title>a", "no tags & <", "<p", "</", "&#xd800;", "&#1114112;x"]
)
def test_broken_html_stops_nothing(page: str) -> None:
    plain_text(page)


def test_a_character_may_be_a_long_number() -> None:
    zeros = "0" * 10_000
    assert plain_text(f"&#65;&#{zeros}65;&#{zeros};&#{'9' * 10_000};&#x{zeros}41;") == "AA\ufffd\ufffdA"


@pytest.mark.parametrize(
    "broken", [b"charset*=utf-8''koi8-r; charset*0=koi8-r", b"charset*" + b"9" * 5000 + b"=koi8-r"]
)
def test_parameters_that_cannot_be_read_are_as_good_as_absent(broken: bytes) -> None:
    mail = raw(b"Content-Type: text/plain; " + broken, "Grüße".encode())
    assert contents(mail).text == "Grüße"
    assert money_or_finance(mail.replace(b"\n\n", b"\n\nmoney "))
    bound = broken.replace(b"charset", b"boundary").replace(b"koi8-r", b"b")
    body = b"--b\nContent-Type: text/plain; " + broken + b"\n\nseen\n--b--\n"
    assert contents(raw(b"Content-Type: multipart/mixed; " + bound, body)).text == body.decode().strip()
    assert contents(raw(b"Content-Type: multipart/mixed; boundary=b", body)).text == "seen"


def test_a_head_that_nobody_closes_hides_no_body() -> None:
    assert plain_text("<head><meta x><body>seen").strip() == "seen"


def test_what_looks_like_a_tag_in_a_script_is_none() -> None:
    page = '<head><STYLE><!-- p {} </style ><script>x = "<!--<body>" + "</scripts>"</script></head>seen'
    assert plain_text(page + "<style>hidden") == "seen"


@pytest.mark.parametrize(
    "piece", ["<!--", "<![CDATA[", "<<!---->!--", "<a ", "<a b='", "</a ", "&", "<script>", "<!"]
)
def test_html_costs_no_square_of_its_characters(piece: str) -> None:
    """Of three of these a parser that goes back takes ten minutes, which is more than a test may take."""
    assert len(plain_text(piece * (HTML_LENGTH // len(piece)))) <= HTML_LENGTH


def test_ways_in_ways_are_read_once_each(monkeypatch: pytest.MonkeyPatch) -> None:
    mail, read = b"Content-Type: text/html\n\n<p>seen", list[str]()
    for n in range(40):
        b = b"b%d" % n
        mail = b"Content-Type: multipart/alternative; boundary=" + b + b"\n\n--" + b + b"\n" + mail + b"\n"
    monkeypatch.setattr(module, "plain_text", lambda html: (read.append(html), plain_text(html))[1])
    assert contents(b"From: a@x\n" + mail).text == "seen"
    assert len(read) == 1


def test_of_many_parts_of_html_the_first_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HTML_READ", 100)
    part = b"--b\nContent-Type: text/html\n\n<p>" + b"x" * 60 + b"\n"
    plain = b"--b\n\nand the end\n"
    found = contents(raw(b"Content-Type: multipart/mixed; boundary=b", 3 * part + plain)).text
    assert found == f"{'x' * 60}\n\n{'x' * 60}\n\nand the end"


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"--b\n\nx\n" * 12, "the message has more than 10 parts"),
        (b"\r\n" * 40 + b"\n" * 40 + b"\r" * 40, "the message has 124 lines, at most 100 are taken"),
    ],
)
def test_what_has_more_than_any_mail_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: bytes, problem: str
) -> None:
    monkeypatch.setattr(module, "MOST_PARTS", 10)
    monkeypatch.setattr(module, "MOST_LINES", 100)
    file = tmp_path / "1.eml"
    file.write_bytes(raw(b"Content-Type: multipart/mixed; boundary=b", body))
    assert list(read_eml(file, Making(text=True))) == [Skipped("1.eml", "too_large", problem)]
    assert isinstance(next(read_eml(file)), ItemRecord)


def test_a_text_that_is_cut_says_so() -> None:
    found = contents(bytes(message(plain="x" * 70 + "\n" + ("word " * 60_000)))).text
    assert found is not None
    assert len(found) == TEXT_LENGTH
    assert found.endswith(CUT)


def test_a_text_is_cut_to_what_a_message_has_room_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MESSAGE_BYTES", 4000)
    file = tmp_path / "1.eml"
    file.write_bytes(bytes(message(plain='\U0001f600"\\' * 1000)))
    (item,) = read_eml(file, Making(text=True))
    assert isinstance(item, ItemRecord)
    assert item.text is not None
    assert item.text.endswith(CUT)
    assert 2000 < len(encode_record(item)) <= 4000


def test_a_text_leaves_room_for_the_key_of_its_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MESSAGE_BYTES", 4000)
    file = tmp_path / "1.eml"
    for length in (10, 500):
        head = f"From: ann@x\nTo: bob@x\nMessage-ID: <{'i' * length}>\n\n"
        file.write_text(head + "word " * 2000)
        (item,) = read_eml(file, Making(text=True))
        assert isinstance(item, ItemRecord)
        batch = DefaultRecordBatchBuilder(2, 0, 1, 0, 0, 0, batch_size=8000)
        batch.append(0, 1_700_000_000_000, item.item_id.encode(), encode_record(item), [])
        assert 3800 < len(batch.build()) <= 4000


def test_subject_and_text_are_taken_on_request(tmp_path: Path) -> None:
    file = tmp_path / "1.eml"
    file.write_bytes(bytes(message()))
    (without,) = read_eml(file)
    (with_text,) = read_eml(file, Making(text=True))
    assert isinstance(without, ItemRecord)
    assert isinstance(with_text, ItemRecord)
    assert (without.subject, without.text) == (None, None)
    assert (with_text.subject, with_text.text) == ("lunch", "At noon?")


def test_of_a_table_they_are_its_columns(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    long = "x" * (TEXT_LENGTH + 1)
    file.write_text(f'item_id,sender,recipients,subject,text\nm1,a,b,"lu\nnch","At\nnoon?"\nm2,a,b,,{long}\n')
    first, second = read_csv(file, Making(text=True))
    assert isinstance(first, ItemRecord)
    assert isinstance(second, ItemRecord)
    assert (first.subject, first.text) == ("lu nch", "At\nnoon?")
    assert second.subject is None
    assert second.text is not None
    assert second.text.endswith(CUT)
    file.write_text("item_id,sender,recipients\nm1,a,b\n")
    with pytest.raises(ImportFailed, match="neither a column subject nor a column text"):
        list(read_csv(file, Making(text=True)))


@pytest.mark.parametrize("charset", ["utf-8", "latin-1"])
def test_what_a_row_says_is_read_in_the_charset_that_it_may_have(tmp_path: Path, charset: str) -> None:
    file = tmp_path / "t.csv"
    file.write_bytes("item_id,sender,recipients,subject,text\nm1,a,b,café,Grüße\n".encode(charset))
    (item,) = read_csv(file, Making(text=True))
    assert isinstance(item, ItemRecord)
    assert (item.subject, item.text) == ("café", "Grüße")


@given(
    st.binary(max_size=300),
    st.sampled_from(["", "Content-Type: text/html\n", "Content-Type: text/x; charset=\x00\n"]),
)
def test_any_bytes_are_some_message(body: bytes, head: str) -> None:
    found = contents(head.encode() + b"Subject: " + body + b"\n\n" + body)
    for said in found:
        assert said is None or said.encode().decode() == said
