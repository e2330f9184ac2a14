"""An S3 server by obstore alone, and one key of a table of many files; one command a line.

store key=value ...        the options of catalogs whose place is a URI
moved PLACE                bytes of data files that writing the table at PLACE has written and its compactions have read
put_like PLACE URI         uploads files as large as those that were written
get_files PLACE            downloads the data files that the table has now
many_files PLACE COUNT     makes a table of so many data files: 16 buckets, compacted but for two files of level 0 each
one_key PLACE KEY          reads one row of it; the table stays open
proxy ENDPOINT SECONDS     a proxy that adds this to each request, until this process ends
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import numpy as np
import obstore
import pyarrow as pa
from obstore.store import S3Store

from bench.freshet_worker import catalog_of, serve
from freshet.storage.metadata.live_files import delta_entries
from freshet.storage.model.manifest import EntryKind
from freshet.storage.table import Table
from tests.kit.store_proxy import StoreProxy

IN_FLIGHT: Final = 4
"""Files, or parts of files, on their way at the same time."""
PART_BYTES: Final = 8 * 1024 * 1024

BUCKETS: Final = 16
FILE_ROWS: Final = 1000
"""Of a file that a compaction writes with a target size that every file reaches."""
UPDATED_EVERY: Final = 1000
"""Each of the two updates is of so many keys' first one, and has a file in every bucket."""


class Worker:
    """State between commands: options, and the table of which keys are read."""

    def __init__(self) -> None:
        self.options: dict[str, str] = {}
        self.table: Table | None = None

    def store(self, *pairs: str) -> dict[str, object]:
        """The options of catalogs whose place is a URI."""
        self.options = dict(pair.split("=", 1) for pair in pairs)
        return {"options": len(self.options)}

    def moved(self, place: str) -> dict[str, object]:
        """Files that were moved from level to level were neither read nor written for it."""
        written, dropped = self._files(place)
        return {"written": sum(written.values()), "compacted": sum(written[name] for name in dropped)}

    def put_like(self, place: str, uri: str) -> dict[str, object]:
        """A large file is a multipart upload, as obstore does it."""
        sizes = [*self._files(place)[0].values()]
        content = os.urandom(max(sizes))
        store, prefix = self._client(uri)

        def put(number: int) -> int:
            obstore.put(store, f"{prefix}/{number}", memoryview(content)[: sizes[number]], chunk_size=PART_BYTES)
            return sizes[number]

        return _timed(put, range(len(sizes)))

    def get_files(self, place: str) -> dict[str, object]:
        """In parts."""
        table = self._open(place)
        files = {
            table.store.data_file(each.partition, each.bucket, each.file.file_name): each.file.file_size_bytes
            for each in table.files()
        }
        parts = [
            (path, start, min(PART_BYTES, size - start))
            for path, size in files.items()
            for start in range(0, size, PART_BYTES)
        ]
        store, _ = self._client(place)

        def get(part: tuple[str, int, int]) -> int:
            path, start, length = part
            return len(obstore.get_range(store, _key(path), start=start, length=length))

        return _timed(get, parts)

    def many_files(self, place: str, count: str) -> dict[str, object]:
        """The column `v` is three times the key, and one more after each update."""
        rows = int(count) * FILE_ROWS
        catalog = catalog_of(place, self.options)
        table = catalog.create_table(
            "bench.t",
            schema={"id": "BIGINT NOT NULL", "v": "BIGINT"},
            primary_keys=["id"],
            options={"bucket": BUCKETS, "write-only": "true"},
        )
        ids = np.arange(rows, dtype=np.int64)
        with table.writer("bench") as writer:
            for half in (ids[::2], ids[1::2]):  # a bucket of one file would not be rewritten
                writer.write(pa.table({"id": half, "v": 3 * half}))
                writer.commit()
        table.with_options({"write-only": "false", "target-file-size": "1 b"}).compact(full=True)
        updated = ids[::UPDATED_EVERY]
        with table.writer("bench") as writer:
            for number in (1, 2):
                writer.write(pa.table({"id": updated, "v": 3 * updated + number}))
                writer.commit()
        levels = [each.file.level for each in table.files()]
        return {"files": len(levels), "level_0": levels.count(0), "rows": rows}

    def one_key(self, place: str, key: str) -> dict[str, object]:
        """Raises unless the row is right."""
        started = time.perf_counter()
        if self.table is None:
            self.table = self._open(place)
        found = self.table.scan(filter=f"id = {key}").to_arrow().to_pylist()
        seconds = time.perf_counter() - started
        update = 2 if int(key) % UPDATED_EVERY == 0 else 0
        assert found == [{"id": int(key), "v": 3 * int(key) + update}], found
        return {"seconds": seconds}

    def proxy(self, endpoint: str, seconds: str) -> dict[str, object]:
        """Where it is."""
        proxy = StoreProxy(endpoint)
        proxy.delay_s = float(seconds)
        proxy.__enter__()
        return {"endpoint": proxy.endpoint}

    def _open(self, place: str) -> Table:
        return catalog_of(place, self.options).table("bench.t")

    def _files(self, place: str) -> tuple[dict[str, int], set[str]]:
        """Sizes of all files that were ever written, by name, and those that are there no more."""
        table = self._open(place)
        entries = [entry for snapshot in table.snapshots() for entry in delta_entries(table.store.manifests, snapshot)]
        written = {entry.file.file_name: entry.file.file_size_bytes for entry in entries}
        live = {entry.file.file_name for entry in table.files()}
        return written, {entry.file.file_name for entry in entries if entry.kind is EntryKind.DELETE} - live

    def _client(self, uri: str) -> tuple[Any, str]:
        """obstore's, without anything of Freshet, and the key of the URI."""
        bucket = uri.removeprefix("s3://").split("/")[0]
        store = S3Store(
            bucket,
            endpoint=self.options["s3.endpoint"],
            access_key_id=self.options["s3.access-key"],
            secret_access_key=self.options["s3.secret-key"],
            region="us-east-1",
            client_options={"allow_http": True},
        )
        return store, _key(uri)


def _key(uri: str) -> str:
    return uri.removeprefix("s3://").partition("/")[2]


def _timed(move: Callable[[Any], int], works: Iterable[Any]) -> dict[str, object]:
    """Seconds and bytes."""
    with ThreadPoolExecutor(IN_FLIGHT) as threads:
        started = time.perf_counter()
        moved = sum(threads.map(move, works))
        return {"seconds": time.perf_counter() - started, "bytes": moved}


if __name__ == "__main__":
    serve(Worker())
