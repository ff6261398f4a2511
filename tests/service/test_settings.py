import pytest
from pydantic import ValidationError

from haystream_service.settings import Settings, SettingsError, load, variables


def test_the_defaults_are_a_laptops():
    settings = load(environ={})
    assert settings == Settings()
    assert (settings.kafka, settings.redis) == ("127.0.0.1:9092", "redis://127.0.0.1:6379/0")
    assert settings.topic("next-items") == "haystream.next-items"


def test_arguments_win_over_the_environment_and_that_over_the_file(tmp_path):
    config = tmp_path / "worker.toml"
    config.write_text('port = 1\ngroup = "file"\ntopic_prefix = "file"\ntolerance = 1e-5\n')
    environ = {
        "HAYSTREAM_CONFIG": str(config),
        "HAYSTREAM_GROUP": "environment",
        "HAYSTREAM_TOPIC_PREFIX": "environment",
        "HAYSTREAM_DATA": "what tests use",
    }
    settings = load(environ=environ, topic_prefix="argument", redis_prefix=None)
    assert (settings.port, settings.tolerance) == (1, 1e-5)
    assert settings.group == "environment"
    assert settings.topic_prefix == "argument"
    assert settings.redis_prefix == "haystream"
    assert load(config, environ={}).group == "file"


def test_a_file_may_begin_with_a_mark_of_the_byte_order(tmp_path):
    (tmp_path / "worker.toml").write_bytes(b"\xef\xbb\xbfport = 1\n")
    assert load(tmp_path / "worker.toml", environ={}).port == 1


def test_the_processs_environment_is_read_when_asked(monkeypatch):
    monkeypatch.setenv("HAYSTREAM_PORT", "0")
    assert load().port == 0
    monkeypatch.setenv("HAYSTREAM_PORT", "")
    assert load().port == 6066


def test_a_variable_that_is_no_setting_is_warned_of_once(caplog):
    environ = {"HAYSTREAM_KAFAK": "broker:9092", "HAYSTREAM_EMPTY": "", "HAYSTREAM_DATA": "data", "KAFAK": "x"}
    for _ in range(2):
        assert load(environ=environ) == Settings()
    assert caplog.messages == ["there is no setting HAYSTREAM_KAFAK: it is not used"]


ANY_TEXT = {"host", "data_dir", "redis_password", "api_token"}
PART_OF_MORE = {"kafka_user", "kafka_password", "kafka_key_password", "redis_user", "redis_key_password"} | {
    "redis_sentinel_password",
    "api_oidc_issuer",
    "api_oidc_audience",
}
"""Any text will do, but not alone."""


@pytest.mark.parametrize("name", Settings.model_fields)
def test_every_setting_has_a_variable_and_refuses_nonsense(name):
    environ = {f"HAYSTREAM_{name.upper()}": "a b"}
    if name in ANY_TEXT:
        settings = load(environ=environ)
        assert variables(settings) == environ
    elif name in PART_OF_MORE or name.endswith("_file"):
        with pytest.raises(SettingsError, match=r"for TLS|needs HAYSTREAM_|cannot read") as caught:
            load(environ=environ)
        named = (f"HAYSTREAM_{name.upper()}", "for Kafka needs", "an OpenID provider needs")
        assert any(name in str(caught.value) for name in named)
    else:
        shown = "not a URL of Redis" if name == "redis" else "'a b'"
        with pytest.raises(SettingsError, match=f"HAYSTREAM_{name.upper()} is {shown}: expected "):
            load(environ=environ)


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("HAYSTREAM_KAFKA", "broker", "host:port"),
        ("HAYSTREAM_KAFKA", "kafka://broker:9092", "host:port"),
        ("HAYSTREAM_PORT", "65536", "less than or equal to 65535"),
        ("HAYSTREAM_TOLERANCE", "nan", "finite"),
        ("HAYSTREAM_TOLERANCE", "0", "greater than 0"),
        ("HAYSTREAM_TOPIC_PREFIX", "{a}", "letters"),
    ],
)
def test_errors_name_variable_value_and_expectation(variable, value, expected):
    with pytest.raises(SettingsError) as caught:
        load(environ={variable: value})
    assert str(caught.value).startswith(f"{variable} is {value!r}: expected ")
    assert expected in str(caught.value)


