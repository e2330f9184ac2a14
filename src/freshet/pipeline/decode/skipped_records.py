"""Records that whoever starts a pipeline has named to be skipped: dead letters without anybody looking into them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

import numpy as np
import pyarrow as pa

from freshet.pipeline.config.record_place import RecordPlace
from freshet.pipeline.decode import raw_records
from freshet.pipeline.decode.outcome_batches import OutcomeWriter
from freshet.pipeline.decode.record_block import RecordBlock
from freshet.pipeline.errors.repeating_errors import REPEATING_ERRORS, ErrorDocument, error_document
from freshet.pipeline.exceptions import StoppedByRecordError

SKIPPED: Final = "skipped by --skip-record"


def without_skipped(
    block: RecordBlock, places: Collection[RecordPlace], writer: OutcomeWriter
) -> tuple[RecordBlock, pa.RecordBatch | None]:
    """The other records of a block, and the dead letters of those at these places; None where there are none."""
    offsets = block.column(raw_records.OFFSET).to_numpy(zero_copy_only=False)
    near = np.flatnonzero(np.isin(offsets, [each.offset for each in places]))
    gone = [index for index in near.tolist() if raw_records.place(block, index) in places]
    if not gone:
        return block, None
    dead = writer.block(block, 0).dead(dict.fromkeys(gone, (SKIPPED, None)))
    return block.take(np.setdiff1d(np.arange(block.num_rows), gone)), dead


def with_culprit(error: Exception, block: RecordBlock, decode: Callable[[RecordBlock], object]) -> ErrorDocument:
    """The document of an error that decoding a block raised, which names the record where one alone raises it."""
    document = error_document(error)
    if isinstance(error, StoppedByRecordError) or not document["text"]:
        return document
    while block.num_rows > 1:
        half = block.num_rows // 2
        parts = (block.slice(0, half), block.slice(half, block.num_rows - half))
        failing = next((part for part in parts if _fails(part, decode)), None)
        if failing is None:
            return document
        block = failing
    topic, partition, offset = raw_records.place(block, 0)
    if partition is None:
        return document
    place = RecordPlace(topic, partition, offset)
    text = (
        f"{document['text']}; this is raised by the record {place}, and --skip-record {place} makes a dead letter of it"
    )
    return {**document, "text": text}


def _fails(block: RecordBlock, decode: Callable[[RecordBlock], object]) -> bool:
    try:
        decode(block)
    except REPEATING_ERRORS:
        return True
    return False
