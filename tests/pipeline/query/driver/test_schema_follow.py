"""What a stream says of a table whose columns change under it."""

from __future__ import annotations

from pathlib import Path

import pytest

from freshet import AddColumn, Catalog, DropColumn
from freshet.pipeline.exceptions import InvalidRequestError
from freshet.pipeline.query.driver.schema_follow import refuse_other_columns


def test_a_column_that_add_has_added_needs_no_change_of_the_file(tmp_path: Path) -> None:
    """The message asked for a change of the pipeline file, which does not name such a column."""
    table = Catalog(tmp_path).create_table("s.t", schema={"id": "BIGINT", "city": "STRING"})
    refuse_other_columns(table.schema, table.alter(AddColumn("n", "INT")).schema, "s.t")
    dropped = table.alter(DropColumn("city")).schema
    with pytest.raises(InvalidRequestError, match=r"no column city any more.*where it names.*: add.*is added again"):
        refuse_other_columns(table.schema, dropped, "s.t")
