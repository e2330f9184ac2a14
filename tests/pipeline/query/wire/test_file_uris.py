"""Names of files as Spark writes them into logs and rows."""

from __future__ import annotations

import pytest

from freshet.pipeline.query.wire.file_uris import place_of, topic_of, uri_of

URIS = {
    "/in/a b.json": "file:///in/a%20b.json",
    "/in/a%20b.json": "file:///in/a%2520b.json",
    "/in/ü日本😀\u200b.json": "file:///in/ü日本😀\u200b.json",
    "/in/\u00a0\u2003\x7f\t\n": "file:///in/%C2%A0%E2%80%83%7F%09%0A",
    "/in/a+b;a,c=d&e@f!g$h(i)~:*'": "file:///in/a+b;a,c=d&e@f!g$h(i)~:*'",
    '/in/#?[x]{x}\\"^|`<>': "file:///in/%23%3F%5Bx%5D%7Bx%7D%5C%22%5E%7C%60%3C%3E",
    "s3a://bucket/a b/ü#": "s3a://bucket/a%20b/ü%23",
    "/in/\udcff": "file:///in/%FF",
}
"""What Spark 4.2.1 writes; of names that are no UTF-8 it makes something else, and does not find the file."""


@pytest.mark.parametrize(("place", "uri"), URIS.items())
def test_uris_are_those_of_spark_and_lead_back(place: str, uri: str) -> None:
    assert uri_of(place) == uri
    assert place_of(uri) == place


def test_a_topic_has_one_slash() -> None:
    assert topic_of("file:///in/a%20b") == "file:/in/a%20b"
    assert topic_of("s3a://bucket/a%20b") == "s3a://bucket/a%20b"
    assert place_of("file:/in/a%20b") == "/in/a b"
