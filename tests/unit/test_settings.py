"""Settings from the environment: each has a default, a unit and a lower bound, and one sentence when it is wrong."""

import dataclasses
from pathlib import Path

import pytest

from app.settings import Settings
from transactions import InvalidInput
from transactions.retention import FOREVER, Keep

NUMBERS = {
    "SUREFOOT_LEASE_S": ("lease_s", 1),
    "SUREFOOT_STILL_S": ("still_s", 1),
    "SUREFOOT_WATCHDOG_S": ("watchdog_s", 0.05),
    "SUREFOOT_QUEUE_POLL_S": ("queue_poll_s", 0.05),
    "SUREFOOT_RELAY_POLL_S": ("relay_poll_s", 0.05),
    "SUREFOOT_RUNS_AT_ONCE": ("runs_at_once", 1),
    "SUREFOOT_STALLS_MAX": ("stalls_max", 1),
    "SUREFOOT_DRAIN_S": ("drain_s", 0),
    "SUREFOOT_ARTIFACTS_SWEEP_S": ("artifacts_sweep_s", 1),
    "SUREFOOT_VERSION_GRACE_S": ("version_grace_s", 0.1),
    "SUREFOOT_RETENTION_S": ("retention_s", 1),
}

WEBHOOK = {
    "SUREFOOT_WEBHOOK_URL": "https://hooks.example.org/in?token=hunter22",
    "SUREFOOT_WEBHOOK_SECRET": "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    "SUREFOOT_WEBHOOK_TOPICS": "run.finished, report.published run.finished",
    "SUREFOOT_WEBHOOK_ALLOW_PRIVATE": "1",
}


def test_an_empty_environment_gives_the_defaults() -> None:
    assert Settings.from_env({}) == Settings()
    assert Settings.from_env(dict.fromkeys([*NUMBERS, "DATABASE_URL", "SUREFOOT_HOME"], "")) == Settings()


def test_every_setting_can_be_said() -> None:
    said = Settings.from_env({
        "DATABASE_URL": "postgresql://db/x",
        "SUREFOOT_HOME": "/var/lib/x",
        "SUREFOOT_AGENTS": "shop:agent",
        "SUREFOOT_CONSUMERS": "shop:consumers",
        "SUREFOOT_SMTP_URL": "smtp://127.0.0.1:25",
        "SUREFOOT_MAIL_FROM": "a@example.org",
        "SUREFOOT_ARTIFACTS": "file:///srv/artifacts",
        "SUREFOOT_VERSION": "3f2a9c1",
        "SUREFOOT_KEEP_RUNS_S": "7776000",
        **WEBHOOK,
        **dict.fromkeys(NUMBERS, "7"),
    })  # fmt: skip
    assert said.home == Path("/var/lib/x")
    assert said.database_url == "postgresql://db/x"
    assert {getattr(said, name) for name, _ in NUMBERS.values()} == {7}
    defaults = Settings()
    unsaid = [f.name for f in dataclasses.fields(Settings) if getattr(said, f.name) == getattr(defaults, f.name)]
    assert unsaid == [], "a field that the environment cannot set"


def test_every_kind_has_an_age_at_which_it_goes_or_is_kept_for_ever() -> None:
    names = {field.name: f"SUREFOOT_KEEP_{field.name.upper()}_S" for field in dataclasses.fields(Keep)}
    said = Settings.from_env(dict.fromkeys(names.values(), "7")).keep
    assert dataclasses.asdict(said) == {**dict.fromkeys(names, 7), "workers": 60}, "as long as a version may be away"
    assert Settings.from_env({names["engine"]: "forever"}).keep.engine == FOREVER
    for text in ("0.5", "-1", "for ever", "inf", "1e10"):
        with pytest.raises(InvalidInput, match="SUREFOOT_KEEP_RUNS_S="):
            Settings.from_env({names["runs"]: text})


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("text", ["abc", "-1", "nan", "inf", "1e999", "1,5", "1s", "0x10"])
def test_a_number_that_is_none_is_one_sentence_with_the_variables_name(name: str, text: str) -> None:
    with pytest.raises(InvalidInput) as error:
        Settings.from_env({name: text})
    assert str(error.value).startswith(
        f"{name}={text!r}: give a number of at least {NUMBERS[name][1]:g}, or unset it for "
    )


@pytest.mark.parametrize("name", ["SUREFOOT_RUNS_AT_ONCE", "SUREFOOT_STALLS_MAX"])
def test_a_count_is_whole(name: str) -> None:
    with pytest.raises(InvalidInput, match="whole number"):
        Settings.from_env({name: "2.5"})


def test_a_webhook_takes_its_topics_and_its_secret_is_not_shown() -> None:
    said = Settings.from_env(WEBHOOK)
    assert (said.webhook_topics, said.webhook_allow_private) == (("run.finished", "report.published"), True)
    assert not Settings.from_env({**WEBHOOK, "SUREFOOT_WEBHOOK_ALLOW_PRIVATE": ""}).webhook_allow_private
    assert "whsec_" not in repr(said)
    assert "hunter22" not in repr(said)


@pytest.mark.parametrize(
    ("missing", "text"),
    [
        ("SUREFOOT_WEBHOOK_URL", ""),
        ("SUREFOOT_WEBHOOK_SECRET", " "),
        ("SUREFOOT_WEBHOOK_TOPICS", ""),
        ("SUREFOOT_WEBHOOK_TOPICS", " , "),
    ],
)
def test_half_a_webhook_is_one_sentence_that_names_what_is_missing(missing: str, text: str) -> None:
    with pytest.raises(InvalidInput, match=f"^{missing} is not set: ") as error:
        Settings.from_env({**WEBHOOK, missing: text})
    assert "whsec_" not in str(error.value)


def test_what_a_webhook_may_reach_is_said_with_1() -> None:
    with pytest.raises(InvalidInput, match="SUREFOOT_WEBHOOK_ALLOW_PRIVATE='yes': write 1"):
        Settings.from_env({**WEBHOOK, "SUREFOOT_WEBHOOK_ALLOW_PRIVATE": "yes"})


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings().lease_s = 1  # type: ignore[misc]


@pytest.mark.parametrize("text", ["a b", "x" * 101, "a/b", "é", "a\n"])
def test_a_build_that_cannot_be_named_so_is_one_sentence(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"^SUREFOOT_VERSION=.+: name the build with 1 to 100 letters, digits"):
        Settings.from_env({"SUREFOOT_VERSION": text})
