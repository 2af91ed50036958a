"""What a refusal looks like: exit code 1 and one sentence that says what to do."""

from typing import Any

import psycopg
from psycopg.rows import dict_row

from tests.forked import Ended


def sentence(ended: Ended) -> str:
    """The one sentence a command refused with. Fails for anything more, above all for a traceback."""
    assert "Traceback" not in ended.stderr + ended.stdout, ended.stderr + ended.stdout
    assert ended.returncode == 1, ended
    assert ended.stdout == ""
    lines = ended.stderr.splitlines()
    assert len(lines) == 1, ended.stderr
    assert lines[0].startswith("surefoot: "), lines[0]
    said = lines[0].removeprefix("surefoot: ")
    assert said.endswith("."), said
    assert not said.endswith(".."), said
    return said


def rows(url: str, query: str, *parameters: object) -> list[dict[str, Any]]:
    with psycopg.connect(url, autocommit=True, row_factory=dict_row) as connection:
        return connection.execute(query.encode(), parameters).fetchall()