def test_several_brokers_may_be_named():
    assert load(environ={"HAYSTREAM_KAFKA": "a:1,b.example:2"}).kafka == "a:1,b.example:2"


def test_all_bad_settings_are_said_at_once():
    with pytest.raises(SettingsError) as caught:
        load(environ={"HAYSTREAM_PORT": "x", "HAYSTREAM_PARTITIONS": "0"})
    assert len(str(caught.value).splitlines()) == 2


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("HAYSTREAM_KAFKA", "user:S3cret@host"),
        ("HAYSTREAM_KAFKA", "user:p@S3cret@host:9092"),
        ("HAYSTREAM_REDIS", "http://user:S3cret@host"),
        ("HAYSTREAM_REDIS", "redis//user:S3cret@host"),
        ("HAYSTREAM_REDIS", "redis://user:S3cret"),
        ("HAYSTREAM_REDIS", "redis://user:a/S3cret@host:6379/0"),
        ("HAYSTREAM_REDIS", "redis://user:a#S3cret@host:6379/0"),
        ("HAYSTREAM_REDIS", "redis://user:a?S3cret@host:6379/0"),
        ("HAYSTREAM_REDIS", "redis://user:S3cret@[::1"),
        ("HAYSTREAM_PORT", "redis://user:S3cret@host"),
    ],
)
def test_errors_show_no_password(variable, value):
    with pytest.raises(SettingsError, match=f"^{variable} is .*: expected ") as caught:
        load(environ={variable: value})
    assert "S3cret" not in str(caught.value)
    with pytest.raises(ValidationError) as direct:
        Settings(**{variable.removeprefix("HAYSTREAM_").lower(): value})
    assert "S3cret" not in str(direct.value)


SECRETIVE = {
    "HAYSTREAM_KAFKA_SASL": "PLAIN",
    "HAYSTREAM_KAFKA_USER": "me",
    "HAYSTREAM_KAFKA_PASSWORD": "S3cret@/#",
    "HAYSTREAM_REDIS": "redis://you@host:1/2",
    "HAYSTREAM_REDIS_PASSWORD": "S3cret%20",
}


def test_secrets_are_no_part_of_any_text():
    settings = load(environ=SECRETIVE)
    for text in (str(settings), repr(settings), settings.model_dump_json(), f"{settings.model_dump()}"):
        assert "S3cret" not in text
    with pytest.raises(SettingsError) as caught:
        load(environ={**SECRETIVE, "HAYSTREAM_KAFKA_PASSWORD_FILE": "f", "HAYSTREAM_REDIS_CA_FILE": "f"})
    assert "HAYSTREAM_KAFKA_PASSWORD and HAYSTREAM_KAFKA_PASSWORD_FILE are both given" in str(caught.value)
    assert "S3cret" not in str(caught.value)
    with pytest.raises(ValidationError) as direct:
        Settings(kafka_password="S3cret")
    assert "S3cret" not in str(direct.value)


def test_a_process_of_ours_gets_the_same_settings():
    settings = load(environ=SECRETIVE)
    assert load(environ=variables(settings)) == settings
    assert variables(settings)["HAYSTREAM_KAFKA_PASSWORD"] == "S3cret@/#"


