"""The versions these contracts were read from, and the configuration file that DBOS' own tools read."""

import inspect
import json
import re
import tomllib
from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml
from dbos import _dbos, _sys_db
from dbos._dbos_config import load_config, process_config
from typer.main import get_command

from app.cli import main

ROOT = Path(__file__).parents[2]
PINNED = {"dbos": "3.4.0", "pydantic-ai-slim": "2.68.0"}


@pytest.mark.parametrize("name", PINNED)
def test_the_pin_is_exact_everywhere_and_it_is_what_is_installed(name: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [line for lines in project["optional-dependencies"].values() for line in lines]
    named = [line for line in (*project["dependencies"], *extras) if re.match(rf"{re.escape(name)}(?![\w-])", line)]
    assert named
    assert {line.rpartition("==")[2] for line in named} == {PINNED[name]}
    assert version(name) == PINNED[name]


def faults(value: object, schema: dict[str, Any], where: str = "$") -> list[str]:
    """What is wrong with a value, for the few words of JSON Schema that DBOS' own schema uses."""
    types = {"object": dict, "array": list, "string": str, "null": type(None)}
    unknown = schema.keys() - {
        "$schema", "title", "description", "type", "properties", "additionalProperties", "items", "enum",
    }  # fmt: skip
    assert unknown == set(), "the schema says something this check does not read"
    named = schema.get("type", [])
    allowed = [named] if isinstance(named, str) else named
    if allowed and not isinstance(value, tuple(types[one] for one in allowed)):
        return [f"{where}: not {allowed}"]
    if "enum" in schema and value not in schema["enum"]:
        return [f"{where}: not one of {schema['enum']}"]
    found: list[str] = []
    if isinstance(value, dict):
        for key, item in value.items():
            if key in schema.get("properties", {}):
                found += faults(item, schema["properties"][key], f"{where}.{key}")
            elif schema.get("additionalProperties") is False:
                found.append(f"{where}.{key}: not known")
    if isinstance(value, list) and "items" in schema:
        found += [fault for item in value for fault in faults(item, schema["items"], f"{where}[]")]
    return found


@pytest.fixture
def schema() -> dict[str, Any]:
    return json.loads(files("dbos").joinpath("dbos-config.schema.json").read_text())


def test_the_configuration_file_is_what_the_schema_of_dbos_allows(schema: dict[str, Any]) -> None:
    assert faults(yaml.safe_load((ROOT / "dbos-config.yaml").read_text()), schema) == []


@pytest.mark.parametrize(
    "wrong",
    [{"name": 3}, {"nmae": "surefoot"}, {"language": "go"}, {"runtimeConfig": {"start": "surefoot serve"}}, []],
    ids=str,
)
def test_the_schema_refuses(schema: dict[str, Any], wrong: object) -> None:
    assert faults(wrong, schema) != []


def test_dbos_loads_the_configuration_file_and_its_commands_exist() -> None:
    config = process_config(data=load_config(str(ROOT / "dbos-config.yaml")))
    assert config["name"] == "surefoot"
    assert config["runtimeConfig"]["start"] == ["surefoot serve"]
    assert config["database"]["migrate"] == ["surefoot migrate"]
    commands = get_command(main).commands  # type: ignore[attr-defined]
    for line in (*config["runtimeConfig"]["start"], *config["database"]["migrate"]):
        program, command = line.split()
        assert program == "surefoot"
        assert command in commands


def test_the_engine_can_be_told_not_to_wait_for_its_database_for_ever() -> None:
    """`app.engine.abandon` says so to an instance whose worker is dead; what it sets is what DBOS reads."""
    assert '"_retry_connection_errors"' in inspect.getsource(_sys_db.db_retry)
    destroy = inspect.getsource(_dbos.DBOS._destroy)
    assert "_sys_db_field" in destroy
    assert "in self._background_threads" in destroy
    assert hasattr(_dbos, "_dbos_global_instance")
