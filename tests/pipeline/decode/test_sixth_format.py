"""A format is a parser: here one of lines such as `u|7|new|12.50`, and nothing else is told of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from freshet.pipeline.config.formats import Format
from freshet.pipeline.decode import decoder, reading
from freshet.pipeline.decode.careful import CarefulReader
from freshet.pipeline.decode.change import DELETE, INSERT, UPDATE_AFTER, Change, Dead, RawRecord, Reading
from freshet.pipeline.decode.convert.converter import Mask
from freshet.pipeline.decode.evaluator import NO_KIND, Evaluator, InputColumn, RecordParser
from freshet.pipeline.decode.images import Findings, Images, RowIndexes
from freshet.pipeline.decode.json_value import STRING
from freshet.pipeline.decode.plan import DecodePlan
from freshet.pipeline.decode.record_block import RecordBlock
from freshet.pipeline.decode.row_rules import Kinds
from freshet.pipeline.decode.tables_seen import TablesSeen
from tests.pipeline.records import decoder_of, pipeline_of, run

# --- the parser file --------------------------------------------------------------------------------------------------

FIELDS = ("id", "name", "price")
KINDS = {"c": INSERT, "u": UPDATE_AFTER, "d": DELETE}


def read_line(record: RawRecord, *_: object) -> Reading:
    kind, *texts = (record.value or b"").decode().split("|")
    if kind not in KINDS or len(texts) != len(FIELDS):
        return Dead("no line of the form expected")
    return Change(KINDS[kind], {name: text or None for name, text in zip(FIELDS, texts, strict=True)}, op=kind)


@dataclass
class LineChanges:
    plan: DecodePlan
    careful: CarefulReader
    records: RowIndexes
    kinds: Kinds
    parts: Any

    def taken(self, rows: RowIndexes) -> LineChanges:
        parts = self.parts.take(pa.array(rows))
        return LineChanges(self.plan, self.careful, self.records[rows], self.kinds[rows], parts)

    def rows_lacking(self) -> Mask | None:
        return None

    def have_before(self, rows: RowIndexes) -> Mask:
        return np.zeros(len(rows), bool)

    def have_same_key(self, rows: RowIndexes) -> Mask:
        raise AssertionError("none has a row before it")

    def lack_before(self, rows: RowIndexes) -> Sequence[int]:
        return []

    def columns(self) -> list[InputColumn]:
        found = []
        for each in self.careful.inputs(None).all:
            texts = pc.list_element(self.parts, FIELDS.index(each.name) + 1)
            values = pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts).to_pylist()
            array, lost = each.converter.conversion(frozenset({STRING})).convert(values)
            found.append(InputColumn(array, lost, values))
        return found

    def columns_before(self, rows: RowIndexes) -> Sequence[InputColumn]:
        raise AssertionError("none has a row before it")

    def unknown(self) -> dict[str, Mask]:
        return {}

    def metadata(self) -> tuple[Any, Any, Any]:
        return None, None, None


class LineParser(RecordParser):
    def __init__(self, plan: DecodePlan, careful: CarefulReader, tables: TablesSeen) -> None:
        self.plan, self.careful = plan, careful

    def read(self, block: RecordBlock, indexes: RowIndexes, findings: Findings) -> tuple[list[Images], RowIndexes]:
        parts = pc.split_pattern(pa.array(block.values(indexes)).cast(pa.string()), "|")
        kinds = np.array([KINDS.get(each[0], NO_KIND) for each in parts.to_pylist()], np.int8)
        is_whole = pc.equal(pc.list_value_length(parts), len(FIELDS) + 1).to_numpy(zero_copy_only=False)
        whole = np.flatnonzero(is_whole)
        changes = LineChanges(self.plan, self.careful, indexes[whole], kinds[whole], parts.take(pa.array(whole)))
        found = Evaluator(self.plan, self.careful.inputs(None)).evaluate(changes)
        findings.skipped.update(found.skipped)
        findings.dead.update(found.dead)
        return found.images, np.setdiff1d(indexes, np.concatenate([indexes[:0], *found.done]))


# ----------------------------------------------------------------------------------------------------------------------


def test_every_format_has_a_reader_and_a_parser() -> None:
    assert set(reading.READERS) == set(decoder.PARSERS) == set(get_args(Format))


@pytest.mark.parametrize("ignores_deletes", [False, True])
def test_a_sixth_format_is_one_parser(monkeypatch: pytest.MonkeyPatch, ignores_deletes: bool) -> None:
    monkeypatch.setitem(reading.READERS, "lines", read_line)
    monkeypatch.setitem(decoder.PARSERS, "lines", LineParser)
    lines = ["c|1|a|1.50", "u|1|b|", "d|1||", "c|2|c|much", "x|3|d|1", "c|4", "c||e|2", "d|5|f|many", "u|6|g|7"]
    records = [line.encode() for line in lines * 5]
    options = {"ignore-delete": "true"} if ignores_deletes else {}
    config = pipeline_of({"id": "BIGINT", "name": "STRING", "price": "DECIMAL(9, 2)"}, options=options, format="json")
    of_json = decoder_of(config)
    of_lines = replace(of_json, plan=replace(of_json.plan, format="lines"))
    found = run(of_lines, records, in_both_forms=False)
    expected = run(replace(of_lines, is_careful=True), records, in_both_forms=False)
    assert found == expected
    assert found.shown[:5] == [
        "+I(1, a, 1.50)", "+U(1, b, None)", "" if ignores_deletes else "-D(1, None, None)",
        "dead price: the value of field price does not fit DECIMAL(9, 2) (exactly)",
        "dead None: no line of the form expected",
    ]  # fmt: skip
    assert decoder.block_decoder(of_lines.plan)._parser is not None
