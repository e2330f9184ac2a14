"""Options of automatic tags that do not go together are refused where they are given, and nowhere else."""

from __future__ import annotations

from pathlib import Path

import pytest

from freshet import Catalog, InvalidRequestError, SetOption, Table

SCHEMA = {"id": "BIGINT"}


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"tag.creation-delay": "24 h"}, "tag.creation-delay"),
        ({"tag.creation-delay": "1 h", "tag.creation-period": "hourly"}, "tag.creation-delay"),
        ({"tag.creation-period-duration": "90 s"}, "tag.creation-period-duration"),
        ({"tag.creation-period-duration": "0"}, "tag.creation-period-duration"),
        ({"tag.creation-period": "weekly"}, "tag.creation-period"),
        ({"tag.automatic-creation": "always"}, "tag.automatic-creation"),
        ({"tag.num-retained-max": "0"}, "tag.num-retained-max"),
        ({"tag.default-time-retained": "0"}, "tag.default-time-retained"),
        ({"sink.process-time-zone": "Atlantis"}, "sink.process-time-zone"),
        ({"sink.watermark-time-zone": "GMT+30"}, "sink.watermark-time-zone"),
    ],
)
def test_refused_when_created_and_when_altered(tmp_path: Path, options: dict[str, str], option: str) -> None:
    catalog = Catalog(tmp_path)
    with pytest.raises(InvalidRequestError) as caught:
        catalog.create_table("db.t", schema=SCHEMA, options=options)
    assert caught.value.option == option
    assert option in str(caught.value)
    table = catalog.create_table("db.t", schema=SCHEMA)
    with pytest.raises(InvalidRequestError) as caught:
        table.alter(*(SetOption(key, value) for key, value in options.items()))
    assert caught.value.option == option
    assert catalog.table("db.t").schema.id == 0


def test_what_goes_together_is_taken(tmp_path: Path) -> None:
    options = {
        "tag.automatic-creation": "process-time",
        "tag.creation-period-duration": "90 min",
        "tag.creation-delay": "89 min",
        "sink.process-time-zone": "UTC+05:30",
    }
    table = Catalog(tmp_path).create_table("db.t", schema=SCHEMA, options=options)
    assert table.options.tag_period_ms == 90 * 60_000


def test_a_table_of_another_program_is_read_whatever_it_has(tmp_path: Path) -> None:
    table = Catalog(tmp_path).create_table("db.t", schema=SCHEMA, options={"sink.process-time-zone": "UTC"})
    schema = Path(table.location, "schema", "schema-0")
    schema.write_text(schema.read_text().replace('"UTC"', '"Atlantis", "tag.creation-delay": "99 d"'))
    found = Table.open(table.location)
    assert found.scan().to_arrow().num_rows == 0
    assert found.alter(SetOption("write-only", "true")).schema.id == 1
