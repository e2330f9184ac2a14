"""Every option of Apache Paimon 2.0 has a status, and what is refused is refused by its name."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from freshet import Catalog, Table
from freshet.storage.exceptions import InvalidRequestError, UnsupportedFeatureError
from freshet.storage.options.core import CoreOptions, check_access
from freshet.storage.options.declared.unsupported import FORMAT_KEYS
from freshet.storage.options.option import Access
from tests.kit.option_statuses import SECTIONS, status_of

KEYS = [key for _, keys in SECTIONS for key in keys]


def without_status(keys: list[str]) -> list[str]:
    return [key for key in keys if status_of(key) is None]


def test_every_option_has_a_status() -> None:
    assert len(KEYS) > 450
    assert without_status([*KEYS, "an-option.that-nobody-knows"]) == ["an-option.that-nobody-knows"]


def test_no_option_is_listed_twice() -> None:
    assert {key: count for key, count in Counter(KEYS).items() if count > 1} == {}


def test_what_is_tolerated_is_an_option_of_the_format() -> None:
    assert FORMAT_KEYS - {*KEYS} == set()


@pytest.mark.parametrize(
    ("key", "status"),
    [
        ("merge-engine", "supported"),
        ("file.format", "supported in part"),
        ("pk-clustering-override", "refused"),
        ("blob-field", "refused"),
        ("row-tracking.enabled", "read only"),
        ("data-file.external-paths", "read only"),
        ("tag.automatic-creation", "supported"),
        ("partition.expiration-time", "supported"),
        ("primary-key", "an argument"),
        ("fields.<column>.sequence-group", "supported"),
        ("sink.parallelism", "ignored"),
    ],
)
def test_statuses(key: str, status: str) -> None:
    found = status_of(key)
    assert found is not None
    assert found.status == status


TEXTS = ("true", "x", "a:b", "snapshot")
REFUSES = {
    "refused": {*Access},
    "read only": {Access.WRITE, Access.CREATE},
    "not at creation": {Access.CREATE},
    "supported": set[Access](),
    "ignored": set[Access](),
    "ignored, with a warning": set[Access](),
}


def test_the_status_is_what_the_code_does() -> None:
    """A refused option refuses with some value; one that is supported or ignored with none."""
    wrong = {}
    for key in (key for key in KEYS if "<" not in key):
        found = status_of(key)
        refused = {
            access for access in Access for text in ("true", "x", "a:b", "snapshot") if refuses(key, text, access)
        }
        if found is not None and refused != REFUSES.get(found.status, refused):
            wrong[key] = (found.status, refused)
    assert wrong == {}


def refuses(key: str, text: str, access: Access) -> bool:
    """Whether the access is refused with this option, by its name."""
    try:
        options = CoreOptions.parse({"bucket": "1", key: text}, has_primary_key=True, strict=False)
        check_access(options, access, "db.t")
    except UnsupportedFeatureError as error:
        return f"{key}=" in str(error)
    except InvalidRequestError:
        pass
    return False


REFUSED_TYPES = {
    "VARIANT": '"VARIANT"',
    "BLOB": '"BLOB"',
    "MULTISET<INT>": '{"type": "MULTISET", "element": "INT"}',
    "VECTOR<FLOAT, 3>": '{"type": "VECTOR", "element": "FLOAT", "length": 3}',
}


@pytest.mark.parametrize("kind", REFUSED_TYPES)
def test_columns_that_are_not_supported_are_refused_by_their_type(tmp_path: Path, kind: str) -> None:
    """When created, and when a table is read that has one: in its schema, as an element of an array, too."""
    catalog = Catalog(str(tmp_path))
    name = kind.partition("<")[0]
    for given in (kind, f"{kind} NOT NULL", f"ARRAY<{kind}>", f"ROW<a INT, b {kind}>"):
        with pytest.raises(UnsupportedFeatureError, match=f"column type {name} is not supported"):
            catalog.create_table("db.t", schema={"id": "INT", "v": given})
    table = catalog.create_table("db.t", schema={"id": "INT", "v": "STRING"})
    schema = Path(table.location, "schema", "schema-0")
    written = schema.read_text()
    for stored in (REFUSED_TYPES[kind], f'{{"type": "ARRAY", "element": {REFUSED_TYPES[kind]}}}'):
        schema.write_text(written.replace('"STRING"', stored))
        with pytest.raises(UnsupportedFeatureError, match=f"column type {name} is not supported"):
            Table.open(table.location)
