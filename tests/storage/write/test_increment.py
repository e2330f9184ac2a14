"""How rounds of compaction between two commits collapse."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from freshet.storage.compact.rewriter import CompactedFiles
from freshet.storage.model.data_file import DataFileMeta
from freshet.storage.write.increment import Increment
from tests.storage.compact.shapes import a_file


def compact(
    increment: Increment,
    before: list[DataFileMeta],
    after: list[DataFileMeta],
    lookups: Sequence[DataFileMeta] = (),
    **more: Any,
) -> list[DataFileMeta]:
    return increment.add_compaction(CompactedFiles(tuple(before), tuple(after), tuple(lookups), **more))


def test_a_new_file_compacted_in_the_same_commit_is_added_and_deleted() -> None:
    increment = Increment()
    new, out = a_file("new"), a_file("out", level=5)
    increment.add_new_files([new])
    assert compact(increment, [new], [out]) == []
    message = increment.take_message(b"p", 1, 2)
    assert (message.new_files, message.compact_before, message.compact_after) == ((new,), (new,), (out,))
    assert (message.partition, message.bucket, message.total_buckets) == (b"p", 1, 2)
    assert increment.is_empty


def test_an_output_compacted_again_disappears_with_its_bytes() -> None:
    increment = Increment()
    first, middle, last = a_file("first"), a_file("middle", level=4), a_file("last", level=5)
    compact(increment, [first], [middle])
    assert compact(increment, [middle], [last]) == [middle]
    message = increment.take_message(b"", 0, 1)
    assert (message.compact_before, message.compact_after) == ((first,), (last,))


def test_the_bytes_of_a_moved_file_stay() -> None:
    increment = Increment()
    file = a_file("f")
    up, further, out = replace(file, level=4), replace(file, level=5), a_file("out", level=5)
    compact(increment, [file], [up])
    assert compact(increment, [up], [further]) == []
    assert compact(increment, [further], [out]) == []
    message = increment.take_message(b"", 0, 1)
    assert (message.compact_before, message.compact_after) == ((file,), (out,))


def test_a_moved_output_keeps_its_bytes_in_the_round_that_moves_it() -> None:
    increment = Increment()
    out = a_file("out", level=4)
    compact(increment, [a_file("f")], [out])
    assert compact(increment, [out], [replace(out, level=5)]) == []


def test_abort_takes_new_files_and_outputs_but_no_moved_file() -> None:
    increment = Increment()
    committed, new, out = a_file("committed"), a_file("new"), a_file("out", level=5)
    increment.add_new_files([new])
    compact(increment, [committed], [replace(committed, level=5)])
    compact(increment, [a_file("other")], [out])
    assert increment.own_files() == [new, out]


def test_rounds_are_dropped_when_their_inputs_are_gone() -> None:
    increment = Increment()
    committed, new, out = a_file("committed"), a_file("new"), a_file("out", level=5)
    increment.add_new_files([new])
    compact(increment, [committed, new], [out])
    assert increment.drop_unfit([committed]) == []
    assert increment.applied_to([committed]) == [out]
    assert increment.drop_unfit([]) == [out]
    assert increment.applied_to([]) == [new]


def test_the_append_half_outlives_the_compact_half() -> None:
    increment = Increment()
    old, new, out = a_file("old"), a_file("new"), a_file("out", level=5)
    increment.add_new_files([new])
    compact(increment, [old, new], [out])
    increment.drop_unfit([])
    message = increment.take_message(b"", 0, 1)
    assert (message.new_files, message.has_compaction) == ((new,), False)


@pytest.mark.parametrize(
    ("is_ordered", "dropped", "left"), [(True, ["x2", "x3"], ["x1"]), (False, ["x2"], ["x1", "x3"])]
)
def test_one_round_is_dropped_with_those_upon_it(is_ordered: bool, dropped: list[str], left: list[str]) -> None:
    """Three rounds that share no file; another writer compacted the input of the second."""
    increment = Increment(is_ordered=is_ordered)
    inputs = [a_file(f"f{number}") for number in (1, 2, 3)]
    for number, file in enumerate(inputs, 1):
        compact(increment, [file], [a_file(f"x{number}", level=4)])
    assert [file.file_name for file in increment.drop_unfit([inputs[0], inputs[2]])] == dropped
    message = increment.take_message(b"", 0, 1)
    assert [file.file_name for file in message.compact_after] == left


def test_a_round_upon_an_output_is_dropped_with_the_round_that_made_it() -> None:
    increment = Increment(is_ordered=False)
    first, second = a_file("first"), a_file("second")
    middle, last = a_file("middle", level=4), a_file("last", level=5)
    compact(increment, [first], [middle])
    compact(increment, [middle, second], [last])
    assert increment.drop_unfit([second]) == [last]
    assert increment.is_empty


def test_a_round_that_looked_keys_up_in_an_output_depends_on_it() -> None:
    increment = Increment(is_ordered=False)
    first, second, above = a_file("first"), a_file("second"), a_file("above", level=5)
    out = a_file("out", level=5)
    compact(increment, [first], [out], [above])
    compact(increment, [second], [a_file("low", level=1)], [out])
    (joined,) = increment.compact.rounds
    assert joined.lookups == {"above"}
    assert [file.file_name for file in increment.drop_unfit([second, above])] == ["out", "low"]


def test_a_round_fits_only_while_the_files_it_looked_into_are_there() -> None:
    increment = Increment()
    old, above, out = a_file("old"), a_file("above", level=5), a_file("out", level=1)
    compact(increment, [old], [out], [above])
    assert increment.drop_unfit([old, replace(above, level=4)]) == [], "at whatever level"
    assert increment.drop_unfit([old]) == [out]
