"""Files in an object store: S3 and what is compatible with it, Google Cloud Storage, Azure.

An exclusive create is a conditional put (`If-None-Match: *` at S3). It carries an id of its own among the metadata of
the object, since a store that says "exists already" may speak of the create itself, sent twice; the client does not
repeat it. Whatever is not plainly won is looked at:

| answer of the store | the key holds | then |
|---|---|---|
| created | - | WON |
| exists already, busy, a fault, none | our id | WON |
| the same | another object | LOST |
| busy, a fault, none, in conflict | nothing | the same create once more, with the same id; after a few times UNKNOWN |
| exists already | nothing: it was deleted meanwhile | UNKNOWN |
| any | no answer | UNKNOWN |
| refused | - | an error: nothing was created |

A create that comes late meets the object of its own repetition, or wins as it: both carry the id.

Without the right to list a bucket, S3 answers 403 for a key that is missing. Such a key counts as missing where a
listing is refused as well, but not the credentials; its error names both.

Source: obstore 0.12.1 and S3 servers, tried (README of storage).
"""

from __future__ import annotations

import logging
import random
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final, Never, TypeVar

import obstore
import pyarrow as pa
from obstore.exceptions import AlreadyExistsError as StoredAlreadyError

from freshet.storage.exceptions import NotFoundError, RetryableError, StorageError
from freshet.storage.io.file_io import Created, Deleted, FileStatus, Folders, OutputFile, exists_already
from freshet.storage.io.object_errors import ERRORS, answer_of, is_missing, store_error
from freshet.storage.io.object_files import PART_BYTES, UPLOADS_MAX, ObjectInput, ObjectOutputFile, Parts
from freshet.storage.io.object_stores import (
    PROBE_PREFIX,
    S3_SCHEMES,
    ObjectStore,
    ObjectStores,
    Retries,
    check_conditional_puts,
    place_of,
)
from freshet.storage.io.ranges import ByteRange, ReadCosts

T = TypeVar("T")

DELETE_MAX: Final = 1000
"""Keys of one request."""

CREATES_MAX: Final = 6
"""How often a create is sent while nothing is known of it."""

_CREATE_WAIT_S: Final = 0.1
"""Before the second create; twice as long before each further one, and any part of it."""

_CREATE_END_S: Final = 60.0

_CLAIM: Final = "freshet-claim"
_LOG: Final = logging.getLogger(__name__)
_NEVER_RUN: Final[set[str]] = set()
"""Schemes of which this process has been warned."""


