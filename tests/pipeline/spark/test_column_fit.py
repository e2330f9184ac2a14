"""How the types of a frame fit those of a table, without a session."""

from __future__ import annotations

import pytest

from freshet.pipeline.exceptions import InvalidRequestError
from freshet.pipeline.spark.arrow_bridge import spark_type
from freshet.pipeline.spark.column_fit import Fit, fit_of
from freshet.storage.model.data_type import DataField
from freshet.storage.model.sql_type import parse_sql_type


@pytest.mark.parametrize(
    ("frame", "table", "fit"),
    [
        ("INT", "BIGINT", Fit.WIDENS),
        ("ARRAY<INT>", "ARRAY<BIGINT>", Fit.WIDENS),
        ("MAP<STRING, FLOAT>", "MAP<STRING, DOUBLE>", Fit.WIDENS),
        ("ROW<a INT, b STRING>", "ROW<a BIGINT, b STRING>", Fit.WIDENS),
        ("ROW<a INT, b ARRAY<ROW<c SMALLINT>>>", "ROW<a INT, b ARRAY<ROW<c INT>>>", Fit.WIDENS),
        ("ROW<a DECIMAL(5, 2)>", "ROW<a DECIMAL(9, 4)>", Fit.WIDENS),
        ("ROW<a BIGINT>", "ROW<a BIGINT>", Fit.SAME),
        ("ROW<a BIGINT>", "ROW<a INT>", None),
        ("ROW<b INT>", "ROW<a BIGINT>", None),
        ("ROW<a INT>", "ROW<a BIGINT, b INT>", None),
        ("ARRAY<BIGINT>", "ARRAY<INT>", None),
        ("ROW<a INT>", "ROW<a BIGINT NOT NULL>", None),
        ("ROW<a INT NOT NULL>", "ROW<a BIGINT NOT NULL>", Fit.WIDENS),
        ("ARRAY<INT>", "ARRAY<BIGINT NOT NULL>", None),
    ],
)
def test_types_widen_inside(frame: str, table: str, fit: Fit | None) -> None:
    found, field = spark_type(parse_sql_type(frame)), DataField(0, "c", parse_sql_type(table))
    if fit is not None:
        assert fit_of(found, field) is fit
    else:
        with pytest.raises(InvalidRequestError, match="column 'c' of the frame is"):
            fit_of(found, field)
