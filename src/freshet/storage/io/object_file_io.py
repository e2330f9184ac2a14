"""Files in an object store: S3 and what is compatible with it, Google Cloud Storage, Azure.

An exclusive create is one conditional put (`If-None-Match: *` at S3). It carries an id of its own among the metadata of
the object: a store that says "exists already" may speak of the create itself, sent twice, so the key is read back:

| answer of the store | the key holds | outcome |
|---|---|---|
| created | - | WON |
| exists already, a time-out, an error of the server, none | our id | WON |
| the same | another object | LOST |
| the same | nothing, or no answer | UNKNOWN |

A data file of up to `PART_BYTES` is one put, a larger one a multipart upload, which shows nothing before its end.

A forked child of a process that has used a store would wait for threads that it does not have, for ever: it is
refused. Stores are made when they are needed, and not before: Spark's Python daemon forks.

Source: obstore 0.12.1 and S3 servers, tried (README of storage).
"""

from __future__ import annotations

import io
import os
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import obstore
import pyarrow as pa
from obstore.exceptions import (
    AlreadyExistsError as StoredAlreadyError,
)
from obstore.exceptions import (
    BaseError,
    PermissionDeniedError,
    UnauthenticatedError,
    UnknownConfigurationKeyError,
)

from freshet.storage.exceptions import (
    AlreadyExistsError,
    InvalidRequestError,
    NotFoundError,
    RetryableError,
    StorageError,
)
from freshet.storage.io.file_io import Created, Deleted, FileStatus, Folders, OutputFile
from freshet.storage.io.object_stores import ObjectStore, open_object_store
from freshet.storage.io.ranges import ByteRange, ReadCosts
from freshet.storage.options.secrets import without_secrets

PART_BYTES: Final = 8 * 1024 * 1024
"""Of a multipart upload; S3 wants 5 MB at least."""

DELETE_MAX: Final = 1000
"""Keys of one request."""

_CLAIM: Final = "freshet-claim"
_ERRORS: Final = (BaseError, OSError, ValueError)

_used_in: int | None = None
"""The process that has used a store first; its forked children must not."""


