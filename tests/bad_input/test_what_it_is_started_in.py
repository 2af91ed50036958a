"""The surroundings: a port, the database, its version and schema, settings, the model. One sentence at the start."""

import socket
from collections.abc import Iterator
from importlib.util import find_spec

import psycopg
import pytest
from pydantic_ai.providers import missing_api_key_error
from sqlalchemy import make_url

from steps import model_from_env
from tests.bad_input.old_server import old_server
from tests.bad_input.sentences import rows, sentence
from tests.forked import surefoot
from transactions import DatabaseUnavailable, InvalidInput
from transactions.database import check_server
from transactions.local import LocalPostgres

COMMANDS = [("serve", "--port", "0"), ("worker",), ("runs", "list"), ("approvals", "list"), ("migrate",)]
RELOADING = ("serve", "--reload", "--port", "0")
RUN = ("run", "monthly_report", "--input", '{"month": "2013-08"}', "--no-wait")
each_command = pytest.mark.parametrize("command", [*COMMANDS, RELOADING, RUN], ids=" ".join)


# Where it listens.


@pytest.fixture
def used_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def test_a_port_in_use_is_named(migrated: str, used_port: int) -> None:
    said = sentence(surefoot("serve", "--port", str(used_port), env={"DATABASE_URL": migrated}))
    assert said.startswith(f"Port {used_port} on 127.0.0.1 cannot be used (Address already in use): ")
    assert "--port" in said
    assert rows(migrated, "select count(*) as n from surefoot.workers where state = 'live'") == [{"n": 0}]


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "example.org", "127.0.0.9999", ""])
def test_an_address_that_others_can_reach_is_refused_until_there_are_tokens(host: str, migrated: str) -> None:
    said = sentence(surefoot("serve", "--host", host, env={"DATABASE_URL": migrated}))
    assert said.startswith(
        f"{host} is not a loopback address, and there are no tokens yet: run `surefoot tokens create`"
    )


@pytest.mark.parametrize("port", ["65536", "-1", "http"])
def test_a_port_that_is_none_is_a_usage_error(port: str) -> None:
    ended = surefoot("serve", "--port", port)
    assert ended.returncode == 2
    assert "Invalid value for '--port'" in ended.stderr
    assert "Traceback" not in ended.stderr


# The database.


@each_command
def test_a_database_that_is_down_is_named_with_what_to_do(command: tuple[str, ...]) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        url = f"postgresql://someone:secret@127.0.0.1:{closed.getsockname()[1]}/surefoot"
        said = sentence(surefoot(*command, env={"DATABASE_URL": url}))
    assert "secret" not in said
    assert said.startswith("The database postgresql://someone:***@127.0.0.1:")
    assert "Connection refused" in said
    assert said.endswith(": start it, correct DATABASE_URL, or unset DATABASE_URL to use the embedded one.")


@pytest.mark.parametrize(
    "url", ["nonsense", "mysql://a/b", "sqlite:///x.db", "postgresql://h:port/x", "://", "http://a"]
)
def test_a_url_of_something_else_is_refused(url: str) -> None:
    assert sentence(surefoot("runs", "list", env={"DATABASE_URL": url})) == (
        "DATABASE_URL is not the URL of a Postgres database: write postgresql://user:password@host:port/name, "
        "or unset it to use the embedded one."
    )


def test_a_database_that_does_not_exist_is_named(postgres: LocalPostgres) -> None:
    url = make_url(postgres.url).set(database="nowhere").render_as_string(hide_password=False)
    assert 'database "nowhere" does not exist' in sentence(surefoot("runs", "list", env={"DATABASE_URL": url}))


@each_command
def test_a_server_that_is_too_old_is_refused_with_its_version(command: tuple[str, ...]) -> None:
    with old_server("14.22") as url:
        said = sentence(surefoot(*command, env={"DATABASE_URL": url}))
    assert said == (
        f"The database {url} is Postgres 14, and Surefoot needs 15 or newer: upgrade the server, or set DATABASE_URL "
        "to a newer one."
    )


@pytest.mark.parametrize(
    ("version", "major"), [("15.0", 15), ("15.18 (Debian 15.18-1)", 15), ("18.6", 18), ("19devel", 19)]
)
def test_a_server_that_is_new_enough_is_not(version: str, major: int) -> None:
    with old_server(version) as url:
        assert check_server(url) == major


@pytest.mark.parametrize("version", ["14.22", "9.6.24", "10.0"])
def test_the_check_knows_old_versions(version: str) -> None:
    with old_server(version) as url, pytest.raises(DatabaseUnavailable, match=f"is Postgres {version.split('.')[0]}, "):
        check_server(url)


@pytest.fixture
def empty_url(postgres: LocalPostgres) -> Iterator[str]:
    """A database in which nothing was ever migrated."""
    admin = make_url(postgres.url).set(database="postgres").render_as_string(hide_password=False)
    with psycopg.connect(admin, autocommit=True) as connection:
        connection.execute("create database never_migrated")
        yield make_url(postgres.url).set(database="never_migrated").render_as_string(hide_password=False)
        connection.execute("drop database never_migrated with (force)")


