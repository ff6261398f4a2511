"""Aliases and URIs: what an operator says of all items of an import."""

import gzip
from pathlib import Path

import pytest

from haystream_service.errors import UserError
from haystream_service.importers import Making, Skipped, UriTemplate, read_aliases, read_csv, read_eml
from haystream_service.importers.results import ImportFailed
from haystream_service.wire import ItemRecord

TABLE = "address,person\nAnn@Home.example,ann@example.org\na.smith@old.example,ann@example.org\n"


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.mark.parametrize("form", ["csv", "jsonl", "gz"])
def test_addresses_become_people_in_whatever_form_they_are_said(tmp_path: Path, form: str) -> None:
    file = tmp_path / f"people.{form}"
    match form:
        case "csv":
            file.write_text("\ufeff" + TABLE)
        case "gz":
            file.write_bytes(gzip.compress(TABLE.encode()))
        case "jsonl":
            file.write_text(
                '{"address": "Ann@Home.example", "person": "ann@example.org", "since": 1999}\n\n'
                '{"address": "a.smith@old.example", "person": "ann@example.org"}\n'
            )
    aliases = read_aliases(file)
    assert aliases.person("ann@home.example") == aliases.person("A.Smith@old.example") == "ann@example.org"
    assert aliases.person("Bob@example.org") == "Bob@example.org"


def test_who_writes_to_an_address_of_her_own_writes_to_nobody(tmp_path: Path) -> None:
    making = Making(aliases=read_aliases(written(tmp_path / "a.csv", TABLE)))
    mail = "From: a.smith@OLD.example\nTo: ann@home.example{}\nMessage-ID: <1@x>\n\n"
    (alone,) = read_eml(written(tmp_path / "1.eml", mail.format("")), making)
    (both,) = read_eml(written(tmp_path / "2.eml", mail.format(", bob@x, ann@example.org")), making)
    assert isinstance(alone, Skipped)
    assert alone.code == "too_few_participants"
    assert isinstance(both, ItemRecord)
    assert (both.sender, both.recipients) == ("ann@example.org", ("ann@example.org", "bob@x"))
    table = written(tmp_path / "t.csv", "item_id,participants\nm1,a.smith@old.example;Bob;ann@example.org\n")
    (row,) = read_csv(table, making)
    assert isinstance(row, ItemRecord)
    assert row.participants == ("ann@example.org", "Bob")


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("address,person\na@x,ann\nb@x,bob\nA@X,bob\n", 4, "'A@X' is 'ann' in line 2"),
        ("address,person\na@x,b@x\nb@x,bob\n", 2, "the person 'b@x' is an address of 'bob' in line 3"),
        ("address,person\na@x,b@x\nb@x,a@x\n", 2, "the person 'b@x' is an address of 'a@x' in line 3"),
        ("address,person\na@x,ann\nb@x,\n", 3, "person should be 1 to 512 characters, got ''"),
        ('{"address": "a@x", "person": "ann"}\n{"address": "a@x"}\n', 2, "the strings address, person"),
        ('{"address": "a@x", "person": "ann"}\nb@x,bob\n', 2, "no JSON"),
        ("address,person\na@x,\x07\n", 2, "person should be"),
        ("address,person\na@x,Ann@x\nb@x,ann@x\n", 3, "the person 'ann@x' is 'Ann@x' in line 2"),
        ("address,person\n" + "a" * 600 + ",ann\n", 2, "got 'aaaaaaaaaaaa...aaaaaaaaaaaaa'"),
    ],
    ids=["two people", "chain", "cycle", "empty", "field", "form", "control character", "two spellings", "long"],
)
def test_what_cannot_be_meant_is_told_with_its_line(tmp_path: Path, text: str, line: int, problem: str) -> None:
    file = written(tmp_path / "people.csv", text)
    with pytest.raises(ImportFailed) as failed:
        read_aliases(file)
    assert str(failed.value).startswith(f"{file}, line {line}: ")
    assert problem in str(failed.value)


def test_a_person_may_be_called_by_an_address_of_her_own_and_lines_may_come_twice(tmp_path: Path) -> None:
    text = "person,address\nann@x,ann@x\nann@x,ann@y\nann@x,ann@y\n"
    assert read_aliases(written(tmp_path / "a.csv", text)).person("ann@y") == "ann@x"


