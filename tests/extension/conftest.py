"""The project and a distribution that is not part of it, built and installed into one folder."""

import os
import subprocess
import sys
from collections.abc import Sequence
from importlib.metadata import distributions
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@pytest.fixture(scope="session")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Sequence[str]:
    """The wheels of both distributions.

    Building needs nothing but hatchling, which making the environment has fetched.
    """
    # Built anew each time: an installation from the folder would take a wheel of earlier sources from a cache.
    return [built(source, tmp_path_factory.mktemp("wheels")) for source in (ROOT, HERE)]


@pytest.fixture(scope="session")
def installed(wheels: Sequence[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both, as `pip install surefoot shop-agent` would leave them; no link to the sources."""
    target = tmp_path_factory.mktemp("installed")
    uv("pip", "install", "--no-deps", "--python", sys.executable, "--target", str(target), *wheels)
    return target


def built(source: Path, folder: Path) -> str:
    """The wheel of a project, made in `folder`."""
    uv("build", "--wheel", "--out-dir", str(folder), str(source))
    [wheel] = folder.glob("*.whl")
    return str(wheel)


@pytest.fixture(scope="session")
def own_python(wheels: Sequence[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of a virtual environment with both, pytest, and what they need in the versions that are here."""
    folder = tmp_path_factory.mktemp("environment")
    here = sorted(f"{one.name}=={one.version}" for one in distributions())
    (folder / "constraints.txt").write_text("\n".join(name for name in here if not name.startswith("surefoot=")))
    uv("venv", "--python", sys.executable, str(folder / "venv"))
    python = folder / "venv" / "bin" / "python"
    install = ("pip", "install", "--no-config", "--python", str(python))  # what is not imported is not compiled
    uv(*install, "--constraints", str(folder / "constraints.txt"), "pytest", *wheels)
    return python


def uv(*arguments: str) -> None:
    """Run uv without the network, and only if that fails with it."""
    command = [os.environ.get("UV", "uv"), *arguments]
    if subprocess.run([*command, "--offline"], capture_output=True, check=False).returncode:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
