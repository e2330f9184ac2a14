"""What fields the records of a pipeline carry, by a sample of them; needs no Spark and writes nothing.

Of files the first lines of the newest, of Kafka the last records of each partition. What the decoder notes of them
(`unread_columns`) is what a run would note.
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

import pyarrow as pa

from freshet.logstore.kafka.record_sizes import SampledRecord
from freshet.pipeline.config.catalogs import target_catalog
from freshet.pipeline.config.model import PipelineConfig, SourceConfig
from freshet.pipeline.decode import raw_records
from freshet.pipeline.decode.decoder import RecordDecoder
from freshet.pipeline.decode.planning import plan_decoding
from freshet.pipeline.exceptions import ConfigurationError
from freshet.pipeline.identity.checkpoint_folder import local_folder
from freshet.pipeline.query.driver.unread_columns import carried_columns, unread_column_text, unread_columns
from freshet.pipeline.query.wire.read_count import without_tallies
from freshet.storage.exceptions import InvalidRequestError, RetryableError, StorageError

Records = Sequence[SampledRecord]

RECORDS_MAX: Final = 200
FILES_MAX: Final = 3
LINE_BYTES_MAX: Final = 8 * 1024 * 1024
"""A longer line is not looked at."""

_HEADERS: Final = pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))


def left_out_warnings(config: PipelineConfig, last_records: Callable[[SourceConfig], Records | None]) -> Iterator[str]:
    """Columns of the table that the file leaves out though records carry a field of the name.

    `last_records` gives some records of a Kafka source, None where its brokers cannot be asked.
    """
    try:
        catalog = target_catalog(config)
        has_table = not config.follows_tables and catalog.has_table(config.table.name)
        columns = (
            unread_columns(catalog.table(config.table.name).schema, config.table.table_schema) if has_table else ()
        )
    except (StorageError, OSError):
        return  # said elsewhere
    if not columns:
        return
    found: set[str] = set()
    is_whole = True
    for index, source in enumerate(config.sources):
        records = _file_records(source.files.path) if source.files is not None else last_records(source)
        is_whole &= records is not None
        found |= set(carried_columns(columns, _notes(config, source, index, records or ())))
    yield from (unread_column_text(name) for name in columns if name in found)
    rest = [name for name in columns if name not in found]
    if rest and not is_whole:
        yield (
            f"the table has columns that this file leaves out ({', '.join(rest)}): they are NULL in the rows of this "
            "pipeline. Whether records carry fields of these names was not looked at, since not all sources were asked"
        )


def _notes(config: PipelineConfig, source: SourceConfig, index: int, records: Records) -> dict[str, int]:
    """What the decoder notes of the records; nothing where it stops at one of them."""
    try:
        plan = plan_decoding(config, index)
    except ConfigurationError:
        return {}
    notes: dict[str, int] = {}
    raw = _raw_batch(records, is_file=source.files is not None)
    if plan.reads_headers:
        raw = raw.append_column(raw_records.HEADERS, pa.nulls(raw.num_rows, _HEADERS))
    try:
        for batch in RecordDecoder(plan)(iter([raw])):
            for tally in without_tallies(batch)[1]:
                notes |= tally.notes
    except (RetryableError, InvalidRequestError):
        return {}  # of a schema registry, and said elsewhere
    return notes


def _raw_batch(records: Records, *, is_file: bool) -> pa.RecordBatch:
    count = len(records)
    values: dict[str, list[object]] = {
        raw_records.KEY: [each.key for each in records],
        raw_records.VALUE: [each.value for each in records],
        raw_records.KAFKA_PARTITION: [None if is_file else 0] * count,
        raw_records.OFFSET: [0 if is_file else place for place in range(count)],
        raw_records.RANK: [0] * count,
    }
    arrays = [pa.array(values.get(each.name, [None] * count), each.type) for each in raw_records.RAW_SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=raw_records.RAW_SCHEMA)


def _file_records(path: str) -> Records | None:
    """The first lines of the newest files of a folder or a pattern; None where they are not on a local disk."""
    local = local_folder(path)
    if local is None:
        return None
    try:
        files = [file for each in glob.glob(str(local)) for file in _files_in(Path(each))]
        newest = sorted(files, key=lambda file: file.stat().st_mtime, reverse=True)[:FILES_MAX]
        lines = [line for file in newest for line in _lines(file)]
    except OSError:
        return None
    return [SampledRecord(None, line, "") for line in lines]


def _files_in(path: Path) -> list[Path]:
    """The file, or those of the folder as Spark takes them: not the hidden ones."""
    if path.is_file():
        return [path]
    return [each for each in path.iterdir() if each.is_file() and not each.name.startswith((".", "_"))]


def _lines(file: Path) -> list[bytes]:
    with file.open("rb") as stream:
        lines = islice(iter(lambda: stream.readline(LINE_BYTES_MAX), b""), RECORDS_MAX)
        return [line.rstrip(b"\r\n") for line in lines if line.strip() and len(line) < LINE_BYTES_MAX]
