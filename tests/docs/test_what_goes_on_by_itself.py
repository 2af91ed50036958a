"""The table of interruptions: each row says who is needed, and names tests that there are."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
WHO = ("by itself", "after a look", "a person")
ROW = re.compile(r"^\| (?P<cause>.+?) \| (?P<who>[^|]+?) \| (?P<what>.+?) \| (?P<tests>.+?) \|$", re.MULTILINE)


def table() -> list[dict[str, str]]:
    page = (ROOT / "app/README.md").read_text()
    section = page.split("## What goes on by itself\n")[1].split("\n## ")[0]
    rows = [found.groupdict() for found in ROW.finditer(section)]
    return [row for row in rows if row["cause"] not in ("interrupted by", "---")]


def test_each_row_says_who_is_needed_and_names_tests_that_there_are() -> None:
    rows = table()
    assert len(rows) > 15
    for row in rows:
        assert row["who"] in WHO, row["cause"]
        named = re.findall(r"`([\w/]+\.py)` (test_\w+)", row["tests"])
        assert named, f"no test is named for: {row['cause']}"
        for file, name in named:
            path = ROOT / "tests" / file
            assert path.exists(), f"{row['cause']}: there is no {file}"
            there = {
                node.name
                for node in ast.walk(ast.parse(path.read_text()))
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            }
            assert name in there, f"{row['cause']}: {file} has no {name}"


def test_every_kind_of_answer_is_there() -> None:
    assert {row["who"] for row in table()} == set(WHO)
