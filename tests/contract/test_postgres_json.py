"""What Postgres makes of JSON: the canonical text is what it gives back, so what was hashed is found again."""

import json

import psycopg
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.test_canonical import JSON
from transactions import canonical_json, is_storable


def given_back(connection: psycopg.Connection, texts: list[str]) -> list[str]:
    rows = connection.execute(
        "select t::jsonb::text from unnest(%s::text[]) with ordinality as v(t, n) order by n", [texts]
    )
    return [text for (text,) in rows]


def test_the_canonical_text_is_given_back(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:

        @given(st.lists(JSON, min_size=1, max_size=30))
        @settings(max_examples=60, deadline=None)
        def is_given_back(values: list[object]) -> None:
            texts = [canonical_json(value) for value in values if is_storable(value)]
            assert [canonical_json(json.loads(text)) for text in given_back(connection, texts)] == texts

        is_given_back()


def test_control_what_python_writes_is_not(database_url: str) -> None:
    with psycopg.connect(database_url) as connection:
        for value in (1e18, -0.0):
            [back] = given_back(connection, [json.dumps(value)])
            assert json.dumps(json.loads(back)) != json.dumps(value)