class ObjectFileIO:
    """`FileIO` on the stores of one scheme and one set of options. Paths are URIs: `s3://bucket/key`."""

    read_costs = ReadCosts(whole_bytes=1024 * 1024, gap_bytes=1024 * 1024, request_bytes=8 * 1024 * 1024, in_flight=48)
    folders: Folders | None = None

    def __init__(self, options: Mapping[str, str]) -> None:
        """`options` are those of the store, resolved; they are neither shown nor kept elsewhere."""
        self._options = dict(options)
        self._stores: dict[tuple[str, bool], ObjectStore] = {}

    def open_input(self, path: str) -> pa.NativeFile:
        """A file that makes a request for each read."""
        return pa.PythonFile(_ObjectInput(self, path, self.size(path)), mode="r")

    def read_range(self, path: str, wanted: ByteRange) -> pa.Buffer:
        """One request; nothing for a range of no length."""
        if wanted.length <= 0:
            return pa.py_buffer(b"")
        store, key = self._place(path)
        try:
            return pa.py_buffer(obstore.get_range(store, key, start=wanted.offset, length=wanted.length))
        except _ERRORS as error:
            if wanted.offset >= self.size(path):  # a store refuses a range that begins at the end
                return pa.py_buffer(b"")
            raise self._error(error, "read", path) from error

    def read_bytes(self, path: str) -> bytes:
        """One request."""
        store, key = self._place(path)
        try:
            return obstore.get(store, key).bytes().to_bytes()
        except _ERRORS as error:
            raise self._error(error, "read", path) from error

    def open_output(self, path: str) -> OutputFile:
        """Nothing shows before `close`."""
        return ObjectOutputFile(self, path)

    def create_exclusive(self, path: str, data: bytes) -> Created:
        """One conditional put, sent once; then, if it was not plainly won, what the key holds."""
        store, key = self._place(path, retries=False)
        claim = str(uuid.uuid4())
        try:
            obstore.put(store, key, data, mode="create", attributes={_CLAIM: claim}, use_multipart=False)
        except _ERRORS as error:
            if isinstance(error, PermissionDeniedError | UnauthenticatedError):
                raise self._error(error, "create", path) from error
            return self._claimed_by(path, claim)
        return Created.WON

    def asked_again(self, path: str, data: bytes) -> Created:
        """Compares the bytes."""
        try:
            found = self.read_bytes(path)
        except NotFoundError:
            return Created.UNKNOWN
        return Created.WON if found == data else Created.LOST

    def overwrite(self, path: str, data: bytes, *, sync: bool = True) -> None:
        """One put."""
        store, key = self._place(path)
        try:
            obstore.put(store, key, data, use_multipart=False)
        except _ERRORS as error:
            raise self._error(error, "write", path) from error

    def exists(self, path: str) -> bool:
        """One request."""
        try:
            self.size(path)
        except NotFoundError:
            return False
        return True

    def exists_prefix(self, path: str) -> bool:
        """The first page of a listing."""
        store, key = self._place(path)
        try:
            return any(page for page in obstore.list(store, prefix=key or None, chunk_size=1))
        except _ERRORS as error:
            raise self._error(error, "list", path) from error

    def size(self, path: str) -> int:
        """One request."""
        store, key = self._place(path)
        try:
            return obstore.head(store, key)["size"]
        except _ERRORS as error:
            raise self._error(error, "look at", path) from error

    def entries(self, path: str) -> Iterator[FileStatus]:
        """A listing by delimiter, all pages of it."""
        store, key = self._place(path)
        root = path.rstrip("/")
        try:
            listed = obstore.list_with_delimiter(store, prefix=key or None)
        except FileNotFoundError:
            return
        except _ERRORS as error:
            raise self._error(error, "list", path) from error
        for prefix in listed["common_prefixes"]:
            name = prefix.rstrip("/").rpartition("/")[2]
            yield FileStatus(name, f"{root}/{name}", 0, 0, is_folder=True)
        for meta in listed["objects"]:
            name = meta["path"].rpartition("/")[2]
            modified_ms = int(meta["last_modified"].timestamp() * 1000)
            version = meta["e_tag"] or f"{modified_ms}"
            yield FileStatus(name, f"{root}/{name}", meta["size"], modified_ms, False, version)

    def delete(self, path: str) -> bool:
        """A look and a deletion."""
        if not self.exists(path):
            return False
        store, key = self._place(path)
        try:
            obstore.delete(store, key)
        except FileNotFoundError:
            return False
        except _ERRORS as error:
            raise self._error(error, "delete", path) from error
        return True

    def delete_all(self, paths: Sequence[str], *, in_turn: bool = False) -> Deleted:
        """One request for a thousand; those that were not there count as deleted."""
        deleted = failed = 0
        cause: str | None = None
        size = 1 if in_turn else DELETE_MAX
        for start in range(0, len(paths), size):
            part = paths[start : start + size]
            store, _ = self._place(part[0])
            try:
                obstore.delete(store, [self._place(path)[1] for path in part])
                deleted += len(part)
            except FileNotFoundError:
                continue
            except _ERRORS as error:
                failed += len(part)
                cause = cause or str(self._error(error, "delete", part[0]))
                if in_turn:
                    break
        return Deleted(deleted, failed, cause)

    def delete_prefix(self, path: str) -> None:
        """A thousand at a time."""
        store, key = self._place(path)
        try:
            for page in obstore.list(store, prefix=key or None, chunk_size=DELETE_MAX):
                obstore.delete(store, [meta["path"] for meta in page])
        except FileNotFoundError:
            return
        except _ERRORS as error:
            raise self._error(error, "delete", path) from error

    def put_new(self, path: str, data: bytes) -> None:
        """A data file in one put."""
        store, key = self._place(path)
        claim = str(uuid.uuid4())
        try:
            obstore.put(store, key, data, mode="create", attributes={_CLAIM: claim}, use_multipart=False)
        except StoredAlreadyError as error:
            if self._claimed_by(path, claim) is not Created.WON:
                raise _exists_already(path) from error
        except _ERRORS as error:
            raise self._error(error, "write", path) from error

    def open_parts(self, path: str) -> Any:
        """A multipart upload."""
        if self.exists(path):
            raise _exists_already(path)
        store, key = self._place(path)
        try:
            return obstore.open_writer(store, key, buffer_size=PART_BYTES)
        except _ERRORS as error:
            raise self._error(error, "write", path) from error

    def error_of(self, error: Exception, path: str) -> StorageError:
        """For an upload that has failed."""
        return self._error(error, "write", path)

    def _claimed_by(self, path: str, claim: str) -> Created:
        """Whose create it was that made the object."""
        store, key = self._place(path)
        try:
            found = obstore.get(store, key).attributes.get(_CLAIM)
        except _ERRORS:
            return Created.UNKNOWN
        return Created.WON if found == claim else Created.LOST

    def _place(self, path: str, *, retries: bool = True) -> tuple[ObjectStore, str]:
        _refuse_forked()
        parts = urlsplit(path, allow_fragments=False)
        place = f"{parts.scheme}://{parts.netloc}"
        store = self._stores.get((place, retries))
        if store is None:
            made = open_object_store(place, self._options, retries=retries)
            store = self._stores.setdefault((place, retries), made)
        return store, path[len(place) :].strip("/")

    def _error(self, error: Exception, action: str, path: str) -> StorageError:
        text = without_secrets(str(error).split("\n\nDebug source")[0], self._options)
        if isinstance(error, FileNotFoundError):
            return NotFoundError(
                f"cannot {action} {path}: there is no such object; check the path, or whether the file was expired",
                path=path,
            )
        if isinstance(error, PermissionDeniedError | UnauthenticatedError):
            return InvalidRequestError(
                f"cannot {action} {path}: the store refuses these credentials ({text}); give the user the right to do "
                "so, or other credentials",
                path=path,
            )
        if isinstance(error, UnknownConfigurationKeyError | ValueError):
            return InvalidRequestError(f"cannot {action} {path}: {text}; check the options of the store", path=path)
        return RetryableError(
            f"cannot {action} {path}: {text}; try again, and check the endpoint and the network if it stays", path=path
        )


