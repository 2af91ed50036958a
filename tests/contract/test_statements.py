"""Every named statement is one that the migrated database can plan: each table, column and function in it exists."""

import re

import psycopg
import pytest

from tests.static.sources import ROOT
from transactions.statements import load

NAMED = [
    (path.stem, name) for path in sorted((ROOT / "transactions" / "sql").glob("*.sql")) for name in load(path.stem)
]


def prepare(url: str, sql: str) -> None:
    """Have the server parse and type a statement whose parameters are written `:name`."""
    names = list(dict.fromkeys(re.findall(r"(?<!:):(\w+)", sql)))
    numbered = re.sub(r"(?<!:):(\w+)", lambda match: f"${names.index(match[1]) + 1}", sql)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"prepare checked as {numbered}".encode())


@pytest.fixture(scope="module")
def url(clone) -> object:
    with clone("statements") as url:
        yield url


@pytest.mark.parametrize(("table", "name"), NAMED, ids=lambda value: value)
def test_a_named_statement_can_be_planned(url: str, table: str, name: str) -> None:
    prepare(url, str(load(table)[name]))


def test_a_statement_on_a_column_that_is_gone_cannot(url: str) -> None:
    with pytest.raises(psycopg.errors.UndefinedColumn):
        prepare(url, "select inputs_hash from dbos.workflow_status where workflow_uuid = :id")
