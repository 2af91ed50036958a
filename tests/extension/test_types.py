"""pyright strict over an agent that uses what is installed: right as it is, and each wrong declaration is one error."""

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.extension.conftest import HERE

WRONG = sorted(path.name for path in (HERE / "wrong").glob("*.py"))


@pytest.fixture(scope="module")
def errors(installed: Path, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Sequence[tuple[int, str]]]:
    """The errors of each file by its name: line (from 1) and rule."""
    project = tmp_path_factory.mktemp("typed")
    for folder in ("shop_agent", "wrong"):
        shutil.copytree(HERE / folder, project / folder, ignore=shutil.ignore_patterns("__pycache__"))
    (project / "pyrightconfig.json").write_text(
        json.dumps({
            "include": ["shop_agent", "wrong"],
            "typeCheckingMode": "strict",
            "pythonVersion": "3.11",
            "extraPaths": [str(installed)],
        })
    )  # fmt: skip
    pyright = [Path(sys.executable).parent / "pyright", "--outputjson", "--pythonpath", sys.executable]
    report = json.loads(
        subprocess.run(pyright, cwd=project, capture_output=True, text=True, check=False).stdout,
    )
    assert report["summary"]["filesAnalyzed"] == len(list(project.rglob("*.py")))
    found: dict[str, list[tuple[int, str]]] = {}
    for one in report["generalDiagnostics"]:
        name = str(Path(one["file"]).relative_to(project))
        found.setdefault(name, []).append((one["range"]["start"]["line"] + 1, one["rule"]))
    return found


def test_the_agent_itself_has_no_error(errors: Mapping[str, Sequence[tuple[int, str]]]) -> None:
    assert {name: found for name, found in errors.items() if name.startswith("shop_agent")} == {}


def test_there_is_a_wrong_kind_a_wrong_verifier_and_a_wrong_receipt() -> None:
    assert {"kind.py", "verifier.py", "receipt.py"} <= set(WRONG)


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_declaration_is_one_error_in_its_line(
    name: str, errors: Mapping[str, Sequence[tuple[int, str]]]
) -> None:
    lines = (HERE / "wrong" / name).read_text().splitlines()
    [line] = [number for number, text in enumerate(lines, start=1) if text.endswith("# wrong")]
    assert errors[f"wrong/{name}"] == [(line, "reportArgumentType")]
