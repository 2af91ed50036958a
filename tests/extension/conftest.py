"""The project and a distribution that is not part of it, built and installed into one folder."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both distributions, as `pip install surefoot shop-agent` would leave them; no link to the sources.

    Building needs nothing but hatchling, which making the environment has fetched.
    """
    folder = tmp_path_factory.mktemp("installed")
    wheels, target = folder / "wheels", folder / "site"
    for source in (ROOT, HERE):
        # Built anew each time: an installation from the folder would take a wheel of earlier sources from a cache.
        uv("build", "--wheel", "--out-dir", str(wheels), str(source))
    built = sorted(str(path) for path in wheels.glob("*.whl"))
    uv("pip", "install", "--no-deps", "--python", sys.executable, "--target", str(target), *built)
    return target


def uv(*arguments: str) -> None:
    """Run uv without the network, and only if that fails with it."""
    command = [os.environ.get("UV", "uv"), *arguments]
    if subprocess.run([*command, "--offline"], capture_output=True, check=False).returncode:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
