"""Arrays of PostgreSQL read as columns, against lists that are written as PostgreSQL writes them."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freshet.pipeline.postgres.array_texts import element_texts

WORDS = st.text(st.sampled_from('ab,;"\\{} \n\tNULL\u00e4€'), max_size=5)
LISTS = st.lists(st.none() | WORDS, max_size=4)


def written(elements: list[str | None], delimiter: str) -> str:
    return "{" + delimiter.join("NULL" if each is None else quoted(each, delimiter) for each in elements) + "}"


def quoted(text: str, delimiter: str) -> str:
    odd = not text or text.upper() == "NULL" or any(each in text for each in f'{delimiter}"\\{{}} \n\t')
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"' if odd else text


def lists(rows: list[str | None], delimiter: str) -> list[list[str | None] | str | None]:
    found = element_texts(pa.array(rows, pa.string()), delimiter)
    texts = found.texts.to_pylist()
    cut = [texts[start:end] for start, end in zip(found.offsets[:-1], found.offsets[1:], strict=True)]
    marked = found.bad if found.bad is not None else [False] * len(rows)
    nulls = found.nulls
    return ["bad" if marked[n] else None if nulls[n] else each for n, each in enumerate(cut)]


@given(st.lists(st.none() | LISTS, max_size=6), st.sampled_from(",;:"))
def test_lists_are_read_as_they_are_written(rows: list[list[str | None] | None], delimiter: str) -> None:
    assert lists([None if each is None else written(each, delimiter) for each in rows], delimiter) == rows


@pytest.mark.parametrize(
    "text", ["{{1,2},{3,4}}", '{{"a"},{"b"}}', "[0:1]={5,6}", "[1:1][2:2]={{7}}", '{{"\\\\"}}', "{{}}"]
)
def test_what_is_no_list_is_marked_and_costs_no_other_row(text: str) -> None:
    assert lists(["{1,NULL}", text, None, '{"x,y"}', text, "{}"], ",") == [
        ["1", None], "bad", None, ["x,y"], "bad", [],
    ]  # fmt: skip


def test_slices_of_columns_are_read() -> None:
    whole = pa.array(["{a}", "{b,c}", None, '{"d e"}'], pa.string())
    found = element_texts(whole[1:], ",")
    assert found.texts.to_pylist() == ["b", "c", "d e"]
    assert found.offsets.tolist() == [0, 2, 2, 3]