@pytest.mark.parametrize(
    ("url", "bare", "user", "password"),
    [
        ("redis://me:p@a@host:1/2", "redis://host:1/2", "me", "p@a"),
        (
            "rediss://:p%2F%23@[::1]:1/2?health_check_interval=3",
            "rediss://[::1]:1/2?health_check_interval=3",
            None,
            "p/#",
        ),
        ("redis://host?username=me&password=p", "redis://host", "me", "p"),
        ("unix:///run/redis.sock?db=1&password=p", "unix:///run/redis.sock?db=1", None, "p"),
        ("redis://host", "redis://host", None, None),
    ],
)
def test_a_url_is_kept_without_its_credentials(url, bare, user, password):
    settings = load(environ={"HAYSTREAM_REDIS": url})
    assert (settings.redis, settings.redis_user) == (bare, user)
    assert (settings.redis_password and settings.redis_password.get_secret_value()) == password


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"KAFKA_SASL": "PLAIN", "KAFKA_USER": "me"}, "HAYSTREAM_KAFKA_SASL needs "),
        ({"KAFKA_PASSWORD": "S3cret"}, "needs HAYSTREAM_KAFKA_SASL: PLAIN, "),
        ({"KAFKA_CA_FILE": "f"}, "HAYSTREAM_KAFKA_CA_FILE is for TLS, which HAYSTREAM_KAFKA_TLS=true asks for"),
        ({"REDIS_CA_FILE": "f"}, "HAYSTREAM_REDIS_CA_FILE is for TLS, which a rediss:// URL asks for"),
        ({"KAFKA_TLS": "true", "KAFKA_KEY_FILE": "f"}, "name HAYSTREAM_KAFKA_CERT_FILE"),
        ({"REDIS": "redis://:S3cret@h", "REDIS_PASSWORD_FILE": "f"}, "HAYSTREAM_REDIS_PASSWORD is for"),
        ({"REDIS_USER": "me"}, "HAYSTREAM_REDIS_USER needs "),
        ({"KAFKA": "a:9092,b:65536"}, "HAYSTREAM_KAFKA names port 65536, and ports are from 1 to 65535"),
        ({"REDIS": "redis://me:S3cret@[::1]:0/0"}, "HAYSTREAM_REDIS names port 0, and ports are"),
        ({"REDIS": "redis://a:1,b:70000", "REDIS_SENTINEL": "ours"}, "HAYSTREAM_REDIS names port 70000, and"),
        ({"API": "https://h:123456/v1"}, "HAYSTREAM_API names port 123456, and ports are"),
        ({"API": "https://h:one/v1"}, "HAYSTREAM_API names port one, and ports are"),
        ({"API": "https://h:²"}, "HAYSTREAM_API names port ², and ports are"),
        ({"API": "https://[::1"}, "HAYSTREAM_API is no URL: Invalid IPv6 URL"),
        ({"REDIS": "redis://a:26379,b:26379/0"}, "HAYSTREAM_REDIS names several hosts, as for sentinels"),
        ({"REDIS_SENTINEL_PASSWORD": "S3cret"}, "HAYSTREAM_REDIS_SENTINEL_PASSWORD needs HAYSTREAM_REDIS_SENTINEL"),
        ({"REDIS_SENTINEL": "ours", "REDIS_CLUSTER": "true"}, "without HAYSTREAM_REDIS_CLUSTER"),
        (
            {"KAFKA_TLS": "true", "KAFKA_CA_FILE": "/no/f"},
            "HAYSTREAM_KAFKA_CA_FILE is '/no/f': cannot read it: No such",
        ),
    ],
)
def test_what_does_not_fit_together_is_said(environ, said):
    with pytest.raises(SettingsError) as caught:
        load(environ={f"HAYSTREAM_{name}": value for name, value in environ.items()})
    assert said in str(caught.value)
    assert "S3cret" not in str(caught.value)


def test_files_that_cannot_be_used_are_named(tmp_path):
    with pytest.raises(SettingsError, match=r"cannot read the settings in .*none\.toml: No such file"):
        load(tmp_path / "none.toml", environ={})
    config = tmp_path / "bad.toml"
    config.write_text("port = ")
    with pytest.raises(SettingsError, match=r"bad\.toml are not TOML"):
        load(config, environ={})
    config.write_text("prot = 1\nport = true\n")
    with pytest.raises(SettingsError, match=r"prot in .*: there is no such setting; there are kafka, "):
        load(config, environ={})
