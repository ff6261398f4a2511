"""The program as a user meets it: exit codes, one-line errors, what is on which stream."""

import gzip
import io
import json
import os
import random
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from haystream_service import cli, client
from haystream_service.api.access import Role
from haystream_service.cli.services import KeyRole
from haystream_service.commands import import_
from haystream_service.errors import UserError
from haystream_service.store.base import StoreUnavailable
from haystream_service.wire import ItemRecord

COMMANDS = ("demo", "worker", "rebuild", "replay", "import", "simulate", "experiments")
GROUPS = (
    ("query", "delete"),
    ("collection", "delete"),
    ("dead-letters", "list"),
    ("dead-letters", "show"),
    ("dead-letters", "replay"),
)
GROUPS += (("query", "list"), ("query", "show"), ("query", "release"))
TABLE = "item_id,sender,recipients,relevant\nm1,ann,bob,1\nm2,bob,cho,0\nm3,cho,cho,0\n"


def run(*arguments: object, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(sys, "argv", ["haystream", *map(str, arguments)])
    with pytest.raises(SystemExit) as left:
        cli.main()
    return left.value.code  # type: ignore[return-value]


@pytest.fixture
def haystream(monkeypatch, capfdbinary):
    """Runs the program; exit code, standard output and standard error."""

    def call(*arguments: object) -> tuple[int, str, str]:
        code = run(*arguments, monkeypatch=monkeypatch)
        out, err = capfdbinary.readouterr()
        return code, out.decode(), err.decode()

    return call


def test_it_says_its_version(haystream):
    assert haystream("--version") == (0, f"{version('haystream')}\n", "")


@pytest.mark.parametrize("arguments", [(), *((command,) for command in COMMANDS), *GROUPS])
def test_help_teaches(haystream, arguments):
    code, out, _ = haystream(*arguments, "--help")
    assert code == 0
    assert "Usage: haystream" in out
    example = " ".join(("haystream", *arguments)) if arguments else "haystream demo"
    assert example in out.split("Usage:")[1].split("\n", 1)[1]


def test_help_waits_for_nothing_heavy():
    heavy = ("numpy", "scipy", "numba", "networkx", "faust", "aiokafka", "redis", "pydantic")
    program = (
        "import sys, haystream_service.cli as cli\n"
        "sys.argv = ['haystream', '--help']\n"
        "try: cli.main()\n"
        "except SystemExit: pass\n"
        f"print(sorted(set({heavy}) & set(sys.modules)), file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stderr.strip() == "[]"


@pytest.mark.parametrize(
    "arguments",
    [
        ("replay", "none.jsonl"),
        ("import", "csv", "none.csv"),
        ("import", "tar", "none.tar"),
        ("replay",),
        ("replay", "none.jsonl", "--engine", "steam"),
        ("replay", "none.jsonl", "--tolerance", "0"),
        ("dead-letters", "replay"),
        ("dead-letters", "replay", "t/0/0", "--all"),
        ("dead-letters", "show"),
        ("dead-letters", "list", "--code", "none"),
        ("dead-letters", "replay", "--all", "--code", "none"),
        ("next", "q", "-n", "0"),
        ("next", "q", "-n", "101"),
        ("up", ""),
        ("up", " "),
        ("frobnicate",),
    ],
)
def test_wrong_use_is_two_and_no_traceback(haystream, tmp_path, monkeypatch, arguments):
    monkeypatch.chdir(tmp_path)
    code, out, err = haystream(*arguments)
    assert code == 2
    assert out == ""
    assert err
    assert "Traceback" not in err


def test_a_code_that_is_none_is_told_which_there_are(haystream):
    code, _, err = haystream("dead-letters", "list", "--code", "conflict")
    assert (code, len(err.splitlines())) == (2, 1)
    assert err.startswith("haystream: there is no code 'conflict'; there are collection_changed, ")


@pytest.mark.parametrize("error", [UserError("two\nlines"), StoreUnavailable("two\nlines")])
def test_known_errors_are_said_in_lines(haystream, monkeypatch, error):
    def fail(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr("haystream_service.commands.replay.run", fail)
    assert haystream("replay", "x") == (2, "", "haystream: two\nhaystream: lines\n")


def test_what_standard_output_has_no_letter_for_is_written_as_its_code(monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="latin-1", write_through=True))
    monkeypatch.setattr(
        "haystream_service.commands.replay.run", lambda *_, **__: Console().print("José → 李", soft_wrap=True)
    )
    assert run("replay", "x", monkeypatch=monkeypatch) == 0
    assert written.getvalue().decode("latin-1") == "José \\u2192 \\u674e\n"


@pytest.mark.parametrize("command", ["--version", "--help", "import csv TABLE"])
@pytest.mark.parametrize(("redirected", "code"), [("> /dev/full", 2), (">&-", 0), (">&- 2>&-", 0)])
def test_where_results_have_no_room_that_is_said_and_where_nobody_wants_them_all_is_well(
    tmp_path: Path, command: str, redirected: str, code: int
) -> None:
    (tmp_path / "TABLE").write_text(TABLE)
    program = f"{sys.executable} -c 'from haystream_service.cli import main; main()' {command} {redirected}"
    ran = subprocess.run(program, shell=True, cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == code, ran.stderr
    assert ("No space left" in ran.stderr) == (code == 2)
    assert "Traceback" not in ran.stderr


def test_where_another_file_has_no_room_results_before_that_are_there() -> None:
    program = (
        "from haystream_service.cli import program\n"
        "def app(**_):\n"
        "    print('a result')\n"
        "    raise OSError(28, 'No space left on device', 'other')\n"
        "program.app = app\n"
        "program.main()\n"
    )
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=buffered)
    assert (ran.returncode, ran.stdout) == (2, "a result\n"), ran.stderr
    assert "'other'" in ran.stderr


@pytest.mark.parametrize(
    ("command", "named"),
    [
        (("query", "list"), "HAYSTREAM_REDIS"),
        (("dead-letters", "list"), "HAYSTREAM_KAFKA"),
        (("repartition", "--to", "other", "--partitions", "2", "--yes"), "HAYSTREAM_KAFKA"),
        (("import", "csv", "mails.csv", "--to", "kafka"), "HAYSTREAM_KAFKA"),
    ],
)
def test_a_server_that_is_not_there_is_named_with_its_setting_once(
    tmp_path: Path, command: tuple[str, ...], named: str
) -> None:
    """In a process of its own, where clients' complaints are not kept from standard error by the tests' own log."""
    (tmp_path / "mails.csv").write_text(TABLE)
    nowhere = {"HAYSTREAM_KAFKA": "127.0.0.1:1", "HAYSTREAM_REDIS": "redis://127.0.0.1:1"}
    program = [sys.executable, "-c", "from haystream_service.cli import main; main()", *command]
    ran = subprocess.run(program, cwd=tmp_path, env=os.environ | nowhere, capture_output=True, text=True)
    assert (ran.returncode, ran.stdout, ran.stderr.count("\n")) == (2, "", 1), ran.stderr
    assert named in ran.stderr


def test_bugs_keep_their_traceback(monkeypatch):
    def fail(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("haystream_service.commands.replay.run", fail)
    monkeypatch.setattr(sys, "argv", ["haystream", "replay", "x"])
    with pytest.raises(ZeroDivisionError):
        cli.main()


@pytest.mark.parametrize(
    ("raises", "code", "said"),
    [
        ("OSError(28, 'No space left on device')", 1, ["Traceback", "No space left on device"]),
        ("StoreUnavailable('no answer from Redis')", 1, ["Traceback", "no answer from Redis"]),
        ("UserError('what is set wrong')", 2, ["haystream: what is set wrong"]),
    ],
)
@pytest.mark.parametrize("service", ["worker", "api"])
def test_a_service_that_ends_says_where_that_comes_from(
    service: str, raises: str, code: int, said: list[str]
) -> None:
    program = (
        "import sys\n"
        "from haystream_service.cli import main\n"
        "from haystream_service.errors import UserError\n"
        "from haystream_service.store.base import StoreUnavailable\n"
        f"from haystream_service.{service} import serve\n"
        f"async def ends(_): raise {raises}\n"
        "serve.serve = ends\n"
        f"sys.argv = ['haystream', {service!r}]\n"
        "main()\n"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert ran.returncode == code, ran.stderr
    assert all(text in ran.stderr for text in said)
    assert ("Traceback" in ran.stderr) == (code == 1)
    assert "a bug" not in ran.stderr, "a disk that is full is none"


def test_import_writes_what_replay_reads(haystream, tmp_path):
    table = tmp_path / "mails.csv"
    table.write_text(TABLE)
    code, out, err = haystream("import", "csv", table, "--collection", "c")
    assert code == 0
    first, second = map(json.loads, out.splitlines())
    assert first == {
        "topic": "items",
        "value": {
            "item_id": "m1",
            "collection": "c",
            "sender": "ann",
            "recipients": ["bob"],
            "labels": {"relevant": True},
        },
    }
    assert "2 items to standard output" in err
    assert "1 skipped (1 too_few_participants)" in err
    assert "mails.csv:4: an item needs at least two distinct participants" in err

    (tmp_path / "events.jsonl").write_text('{"topic":"queries","value":{"query_id":"q","collection":"c"}}\n' + out)
    code, out, _ = haystream("replay", tmp_path / "events.jsonl", "--json")
    assert code == 0
    assert {item["item_id"] for item in json.loads(out)["items"]} == {"m1", second["value"]["item_id"]}


@pytest.mark.parametrize("packed", [False, True])
def test_import_into_a_file_sums_up_on_standard_output(haystream, tmp_path, packed):
    table, log = tmp_path / "mails.csv", tmp_path / ("items.jsonl.gz" if packed else "items.jsonl")
    table.write_text(TABLE)
    code, out, _ = haystream("import", "csv", table, "--to", log, "--json")
    assert code == 0
    summary = json.loads(out)
    assert summary == {
        "imported": 2,
        "skipped": {
            "count": 1,
            "by_code": {"too_few_participants": 1},
            "first": [
                {
                    "where": "mails.csv:4",
                    "code": "too_few_participants",
                    "detail": "an item needs at least two distinct participants",
                }
            ],
        },
        "to": str(log),
    }
    text = gzip.decompress(log.read_bytes()) if packed else log.read_bytes()
    assert len(text.splitlines()) == 2


def test_the_summary_goes_aside_when_items_are_on_standard_output(haystream, tmp_path):
    table = tmp_path / "mails.csv"
    table.write_text(TABLE)
    code, out, err = haystream("import", "csv", table, "--json")
    assert code == 0
    assert len(out.splitlines()) == 2
    assert json.loads(err)["imported"] == 2


def test_mail_is_imported_too(haystream, tmp_path):
    message = "From: ann@x\nTo: bob@x\nMessage-ID: <1@x>\n\nhello\n"
    (tmp_path / "one.eml").write_text(message)
    (tmp_path / "all.mbox").write_text(f"From ann\n{message}")
    for kind, path in (("eml", "one.eml"), ("eml", "."), ("maildir", "."), ("mbox", "all.mbox")):
        code, out, _ = haystream("import", kind, tmp_path / path)
        assert code == 0
        assert json.loads(out.splitlines()[0])["value"]["recipients"] == ["bob@x"]


def test_a_file_that_cannot_be_written_is_named(haystream, tmp_path):
    (tmp_path / "mails.csv").write_text(TABLE)
    code, _, err = haystream("import", "csv", tmp_path / "mails.csv", "--to", tmp_path / "no" / "x.jsonl")
    assert code == 2
    assert "cannot write" in err


@pytest.mark.parametrize(
    ("text", "problem"), [(None, "cannot read the settings"), ("kafka =", "are not TOML"), ("prot = 1", "no such")]
)
def test_an_import_reads_the_settings_that_it_is_given(haystream, tmp_path, text, problem):
    (tmp_path / "mails.csv").write_text(TABLE)
    config = tmp_path / "settings.toml"
    if text is not None:
        config.write_text(text)
    code, out, err = haystream("import", "csv", tmp_path / "mails.csv", "--config", config)
    assert (code, out) == (2, "")
    assert problem in err


def test_an_import_that_cannot_begin_destroys_nothing(haystream, tmp_path):
    table, log, aliases = tmp_path / "mails.csv", tmp_path / "items.jsonl", tmp_path / "people.csv"
    before = {table: TABLE, log: "kept\n", aliases: "address,person\na@x,ann\n"}
    for file, text in before.items():
        file.write_text(text)
    linked = tmp_path / "linked.csv"
    linked.symlink_to(table)
    for arguments, problem in (
        (("--to", table), "that is what is read"),
        (("--to", linked), "that is what is read"),
        (("--to", aliases, "--aliases", aliases), "that is what is read"),
        (("--to", log, "--uri", "x:{nothing}"), "there is no nothing"),
        (("--to", log, "--text"), "neither a column subject nor a column text"),
        (("--to", log, "--collection", "a\x1bb"), r"--collection 'a\x1bb': expected 1 to 512 characters"),
    ):
        code, out, err = haystream("import", "csv", table, *arguments)
        assert (code, out) == (2, "")
        assert problem in err
        assert {file: file.read_text() for file in before} == before


@pytest.mark.parametrize("packed", [False, True])
def test_an_import_that_breaks_off_leaves_a_file_as_it_was_and_says_how_far_it_came(haystream, tmp_path, packed):
    table, log = tmp_path / "mails.csv.gz", tmp_path / ("items.jsonl.gz" if packed else "items.jsonl")
    rows = "".join(f"{random.randbytes(20).hex()},ann,bob\n" for _ in range(2000))
    table.write_bytes(gzip.compress(f"item_id,sender,recipients\nm1,ann,ann\n{rows}".encode())[:-20_000])
    log.write_bytes(b"kept\n")
    code, out, err = haystream("import", "csv", table, "--to", log)
    assert (code, out, log.read_bytes()) == (2, "", b"kept\n")
    assert f"the import broke off: 0 items were written to {log}" in err
    assert "1 skipped (1 too_few_participants)" in err
    assert "cannot read" in err
    assert set(tmp_path.iterdir()) == {table, log}
    code, out, err = haystream("import", "csv", table)
    assert code == 2
    assert f"the import broke off: {len(out.splitlines())} items were written to standard output" in err
    assert len(out.splitlines()) > 100


def test_an_import_touches_no_other_file_and_keeps_the_mode_of_its_own(haystream, tmp_path):
    table, log = tmp_path / "items.jsonl.new", tmp_path / "items.jsonl"
    table.write_text("item_id,sender,recipients\nm1,ann,bob\n")
    log.touch(mode=0o600)
    code, _, err = haystream("import", "csv", table, "--to", log)
    assert (code, err.splitlines()[-1]) == (0, f"1 items to {log}")
    assert log.stat().st_mode & 0o777 == 0o600
    assert set(tmp_path.iterdir()) == {table, log}
    other = tmp_path / "other.jsonl.GZ"
    assert haystream("import", "csv", table, "--to", other)[0] == 0
    assert gzip.decompress(other.read_bytes()) == log.read_bytes()
    (tmp_path / "plain").touch()
    assert other.stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_an_import_that_is_interrupted_leaves_a_file_as_it_was(tmp_path, monkeypatch):
    def interrupted(*_: Any) -> Iterator[ItemRecord]:
        yield ItemRecord(item_id="m1", sender="ann", recipients=("bob",))
        raise KeyboardInterrupt

    monkeypatch.setitem(import_.READERS, "csv", interrupted)
    log = tmp_path / "items.jsonl"
    log.write_text("kept\n")
    with pytest.raises(KeyboardInterrupt):
        import_.run("csv", tmp_path, to=str(log))
    assert log.read_text() == "kept\n"


def test_a_name_in_an_archive_moves_no_cursor(haystream, tmp_path):
    (tmp_path / "\x1b[2Jred").write_text("Subject: nobody\n\n")
    code, _, err = haystream("import", "maildir", tmp_path)
    assert code == 0
    assert "[2Jred: sender: needed" in err
    assert "\x1b" not in err


def test_what_is_no_utf_8_is_no_id(haystream):
    assert haystream("query", "show", "a\udcff") == (
        2,
        "",
        "haystream: 'a\\udcff' is not UTF-8, and there is no such file\n",
    )


def test_a_file_may_have_any_name(haystream, tmp_path):
    file = tmp_path / "a\udcff.eml"
    file.write_bytes(b"From: ann@x\nTo: bob@x\n\n")
    code, out, _ = haystream("import", "eml", file)
    assert code == 0
    assert json.loads(out)["value"]["sender"] == "ann@x"


def test_bad_settings_are_named(haystream, tmp_path, monkeypatch):
    (tmp_path / "mails.csv").write_text(TABLE)
    monkeypatch.setenv("HAYSTREAM_KAFKA", "nowhere")
    code, _, err = haystream("import", "csv", tmp_path / "mails.csv", "--to", "kafka")
    assert (code, err.splitlines()[0]) == (
        2,
        "haystream: HAYSTREAM_KAFKA is 'nowhere': expected host:port, or several with commas between",
    )


def test_the_program_is_installed():
    assert Path(sys.executable).with_name("haystream").exists()


def test_a_key_file_is_changed_as_asked_or_not_at_all(haystream, tmp_path):
    keys, none = tmp_path / "keys.json", tmp_path / "none.json"
    assert haystream("api-key", "kim", "--role", "analyst", "--role", "lead", "--to", keys)[0] == 0
    before = keys.read_bytes()
    for arguments, problem in (
        (("kim", "--role", "boss", "--to", keys), "'boss' is not one of"),
        (("", "--role", "lead", "--to", keys), "SUBJECT '': expected 1 to 512 characters"),
        (("kim\n", "--role", "lead", "--to", keys), r"SUBJECT 'kim\n': expected 1 to 512 characters"),
        (("kim", "--role", "lead", "--collection", "", "--to", keys), "--collection '': expected 1 to 512"),
        (("kim", "--to", keys), "name a role with --role: ingest, analyst, lead, operations"),
        (("kim", "--role", "lead", "--to", tmp_path / "no" / "k.json"), "cannot write the keys to"),
        (("kimm", "--revoke", "--to", keys), "has no key of 'kimm': nothing is taken out of it"),
        (("kim", "--revoke", "--to", none), f"cannot read the keys in {none}: No such file"),
    ):
        code, out, err = haystream("api-key", *arguments)
        assert (code, out) == (2, ""), err
        assert problem in err
        assert (keys.read_bytes(), none.exists()) == (before, False)
    assert haystream("api-key", "kim", "--revoke", "--to", keys)[0] == 0
    assert json.loads(keys.read_bytes()) == []


def test_every_role_of_the_api_can_be_given_to_a_key():
    assert [role.value for role in KeyRole] == [role.value for role in Role]


def test_keys_that_are_no_list_are_said_to_be(haystream, tmp_path):
    (tmp_path / "keys.json").write_text("{}")
    code, _, err = haystream("api-key", "kim", "--role", "lead", "--to", tmp_path / "keys.json")
    assert code == 2
    assert err == (
        f"haystream: the keys in {tmp_path / 'keys.json'} cannot be used: Input should be a valid array\n"
    )


@pytest.mark.parametrize(
    "arguments", [("next", "q"), ("verdict", "q", "item-1", "relevant"), ("query", "open", "q")]
)
def test_servers_that_are_away_are_said_to_be_once_with_what_to_set(haystream, monkeypatch, arguments):
    monkeypatch.delenv("HAYSTREAM_API", raising=False)
    monkeypatch.setattr(client, "TRIES", 2)
    monkeypatch.setenv("HAYSTREAM_KAFKA", "127.0.0.1:1")
    monkeypatch.setenv("HAYSTREAM_REDIS", "redis://:secret@127.0.0.1:2/0")
    assert haystream(*arguments) == (
        2,
        "",
        "haystream: unavailable: Redis does not answer just now; "
        "nothing that you sent is lost by sending it again\n"
        "haystream: asked were 127.0.0.1:1 (HAYSTREAM_KAFKA) and redis://127.0.0.1:2/0 (HAYSTREAM_REDIS)\n",
    )


@pytest.mark.parametrize("setting", ["KAFKA", "REDIS"])
def test_a_host_that_is_not_there_is_named_at_once(haystream, monkeypatch, setting):
    monkeypatch.delenv("HAYSTREAM_API", raising=False)
    monkeypatch.setenv("HAYSTREAM_KAFKA", "127.0.0.1:1")
    monkeypatch.setenv("HAYSTREAM_REDIS", "redis://127.0.0.1:2/0")
    there = {"KAFKA": "nowhere.invalid:9092", "REDIS": "redis://nowhere.invalid"}
    monkeypatch.setenv(f"HAYSTREAM_{setting}", there[setting])

    def unknown(host: str, *_: Any, **__: Any) -> list[Any]:
        if host == "nowhere.invalid":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, 0))]

    monkeypatch.setattr(socket, "getaddrinfo", unknown)
    assert haystream("next", "q") == (2, "", f"haystream: there is no host nowhere.invalid (HAYSTREAM_{setting})\n")


def test_whoever_sits_at_a_terminal_is_told_what_is_waited_for(haystream, monkeypatch):
    monkeypatch.delenv("HAYSTREAM_API", raising=False)
    monkeypatch.setattr(client, "TRIES", 1)
    monkeypatch.setenv("HAYSTREAM_KAFKA", "127.0.0.1:1")
    monkeypatch.setenv("HAYSTREAM_REDIS", "redis://127.0.0.1:2/0")
    monkeypatch.setenv("HAYSTREAM_REDIS_PREFIX", "mine")
    terminal = Console(stderr=True, force_terminal=True, highlight=False, soft_wrap=True)
    monkeypatch.setattr("haystream_service.commands.connected.notes", terminal)
    code, _, err = haystream("next", "q")
    assert code == 2
    assert err.startswith("Redis cannot be reached (HAYSTREAM_REDIS)")
    assert "What needs it is tried again for some 20 seconds ...\nhaystream: unavailable" in err
    assert err.endswith(" (HAYSTREAM_REDIS), where keys begin with mine: (HAYSTREAM_REDIS_PREFIX)\n")
    monkeypatch.setattr(client, "TRIES", 8)
    monkeypatch.setenv("HAYSTREAM_API", "http://127.0.0.1:1")
    monkeypatch.setenv("HAYSTREAM_API_TOKEN", "kim")
    monkeypatch.setattr("haystream_service.commands.connected.sleep", lambda seconds: None)
    code, _, err = haystream("next", "q")
    assert code == 2
    asked, ended = err.splitlines()
    assert asked.startswith("http://127.0.0.1:1 (HAYSTREAM_API) gives no answer yet. What needs it is tried again")
    assert ended.startswith("haystream: no API answers at http://127.0.0.1:1 (HAYSTREAM_API)")
