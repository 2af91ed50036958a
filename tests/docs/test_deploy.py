"""The image definition and the manifest, as far as they can be checked without running either."""

import re
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from fastapi import FastAPI
from fastapi.routing import APIRoute

from app import Surefoot
from app.cli import main
from app.settings import Settings
from app.web.api import build_api, build_health

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "app/deploy"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SETTINGS = (ROOT / "app/settings.py").read_text()
DOCUMENTS = list(yaml.safe_load_all((FOLDER / "kubernetes.yaml").read_text()))
PARTS = {document["metadata"]["labels"]["part"]: document for document in DOCUMENTS if document["kind"] != "Service"}
DOCKERFILE = (FOLDER / "Dockerfile").read_text()


def pod(part: str) -> dict[str, Any]:
    return PARTS[part]["spec"]["template"]["spec"]


def container(part: str) -> dict[str, Any]:
    [only] = pod(part)["containers"]
    return only


def parsed(arguments: list[str]) -> dict[str, Any]:
    """What the command line makes of these words. Fails as it would."""
    group: Any = typer.main.get_command(main)
    return group.commands[arguments[0]].make_context(arguments[0], arguments[1:]).params


def probes(part: str) -> Iterator[dict[str, Any]]:
    return (given["httpGet"] for name, given in container(part).items() if name.endswith("Probe"))


each_part = pytest.mark.parametrize("part", PARTS)


def test_there_is_a_job_an_api_and_workers_and_nothing_that_keeps_anything() -> None:
    assert {part: document["kind"] for part, document in PARTS.items()} == {
        "migrate": "Job",
        "api": "Deployment",
        "worker": "Deployment",
    }
    assert "volume" not in (FOLDER / "kubernetes.yaml").read_text().replace("no volume", "").lower()


def test_each_command_exists_and_says_what_it_is_for() -> None:
    assert {part: container(part)["args"][0] for part in PARTS} == {
        "migrate": "migrate",
        "api": "serve",
        "worker": "worker",
    }
    assert parsed(container("api")["args"])["worker"] is False
    logins = parsed(container("migrate")["args"])
    assert logins["api_login"] != logins["worker_login"]
    assert re.search(r'^CMD \["serve", "--no-worker", .*\]$', DOCKERFILE, re.MULTILINE)


def test_a_command_that_does_not_exist_would_be_seen() -> None:
    with pytest.raises(Exception, match="No such option: --no-workers"):
        parsed(["serve", "--no-workers"])


@each_part
def test_each_setting_is_one_and_each_login_is_its_own(part: str) -> None:
    given = {one["name"]: one for one in container(part)["env"]}
    assert all(f'"{name}"' in SETTINGS for name in given)
    Settings.from_env({name: one["value"] for name, one in given.items() if "value" in one})
    key = given["DATABASE_URL"]["valueFrom"]["secretKeyRef"]["key"]
    assert key == {"migrate": "owner-url", "api": "api-url", "worker": "worker-url"}[part]
    assert f"--from-literal={key}=" in (FOLDER / "kubernetes.yaml").read_text()


@pytest.mark.parametrize(
    ("part", "option", "build"), [("api", "port", build_api), ("worker", "health_port", build_health)]
)
def test_the_probes_ask_for_what_is_answered_on_the_port(
    part: str, option: str, build: Callable[[Surefoot], FastAPI]
) -> None:
    served = build(Surefoot("postgresql://nobody@localhost/x", []))
    routes = {route.path for route in served.routes if isinstance(route, APIRoute)}
    [port] = container(part)["ports"]
    assert parsed(container(part)["args"])[option] == port["containerPort"]
    asked = list(probes(part))
    assert len(asked) == 3
    for probe in asked:
        assert probe["path"] in routes
        assert probe["port"] == port["name"]
    assert {"startupProbe", "livenessProbe", "readinessProbe"} <= set(container(part))
    assert container(part)["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert container(part)["livenessProbe"]["httpGet"]["path"] == "/healthz"


def test_the_service_leads_to_the_api_and_to_no_worker() -> None:
    [port] = container("api")["ports"]
    assert f"EXPOSE {port['containerPort']}" in DOCKERFILE
    [service] = [document for document in DOCUMENTS if document["kind"] == "Service"]
    assert service["spec"]["ports"][0]["targetPort"] == port["name"]
    leads_to = {
        part
        for part, document in PARTS.items()
        if service["spec"]["selector"].items() <= document["spec"]["template"]["metadata"]["labels"].items()
    }
    assert leads_to == {"api"}


@pytest.mark.parametrize("part", ["api", "worker"])
def test_there_is_time_to_stop(part: str) -> None:
    """preStop and drain are over before the pod is killed."""
    env = {one["name"]: one["value"] for one in container(part)["env"] if "value" in one}
    before = container(part).get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", ["sleep", "0"])
    assert before[0] == "sleep"
    drain_s = Settings.from_env(env).drain_s if part == "worker" else 5.0
    assert pod(part)["terminationGracePeriodSeconds"] >= float(before[1]) + drain_s + 10
    assert (part == "api") == ("lifecycle" in container(part))


@each_part
def test_nobody_is_root_and_selectors_find_their_pods(part: str) -> None:
    spec, inside = pod(part), container(part)
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert f"USER {spec['securityContext']['runAsUser']}:" in DOCKERFILE
    assert inside["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    labels = PARTS[part]["spec"]["template"]["metadata"]["labels"]
    if PARTS[part]["kind"] == "Deployment":
        assert PARTS[part]["spec"]["selector"]["matchLabels"] == labels


def test_the_image_is_the_wheel_and_not_the_tree() -> None:
    _, build, final = DOCKERFILE.split("\nFROM ")
    for source in re.findall(r"^COPY (.+) \S+$", build, re.MULTILINE):
        assert all((ROOT / name).exists() for name in source.split())
    packages = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert all(f"COPY {package} {package}\n" in build for package in packages["packages"])
    assert "COPY" not in final
    assert 'ENTRYPOINT ["surefoot"]' in final
    assert "surefoot" in PROJECT["scripts"]
    [extras] = re.findall(r"\.whl\)\[([a-z0-9,]+)\]", final)
    assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"])
    [needed] = re.findall(r">=3\.(\d+)", PROJECT["requires-python"])
    assert all(int(minor) >= int(needed) for minor in re.findall(r"python:3\.(\d+)-slim", DOCKERFILE))
