"""Computed columns: what is read of a text, and the type that it gives."""

from __future__ import annotations

import pytest

from freshet.pipeline.config.computed_columns import FUNCTIONS, ComputedColumn, strftime_pattern
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.model.sql_type import parse_sql_type


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("year(created)", ("year", "created", ())),
        (" YEAR ( created ) ", ("year", "created", ())),
        ("hour(`a, b`)", ("hour", "a, b", ())),
        ("date_format(created, 'yyyy-MM-dd')", ("date_format", "created", ("yyyy-MM-dd",))),
        ("date_format(created, yyyy-MM-dd)", ("date_format", "created", ("yyyy-MM-dd",))),
        ("date_format(at, 'HH:mm, ''h''')", ("date_format", "at", ("HH:mm, 'h'",))),
        ("substring(name, 2)", ("substring", "name", ("2",))),
        ("substring(name,2 , 5)", ("substring", "name", ("2", "5"))),
        ("truncate(id, 100)", ("truncate", "id", ("100",))),
        ("Upper(name)", ("upper", "name", ())),
        ("cast('a, b', STRING)", ("cast", None, ("a, b", "STRING"))),
        ("cast(1.5, DECIMAL(5, 2))", ("cast", None, ("1.5", "DECIMAL(5, 2)"))),
        ("cast('10:30', TIME(3))", ("cast", None, ("10:30", "TIME(3)"))),
        ("cast('2024-01-01T10:00:00Z', 'TIMESTAMP(3)')", None),
        ("cast('2024-01-01 10:00:00', TIMESTAMP(6) WITH LOCAL TIME ZONE)",
         ("cast", None, ("2024-01-01 10:00:00", "TIMESTAMP(6) WITH LOCAL TIME ZONE"))),
    ],
)  # fmt: skip
def test_what_is_read(text: str, parsed: tuple[str, str | None, tuple[str, ...]] | None) -> None:
    if parsed is None:  # a time with a zone is no constant of a type without one
        with pytest.raises(ValueError, match="cast wants a constant of type TIMESTAMP"):
            ComputedColumn.parse(text)
        return
    assert ComputedColumn.parse(text) == ComputedColumn(*parsed)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("created", "wants a function of a column such as year"),
        ("year(created) + 1", "wants a function of a column"),
        ("year(created", "wants a function of a column"),
        ("", "wants a function of a column"),
        ("rand()", f"there is no function rand; known are {', '.join(FUNCTIONS)}"),
        ("year()", "year wants 1 arguments, not 0"),
        ("year(a, b)", "year wants 1 arguments, not 2"),
        ("date_format(a)", "date_format wants 2 arguments, not 1"),
        ("substring(a)", "substring wants 2 or 3 arguments, not 1"),
        ("substring(a, 1, 2, 3)", "substring wants 2 or 3 arguments, not 4"),
        ("substring(a, -1)", "substring wants whole numbers behind the column"),
        ("truncate(a, 1.5)", "truncate wants whole numbers behind the column"),
        ("truncate(a, 0)", "truncate wants a width above 0"),
        ("upper(lower(a))", "upper wants a column, not lower.a.: functions are not nested"),
        ("date_format(a, 'yy')", "date_format takes yyyy MM dd HH mm ss, not yy"),
        ("date_format(a, 'EEE')", "date_format takes yyyy MM dd HH mm ss, not EEE"),
        ("date_format(a, 'yyyy''MM')", "date_format has a quote that does not end"),
        ("year(,)", "cannot be read: ','"),
        ("cast(1)", "cast wants 2 arguments, not 1"),
        ("cast(x, INT)", "cast wants a constant of type INT, not 'x'"),
        ("cast(300, TINYINT)", "cast wants a constant of type TINYINT, not '300'"),
        ("cast(12.345, 'DECIMAL(5, 2)')", "cast wants a constant of type DECIMAL.5, 2., not '12.345'"),
        ("cast(x, ARRAY<INT>)", "cast gives numbers, texts, dates and times, not ARRAY<INT>"),
    ],
)
def test_what_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ComputedColumn.parse(text)


def test_a_type_that_there_is_not() -> None:
    with pytest.raises(InvalidRequestError, match="unknown column type 'FOO'"):
        ComputedColumn.parse("cast(1, FOO)")


@pytest.mark.parametrize(
    ("text", "column", "result"),
    [
        ("year(c)", "DATE", "INT"),
        ("second(c)", "TIMESTAMP(9)", "INT"),
        ("hour(c)", "TIMESTAMP(3) WITH LOCAL TIME ZONE", "INT"),
        ("month(c)", "STRING NOT NULL", "INT"),
        ("date_format(c, 'yyyy')", "DATE NOT NULL", "STRING"),
        ("substring(c, 1)", "VARCHAR(5)", "STRING"),
        ("truncate(c, 10)", "BIGINT NOT NULL", "BIGINT"),
        ("truncate(c, 10)", "VARCHAR(20)", "VARCHAR(20)"),
        ("trim(c)", "CHAR(3)", "STRING"),
        ("cast(1, SMALLINT)", None, "SMALLINT"),
        ("cast(1, INT NOT NULL)", None, "INT"),
    ],
)
def test_types(text: str, column: str | None, result: str) -> None:
    given = None if column is None else parse_sql_type(column)
    assert str(ComputedColumn.parse(text).type_over(given)) == result


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("year(c)", "INT", "year wants a date or a time, and c is INT"),
        ("date_format(c, 'yyyy')", "TIME(3)", "date_format wants a date or a time, and c is TIME"),
        ("truncate(c, 10)", "DECIMAL(5, 2)", "truncate wants a text or a whole number, and c is DECIMAL"),
        ("truncate(c, 10)", "DATE", "truncate wants a text or a whole number, and c is DATE"),
        ("upper(c)", "BYTES", "upper wants a text, and c is "),
        ("substring(c, 1)", "ARRAY<STRING>", "substring wants a text, and c is ARRAY<STRING>"),
    ],
)
def test_types_that_a_function_does_not_take(text: str, column: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ComputedColumn.parse(text).type_over(parse_sql_type(column))


@pytest.mark.parametrize(
    ("pattern", "result"),
    [
        ("yyyy-MM-dd HH:mm:ss", "%Y-%m-%d %H:%M:%S"),
        ("yyyyMMdd", "%Y%m%d"),
        ("yyyy'T'HH", "%YTH".replace("H", "%H")),
        ("'%'yyyy %", "%%%Y %%"),
        ("''yyyy'it''s'", "'%Yit's"),
        ("", ""),
    ],
)
def test_patterns(pattern: str, result: str) -> None:
    assert strftime_pattern(pattern) == result
