"""A home for demos that every user can enter, so that root's embedded Postgres can live in it."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="surefoot-demo-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)