class ObjectFileIO:
    """`FileIO` on the stores of one scheme and one set of options. Paths are URIs: `s3://bucket/key`."""

    read_costs = ReadCosts(whole_bytes=1024 * 1024, gap_bytes=1024 * 1024, request_bytes=8 * 1024 * 1024, in_flight=48)
    folders: Folders | None = None

    def __init__(self, options: Mapping[str, str]) -> None:
        """`options` are those of the store, resolved; they are neither shown nor kept elsewhere."""
        self._stores = ObjectStores(options)

    def __reduce__(self) -> Never:
        raise TypeError("an ObjectFileIO holds credentials and is not pickled; send the location and the settings")

    def open_input(self, path: str) -> pa.NativeFile:
        """A file that makes a request for each read."""
        return pa.PythonFile(ObjectInput(partial(self.read_range, path), self.size(path)), mode="r")

    def read_range(self, path: str, wanted: ByteRange) -> pa.Buffer:
        """One request; nothing for a range of no length."""
        if wanted.length <= 0:
            return pa.py_buffer(b"")
        try:
            return self._ask(
                "read",
                path,
                lambda store, key: pa.py_buffer(
                    obstore.get_range(store, key, start=wanted.offset, length=wanted.length)
                ),
            )
        except NotFoundError:
            raise
        except StorageError:
            if wanted.offset >= self.size(path):  # a store refuses a range that begins at the end
                return pa.py_buffer(b"")
            raise

    def read_bytes(self, path: str) -> bytes:
        """One request."""
        return self._ask("read", path, lambda store, key: bytes(obstore.get(store, key).bytes().to_bytes()))

    def open_output(self, path: str, *, sync_folder: bool = True) -> OutputFile:
        """Nothing shows before `close`."""
        return ObjectOutputFile(self, path)

    def create_exclusive(self, path: str, data: bytes) -> Created:
        """One conditional put; further ones with the same id while the store is busy and the key is missing."""
        folder = path.rpartition("/")[0]
        check_conditional_puts(
            self._stores.endpoint(path),
            place_of(path),
            f"{folder}/{PROBE_PREFIX}{uuid.uuid4()}",
            lambda probe: self._create(probe, b""),
            self.delete,
        )
        return self._create(path, data)

    def asked_again(self, path: str, data: bytes) -> Created:
        """Compares the bytes."""
        try:
            found = self.read_bytes(path)
        except NotFoundError:
            return Created.UNKNOWN
        return Created.WON if found == data else Created.LOST

    def overwrite(self, path: str, data: bytes, *, sync: bool = True) -> None:
        """One put."""
        self._ask("write", path, lambda store, key: obstore.put(store, key, data, use_multipart=False))

    def copy_all(self, pairs: Sequence[tuple[str, str]]) -> None:
        """One request each, which the store carries out; S3 copies up to 5 GB so. Both are in one bucket."""
        for source, target in pairs:
            _, to = self._stores.open(target)
            self._ask("copy", source, partial(_copied, to=to))

    def exists(self, path: str) -> bool:
        """One request."""
        try:
            self.size(path)
        except NotFoundError:
            return False
        return True

    def exists_prefix(self, path: str) -> bool:
        """The first page of a listing; true also for an empty folder that another client has marked as one."""
        return self._ask(
            "list",
            path,
            lambda store, key: any(page for page in obstore.list(store, prefix=key or None, chunk_size=1)),
        )

    def size(self, path: str) -> int:
        """One request."""
        return self._ask("look at", path, lambda store, key: int(obstore.head(store, key)["size"]))

    def entries(self, path: str) -> Iterator[FileStatus]:
        """A listing by delimiter, all pages of it. The mark of an empty folder is the folder, not a file."""
        root, own = path.rstrip("/"), path[len(place_of(path)) :].strip("/")
        try:
            listed = self._ask("list", path, lambda store, key: obstore.list_with_delimiter(store, prefix=key or None))
        except NotFoundError:
            return
        for prefix in listed["common_prefixes"]:
            name = prefix.rstrip("/").rpartition("/")[2]
            yield FileStatus(name, f"{root}/{name}", 0, 0, is_folder=True)
        for meta in listed["objects"]:
            if meta["path"] == own:
                continue
            name = meta["path"].rpartition("/")[2]
            modified_ms = int(meta["last_modified"].timestamp() * 1000)
            version = meta["e_tag"] or f"{modified_ms}"
            yield FileStatus(name, f"{root}/{name}", meta["size"], modified_ms, False, version)

    def delete(self, path: str) -> bool:
        """A look and a deletion."""
        if not self.exists(path):
            return False
        try:
            self._delete(path, [path])
        except NotFoundError:
            return False
        return True

    def delete_all(self, paths: Sequence[str], *, in_turn: bool = False) -> Deleted:
        """One request for a thousand of a bucket; those that were not there count as deleted."""
        deleted = failed = 0
        cause: StorageError | None = None
        size = 1 if in_turn else DELETE_MAX
        for part in _parts_of_buckets(paths, size):
            try:
                self._delete(part[0], part)
                deleted += len(part)
            except NotFoundError:
                continue
            except StorageError as error:
                failed += len(part)
                cause = cause or error
                if in_turn:
                    break
        return Deleted(deleted, failed, cause)

    def delete_prefix(self, path: str) -> None:
        """A thousand at a time, then the marks of empty folders.

        The client takes the slash from the key of a mark: what a second listing still has are marks."""
        place = place_of(path)
        has_marks = False
        for page in self._listed(path):
            self._delete(path, [f"{place}/{meta['path']}" for meta in page])
            has_marks = has_marks or any(not meta["size"] for meta in page)
        if has_marks:
            for page in self._listed(path):
                for meta in page:
                    self._delete_marker(f"{place}/{meta['path']}")

    def put_new(self, path: str, data: bytes) -> None:
        """A data file in one put. Its name is unique, so that an answer that is lost may be asked for again."""
        self._warn(path)
        claim = str(uuid.uuid4())

        def create(store: ObjectStore, key: str) -> None:
            try:
                obstore.put(store, key, data, mode="create", attributes={_CLAIM: claim}, use_multipart=False)
            except StoredAlreadyError as error:
                if self._claimed_by(path, claim) is not Created.WON:
                    raise exists_already(path) from error

        self._ask("write", path, create)

    def check_new(self, path: str) -> None:
        """One request."""
        self._warn(path)
        if self.exists(path):
            raise exists_already(path)

    def put_parts(self, path: str, parts: Parts) -> None:
        """A multipart upload; parts are sent again by the client, the whole is not."""
        store, key = self._stores.open(path)
        started = time.monotonic()
        try:
            obstore.put(store, key, parts, use_multipart=True, chunk_size=PART_BYTES, max_concurrency=UPLOADS_MAX)
        except ERRORS as error:
            failed = store_error(error, "write", path, self._stores.options)
            if answer_of(error).is_expired and self._stores.renew(started):
                raise RetryableError(f"{failed}; looked for newer ones: try again", path=path) from error
            raise failed from error

    def _create(self, path: str, data: bytes) -> Created:
        self._warn(path)
        claim, end_s, is_open = str(uuid.uuid4()), time.monotonic() + _CREATE_END_S, False
        for count in range(CREATES_MAX):
            store, key = self._stores.open(path, Retries.NONE)
            started = time.monotonic()
            try:
                obstore.put(store, key, data, mode="create", attributes={_CLAIM: claim}, use_multipart=False)
                return Created.WON
            except ERRORS as error:
                answer = answer_of(error)
                is_renewed = answer.is_expired and count == 0 and self._stores.renew(started)
                if not answer.leaves_create_open and not is_renewed:
                    if is_open:
                        break  # an earlier try may arrive yet
                    raise store_error(error, "create", path, self._stores.options) from error
                if isinstance(error, ValueError | FileExistsError) and answer.status is None:
                    raise store_error(error, "create", path, self._stores.options) from error
                is_open = is_open or answer.leaves_create_open
                is_there = answer.status == 412 or (answer.status is None and isinstance(error, StoredAlreadyError))
            found = self._claimed_by(path, claim)
            if found is not None:
                return found
            if is_there or time.monotonic() > end_s:
                break
            time.sleep(random.uniform(0, _CREATE_WAIT_S * 2**count))
        return Created.UNKNOWN

    def _claimed_by(self, path: str, claim: str) -> Created | None:
        """Whose create it was that made the object; None where there is none, UNKNOWN without an answer."""
        try:
            found = self._ask("read", path, lambda store, key: obstore.get(store, key).attributes.get(_CLAIM))
        except NotFoundError:
            return None
        except StorageError:
            return Created.UNKNOWN
        return Created.WON if found == claim else Created.LOST

    def _delete(self, place: str, paths: Sequence[str]) -> None:
        """Objects of one bucket; key by key where the store cannot do more."""
        if not paths:
            return
        keys = [self._stores.open(path)[1] for path in paths]
        try:
            # Sent once: the client takes "not implemented" for a fault of the server, and repeats it for a minute.
            obstore.delete(self._stores.open(place, Retries.NONE)[0], keys)
            return
        except ERRORS as error:
            if answer_of(error).is_not_implemented:
                self._stores.without_bulk_deletes(place)
        self._ask("delete", place, lambda store, _: obstore.delete(store, keys))

    def _delete_marker(self, path: str) -> None:
        try:
            self._stores.delete_marker(path)
        except FileNotFoundError:
            return
        except ERRORS as error:
            raise store_error(error, "delete", f"{path}/", self._stores.options) from error

    def _listed(self, path: str) -> Iterator[Sequence[Any]]:
        """All below a path, in pages."""
        pages = self._ask(
            "list", path, lambda store, key: obstore.list(store, prefix=key or None, chunk_size=DELETE_MAX)
        )
        try:
            yield from pages
        except FileNotFoundError:
            return
        except ERRORS as error:
            raise store_error(error, "list", path, self._stores.options) from error

    def _ask(self, action: str, path: str, request: Callable[[ObjectStore, str], T]) -> T:
        """The answer to a request, which the client repeats while the store is busy."""
        try:
            return self._request(action, path, request)
        except StorageError:
            raise
        except ERRORS as error:
            if is_missing(error) and not self._stores.answers(path):
                self._check_bucket(path, error)
            elif action in ("read", "look at") and answer_of(error).is_refusal and self._may_be_missing(path, error):
                raise NotFoundError(
                    f"cannot {action} {path}: there is no such object, or the user may not see it: without the right "
                    "to list the bucket (s3:ListBucket) a store answers the same; check the path and the rights",
                    path=path,
                ) from error
            raise store_error(error, action, path, self._stores.options) from error

    def _request(self, action: str, path: str, request: Callable[[ObjectStore, str], T]) -> T:
        """Once more with newer credentials, where those of before have expired."""
        for is_last in (False, True):
            store, key = self._stores.open(path)
            started = time.monotonic()
            try:
                answer = request(store, key)
                self._stores.has_answered(path)
                return answer
            except ERRORS as error:
                had = answer_of(error)
                is_refused = had.is_expired or (had.is_refusal and not had.code)
                if is_last or not is_refused or not self._stores.renew(started, is_expired=had.is_expired):
                    raise
        raise AssertionError

    def _check_bucket(self, path: str, error: Exception) -> None:
        """Before the first "missing" is believed: the answer to a HEAD does not say whether the bucket is missing."""
        if not answer_of(error).code:
            self._may_be_missing(path, error)
        self._stores.has_answered(path)

    def _may_be_missing(self, path: str, error: Exception) -> bool:
        """Whether, of a key that is refused, nothing but the right to list is missing."""
        if answer_of(error).code not in ("", "AccessDenied"):
            return False
        try:
            store, key = self._stores.open(path)
            pages = obstore.list(store, prefix=key.rpartition("/")[0] or None, chunk_size=1)
            next(iter(pages), None)
        except ERRORS as refused:
            answer = answer_of(refused)
            if not answer.is_refusal or answer.code not in ("", "AccessDenied"):
                raise store_error(refused, "list", path, self._stores.options) from refused
            return True
        return False  # it may be listed, and so a missing one would have been called missing

    def _warn(self, path: str) -> None:
        scheme = path.partition(":")[0]
        if scheme not in S3_SCHEMES and scheme not in _NEVER_RUN:
            _NEVER_RUN.add(scheme)
            _LOG.warning(
                "writing to %s: Freshet was never run against this service, only the code that it shares with S3 was; "
                "try it with data that you can lose",
                place_of(path),
            )


def _parts_of_buckets(paths: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    """The paths in order, in parts of at most a size, each of one bucket."""
    start = 0
    while start < len(paths):
        place, end = place_of(paths[start]), start + 1
        while end < min(len(paths), start + size) and place_of(paths[end]) == place:
            end += 1
        yield paths[start:end]
        start = end


def _copied(store: ObjectStore, key: str, *, to: str) -> None:
    obstore.copy(store, key, to)