class ObjectOutputFile:
    """Bytes gathered until they fill a part; from then on a multipart upload."""

    def __init__(self, file_io: ObjectFileIO, path: str) -> None:
        self._io = file_io
        self._path = path
        self._buffer = bytearray()
        self._parts: Any = None
        self._position = 0
        self.closed = False

    def readable(self) -> bool:
        """Never; asked by pyarrow."""
        return False

    def writable(self) -> bool:
        """Always; asked by pyarrow."""
        return True

    def seekable(self) -> bool:
        """Never; asked by pyarrow."""
        return False

    def write(self, data: bytes | memoryview | pa.Buffer) -> int:
        """Appends the bytes."""
        view = memoryview(data).cast("B")
        self._position += view.nbytes
        if self._parts is not None:
            self._upload(view)
            return view.nbytes
        self._buffer += view
        if len(self._buffer) > PART_BYTES:
            self._parts = self._io.open_parts(self._path)
            self._upload(bytes(self._buffer))
            self._buffer.clear()
        return view.nbytes

    def tell(self) -> int:
        """Bytes written so far."""
        return self._position

    def flush(self) -> None:
        """Nothing to do: a part goes when it is full."""

    def close(self) -> None:
        """The object appears."""
        if self.closed:
            return
        self.closed = True
        if self._parts is None:
            self._io.put_new(self._path, bytes(self._buffer))
            return
        try:
            self._parts.close()
        except _ERRORS as error:
            raise self._io.error_of(error, self._path) from error

    def abort(self) -> None:
        """Nothing of it shows."""
        self.closed = True
        self._parts = None

    def _upload(self, data: bytes | memoryview) -> None:
        try:
            self._parts.write(data)
        except _ERRORS as error:
            raise self._io.error_of(error, self._path) from error


class _ObjectInput(io.RawIOBase):
    """Random reads of one object, each a request."""

    def __init__(self, file_io: ObjectFileIO, path: str, size_bytes: int) -> None:
        self._io = file_io
        self._path = path
        self._size_bytes = size_bytes
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def size(self) -> int:
        return self._size_bytes

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size_bytes}[whence]
        self._position = base + offset
        return self._position

    def read(self, size: int | None = -1) -> Any:
        """A buffer, which pyarrow takes as it is."""
        left = max(0, self._size_bytes - self._position)
        length = left if size is None or size < 0 else min(size, left)
        found = self._io.read_range(self._path, ByteRange(self._position, length))
        self._position += found.size
        return found


def _refuse_forked() -> None:
    global _used_in
    process = os.getpid()
    if _used_in is None:
        _used_in = process
    elif _used_in != process:
        raise InvalidRequestError(
            "an object store cannot be used in a process that was forked from one that has used it: its threads are "
            "missing here; start the process with the method spawn (multiprocessing.set_start_method)"
        )


def _exists_already(path: str) -> AlreadyExistsError:
    return AlreadyExistsError(f"{path} exists already; data files are never overwritten")
