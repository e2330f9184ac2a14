"""How rounds of compaction between two commits collapse."""

from __future__ import annotations

from dataclasses import replace

from freshet.storage.write.increment import Increment
from tests.storage.compact.shapes import a_file


def test_a_new_file_compacted_in_the_same_commit_is_added_and_deleted() -> None:
    increment = Increment()
    new, out = a_file("new"), a_file("out", level=5)
    increment.add_new_files([new])
    assert increment.add_compaction([new], [out]) == []
    message = increment.drain(b"p", 1, 2)
    assert (message.new_files, message.compact_before, message.compact_after) == ((new,), (new,), (out,))
    assert (message.partition, message.bucket, message.total_buckets) == (b"p", 1, 2)
    assert increment.is_empty


def test_an_output_compacted_again_disappears_with_its_bytes() -> None:
    increment = Increment()
    first, middle, last = a_file("first"), a_file("middle", level=4), a_file("last", level=5)
    increment.add_compaction([first], [middle])
    assert increment.add_compaction([middle], [last]) == [middle]
    message = increment.drain(b"", 0, 1)
    assert (message.compact_before, message.compact_after) == ((first,), (last,))


def test_the_bytes_of_a_moved_file_stay() -> None:
    increment = Increment()
    file = a_file("f")
    up, further, out = replace(file, level=4), replace(file, level=5), a_file("out", level=5)
    increment.add_compaction([file], [up])
    assert increment.add_compaction([up], [further]) == []
    assert increment.add_compaction([further], [out]) == []
    message = increment.drain(b"", 0, 1)
    assert (message.compact_before, message.compact_after) == ((file,), (out,))


def test_a_moved_output_keeps_its_bytes_in_the_round_that_moves_it() -> None:
    increment = Increment()
    out = a_file("out", level=4)
    increment.add_compaction([a_file("f")], [out])
    assert increment.add_compaction([out], [replace(out, level=5)]) == []


def test_abort_takes_new_files_and_outputs_but_no_moved_file() -> None:
    increment = Increment()
    committed, new, out = a_file("committed"), a_file("new"), a_file("out", level=5)
    increment.add_new_files([new])
    increment.add_compaction([committed], [replace(committed, level=5)])
    increment.add_compaction([a_file("other")], [out])
    assert increment.own_files() == [new, out]


def test_rounds_are_dropped_when_their_inputs_are_gone() -> None:
    increment = Increment()
    committed, new, out = a_file("committed"), a_file("new"), a_file("out", level=5)
    increment.add_new_files([new])
    increment.add_compaction([committed, new], [out])
    assert increment.fits_on([committed])
    assert increment.applied_to([committed]) == [out]
    assert not increment.fits_on([])
    assert increment.drop_compaction() == [out]
    assert increment.applied_to([]) == [new]