@pytest.mark.parametrize("command", [RUN, RELOADING, *COMMANDS[:3]], ids=" ".join)
def test_a_schema_that_is_not_there_is_refused_with_the_command_to_run(
    command: tuple[str, ...], empty_url: str
) -> None:
    assert sentence(surefoot(*command, env={"DATABASE_URL": empty_url})) == (
        "The database schema is missing or old: run `surefoot migrate`, then start again."
    )


def test_a_login_that_may_not_migrate_is_told_what_it_needs(empty_url: str) -> None:
    name = make_url(empty_url).database
    with psycopg.connect(empty_url, autocommit=True) as connection:
        connection.execute("create role guest login")
        try:
            guest = make_url(empty_url).set(username="guest").render_as_string(hide_password=False)
            said = sentence(surefoot("migrate", env={"DATABASE_URL": guest}))
        finally:
            connection.execute("drop role guest")
    assert "permission denied" in said
    assert str(name) in said


# Settings.


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("SUREFOOT_LEASE_S", "abc", "SUREFOOT_LEASE_S='abc': give a number of at least 1, or unset it for 45."),
        ("SUREFOOT_LEASE_S", "0", "SUREFOOT_LEASE_S='0': give a number of at least 1, or unset it for 45."),
        ("SUREFOOT_RUNS_AT_ONCE", "1.5", "SUREFOOT_RUNS_AT_ONCE='1.5': give a whole number of at least 1"),
        ("SUREFOOT_SMTP_URL", "http://x", "SUREFOOT_SMTP_URL is not the URL of a mail server: write smtp://host:port"),
        (
            "SUREFOOT_SMTP_URL",
            "smtp://h:mail",
            "SUREFOOT_SMTP_URL is not the URL of a mail server: write smtp://host:port",
        ),
        ("SUREFOOT_SMTP_URL", "smtp://", "SUREFOOT_SMTP_URL is not the URL of a mail server: write smtp://host:port"),
        ("SUREFOOT_AGENTS", "nonsense", "SUREFOOT_AGENTS names 'nonsense': write module:ATTRIBUTE."),
    ],
)
def test_a_setting_that_cannot_be_used_is_named(name: str, value: str, words: str, migrated: str) -> None:
    assert sentence(surefoot("worker", env={"DATABASE_URL": migrated, name: value})).startswith(words)


# The model. Nothing is asked of it here: what is missing is seen when the agent is loaded, before a run exists.

ASIDE = "correct it, or unset it for the scripted model."


@pytest.mark.parametrize("name", ["nonsense", "nobody:gpt-5"])
def test_a_model_nobody_knows_is_refused_before_a_run_starts(name: str, nothing_started: str) -> None:
    said = sentence(surefoot(*RUN, env={"DATABASE_URL": nothing_started, "SUREFOOT_MODEL": name}))
    assert said.startswith("Agent monthly_report ")
    assert f"SUREFOOT_MODEL={name} cannot be used (Unknown model: {name}" in said
    assert said.endswith(ASIDE)


@pytest.mark.parametrize("provider", ["anthropic", "openai"])
def test_a_provider_whose_package_or_key_is_missing_is_refused_before_a_run_starts(
    provider: str, nothing_started: str
) -> None:
    name = f"{provider}:some-model"
    said = sentence(surefoot(*RUN, env={"DATABASE_URL": nothing_started, "SUREFOOT_MODEL": name}))
    if find_spec(provider) is None:
        missing = f"SUREFOOT_MODEL={name} needs a package that is missing: install surefoot[{provider}], or unset"
        assert said.endswith(f"{missing} SUREFOOT_MODEL.")
    else:
        assert f"{provider.upper()}_API_KEY" in said
        assert said.endswith(ASIDE)


def test_a_key_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """As every provider of pydantic-ai says it; also where no provider's package is installed."""

    def infer(name: str) -> None:
        raise missing_api_key_error("Set the `OPENAI_API_KEY` environment variable")

    monkeypatch.setattr("steps.models.infer_model", infer)
    monkeypatch.setenv("SUREFOOT_MODEL", "openai:gpt-5")
    with pytest.raises(InvalidInput, match="OPENAI_API_KEY") as error:
        model_from_env(lambda messages, info: pytest.fail("asked"))
    assert str(error.value).endswith(ASIDE)


def test_an_agent_that_cannot_be_loaded_stops_also_a_worker(migrated: str) -> None:
    said = sentence(surefoot("worker", env={"DATABASE_URL": migrated, "SUREFOOT_AGENTS": "no.such:agent"}))
    assert (
        said
        == "Agent no.such:agent failed to load: ModuleNotFoundError: No module named 'no'. Correct it and start again."
    )
    assert rows(migrated, "select count(*) as n from surefoot.workers where state = 'live'") == [{"n": 0}]