def test_a_person_who_is_named_by_an_address_is_meant_by_it_in_any_case(tmp_path: Path) -> None:
    making = Making(aliases=read_aliases(written(tmp_path / "a.csv", "address,person\na@x,Ann.Lee@Example.org\n")))
    (mail,) = read_eml(written(tmp_path / "1.eml", "From: Ann.Lee@Example.org\nTo: b@x, a@x\n\n"), making)
    assert isinstance(mail, ItemRecord)
    assert (mail.sender, mail.recipients) == ("Ann.Lee@Example.org", ("b@x", "Ann.Lee@Example.org"))


@pytest.mark.parametrize("text", ["", "from,to\n", "address\n"])
def test_what_is_no_alias_file_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ImportFailed, match="columns address and person"):
        read_aliases(written(tmp_path / "a.csv", text))


def test_a_uri_is_filled_in(tmp_path: Path) -> None:
    making = Making(
        "case 7", uri=UriTemplate.parse("https://mail.example.org/{{c}}/{collection}/{message_id}?f={file}")
    )
    head = "From: a@x\nTo: b@x\n"
    (item,) = read_eml(written(tmp_path / "1.eml", f"{head}Message-ID: <a/b+c@x>\n\n"), making)
    assert isinstance(item, ItemRecord)
    assert item.uri == "https://mail.example.org/{c}/case%207/a%2Fb%2Bc%40x?f=1.eml"
    (nameless,) = read_eml(written(tmp_path / "2.eml", f"{head}\n"), making)
    assert isinstance(nameless, ItemRecord)
    assert nameless.uri is None


def test_an_address_that_would_be_too_long_costs_no_message(tmp_path: Path) -> None:
    message = tmp_path / "1.eml"
    making = Making(uri=UriTemplate.parse("{message_id}{message_id}"))
    for date, sent_at in (
        ("Fri, 31 Dec 9999 23:59:59 -0100", None),  # UTC has no such year
        ("Fri, 31 Dec 9999 23:59:59 +0000", "9999-12-31T23:59:59+00:00"),
        ("Fri, 31 Dec 9999 23:59:59 -0000", "9999-12-31T23:59:59"),
    ):
        message.write_bytes(f"From: a@x\nTo: b@x\nMessage-ID: <{'!' * 500}>\nDate: {date}\n\n".encode())
        (item,) = read_eml(message, making)
        assert isinstance(item, ItemRecord)
        assert (item.uri, item.sent_at) == (f"{'%21' * 1000}", sent_at)
    message.write_bytes(f"From: a@x\nTo: b@x\nMessage-ID: <{'%' * 500}>\n\n".encode())
    twice = UriTemplate.parse("{message_id}{message_id}{message_id}")
    (item,) = read_eml(message, Making(uri=twice))
    assert isinstance(item, ItemRecord)
    assert item.uri == f"mid:{'%25' * 500}"
    message.write_bytes(f"From: a@x\nTo: b@x\nMessage-ID: <{chr(0x1F600) * 400}>\n\n".encode())
    (item,) = read_eml(message)
    assert isinstance(item, ItemRecord)
    assert item.uri is None


def test_of_a_table_any_column_may_be_in_it(tmp_path: Path) -> None:
    table = written(tmp_path / "t.csv", "item_id,sender,recipients,uri,doc no\nm1,a,b,u:1,7\nm2,a,b,u:2,\n")
    first, second = read_csv(table, Making(uri=UriTemplate.parse("https://x/{doc no}")))
    assert isinstance(first, ItemRecord)
    assert isinstance(second, ItemRecord)
    assert (first.uri, second.uri) == ("https://x/7", "u:2")
    with pytest.raises(UserError, match="there is no message_id; there are collection, doc no, item_id"):
        list(read_csv(table, Making(uri=UriTemplate.parse("https://x/{message_id}"))))


@pytest.mark.parametrize("template", ["https://x/{", "{}", "{a!r}", "{a:>9}", "a b", "{a}\n", "}"])
def test_what_is_no_template_is_refused(template: str) -> None:
    with pytest.raises(UserError, match="--uri"):
        UriTemplate.parse(template)


@pytest.mark.parametrize("kind", ["maildir", "mbox", "eml"])
def test_an_unknown_name_stops_an_import_before_it_begins(tmp_path: Path, kind: str) -> None:
    from haystream_service.commands.import_ import READERS

    with pytest.raises(UserError, match="there is no subject; there are collection, file, item_id, message_id"):
        list(READERS[kind](tmp_path / "none", Making(uri=UriTemplate.parse("{subject}"))))  # type: ignore[index]
