import pytest

from haystream_service.settings import Settings, SettingsError, load


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


def test_the_processs_environment_is_read_when_asked(monkeypatch):
    monkeypatch.setenv("HAYSTREAM_PORT", "0")
    assert load().port == 0
    monkeypatch.setenv("HAYSTREAM_PORT", "")
    assert load().port == 6066


@pytest.mark.parametrize("name", Settings.model_fields)
def test_every_setting_has_a_variable_and_refuses_nonsense(name):
    if name in {"host", "data_dir"}:
        assert str(getattr(load(environ={f"HAYSTREAM_{name.upper()}": "x"}), name)) == "x"
        return
    with pytest.raises(SettingsError, match=f"HAYSTREAM_{name.upper()} is 'a b': expected "):
        load(environ={f"HAYSTREAM_{name.upper()}": "a b"})


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("HAYSTREAM_KAFKA", "broker", "host:port"),
        ("HAYSTREAM_KAFKA", "kafka://broker:9092", "host:port"),
        ("HAYSTREAM_REDIS", "localhost:6379", "redis://"),
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


def test_passwords_are_not_shown():
    with pytest.raises(SettingsError) as caught:
        load(environ={"HAYSTREAM_REDIS": "http://me:secret@host"})
    assert "secret" not in str(caught.value)


def test_files_that_cannot_be_used_are_named(tmp_path):
    with pytest.raises(SettingsError, match=r"cannot read the settings in .*none\.toml: No such file"):
        load(tmp_path / "none.toml", environ={})
    config = tmp_path / "bad.toml"
    config.write_text("port = ")
    with pytest.raises(SettingsError, match=r"bad\.toml are not TOML"):
        load(config, environ={})
    config.write_text("prot = 1\nport = true\n")
    with pytest.raises(SettingsError, match=r"prot in .*: there is no such setting; there are kafka, redis"):
        load(config, environ={})
