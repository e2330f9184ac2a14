"""Where the files of a table lie, and what their names mean.

    <location>/schema/schema-<N>            snapshot/snapshot-<N> LATEST EARLIEST      changelog/changelog-<N>
              /manifest/manifest-<uuid>-<n> manifest-list-<uuid>-<n> index-manifest-<uuid>-<n>
              /index/…  statistics/…  tag/tag-<name>  consumer/consumer-<id>
              /freshet/history/commits-<day>-…
              /branch/branch-<name>/{schema,snapshot,tag,changelog,consumer,freshet}    the rest is that of the table
              /[<data-file.path-directory>/]<key>=<value>/…/bucket-<b>/<data file>

The format of a data file is its extension: the last part after a dot, or the part before where the last is a
compression suffix (`x.parquet.zst`). Listings skip every name that is not prefix + number, so that a stray file of
another program does no harm here; temporary files of ours start with a dot.

Source: FORMAT.md §1, §1.2.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote, urlsplit

from freshet._frozen import Frozen
from freshet.storage.exceptions import InvalidRequestError

FILE_SCHEME: Final = "file"
SCHEMA_PREFIX: Final = "schema-"
SNAPSHOT_PREFIX: Final = "snapshot-"
CHANGELOG_PREFIX: Final = "changelog-"
MANIFEST_PREFIX: Final = "manifest-"
MANIFEST_LIST_PREFIX: Final = "manifest-list-"
INDEX_MANIFEST_PREFIX: Final = "index-manifest-"
INDEX_FILE_PREFIX: Final = "index-"
TAG_PREFIX: Final = "tag-"
SUCCESS_FILE_FOLDER: Final = "tag-success-file"
"""A folder among the tags: notes of other programs about them."""
BRANCH_PREFIX: Final = "branch-"
BRANCH_MARKER: Final = ".being-made"
CONSUMER_PREFIX: Final = "consumer-"
BUCKET_PREFIX: Final = "bucket-"
LATEST_HINT: Final = "LATEST"
EARLIEST_HINT: Final = "EARLIEST"
POSTPONE_BUCKET: Final = -2
"""The bucket of files whose rows wait for their buckets."""
DEFAULT_PARTITION_NAME: Final = "__DEFAULT_PARTITION__"

COMPRESSION_SUFFIXES: Final = {
    "zstd": "zst",
    "gzip": "gz",
    "bzip2": "bz2",
    "snappy": "snappy",
    "lz4": "lz4",
    "deflate": "deflate",
}
"""File name part of a codec, by the codec's name."""

_ESCAPED: Final = re.compile("[\x00-\x1f\x7f\"#%'*/:=?\\\\{}\\[\\]^]")
_PACKED: Final = re.compile(
    r"(?P<start>compacted-changelog-[^$.]+)\$(?P<bucket>\d+)-(?P<first>\d+)"
    r"(-(?P<offset>\d+)-(?P<length>\d+))?\.(?P<format>cc-[a-z]+)"
)
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,18}")
_NO_NAMES: Final = frozenset({"", ".", ".."})


class TablePaths(Frozen):
    """Names below one table folder, of the table itself or of one of its branches. `data_directory` is
    `data-file.path-directory`, where it is set."""

    location: str
    data_directory: str | None = None
    branch_name: str | None = None

    @property
    def home(self) -> str:
        """Folder above the schemas and snapshots: the table's, or that of the branch. Messages name it."""
        return self.location if self.branch_name is None else f"{self.branch_folder}/{BRANCH_PREFIX}{self.branch_name}"

    @property
    def schema_folder(self) -> str:
        """Folder of the schema files."""
        return f"{self.home}/schema"

    def schema(self, schema_id: int) -> str:
        """One schema file."""
        return f"{self.schema_folder}/{SCHEMA_PREFIX}{schema_id}"

    @property
    def snapshot_folder(self) -> str:
        """Folder of snapshots and their hints."""
        return f"{self.home}/snapshot"

    def snapshot(self, snapshot_id: int) -> str:
        """One snapshot file."""
        return f"{self.snapshot_folder}/{SNAPSHOT_PREFIX}{snapshot_id}"

    @property
    def latest_hint(self) -> str:
        """File that names the newest snapshot; it may be wrong."""
        return f"{self.snapshot_folder}/{LATEST_HINT}"

    @property
    def earliest_hint(self) -> str:
        """File that names the oldest snapshot; it may be wrong."""
        return f"{self.snapshot_folder}/{EARLIEST_HINT}"

    @property
    def changelog_folder(self) -> str:
        """Folder of changelogs kept longer than their snapshots."""
        return f"{self.home}/changelog"

    def changelog(self, snapshot_id: int) -> str:
        """Snapshot file kept for its changelog."""
        return f"{self.changelog_folder}/{CHANGELOG_PREFIX}{snapshot_id}"

    @property
    def changelog_latest_hint(self) -> str:
        """File that names the newest changelog kept; it may be wrong."""
        return f"{self.changelog_folder}/{LATEST_HINT}"

    @property
    def changelog_earliest_hint(self) -> str:
        """File that names the oldest changelog kept; it may be wrong."""
        return f"{self.changelog_folder}/{EARLIEST_HINT}"

    @property
    def manifest_folder(self) -> str:
        """Folder of manifests, manifest lists and index manifests."""
        return f"{self.location}/manifest"

    def manifest(self, name: str) -> str:
        """A manifest, manifest list or index manifest."""
        return f"{self.manifest_folder}/{name}"

    @property
    def index_folder(self) -> str:
        """Folder of hash indexes and deletion vectors."""
        return f"{self.location}/index"

    def index_file(self, name: str, external_path: str | None = None) -> str:
        """One index file; a path recorded in its manifest entry replaces the derived one."""
        return f"{self.index_folder}/{name}" if external_path is None else self._outside(external_path)

    @property
    def statistics_folder(self) -> str:
        """Folder of table statistics."""
        return f"{self.location}/statistics"

    def statistics(self, name: str) -> str:
        """One statistics file."""
        return f"{self.statistics_folder}/{name}"

    @property
    def tag_folder(self) -> str:
        """Folder of tags."""
        return f"{self.home}/tag"

    def tag(self, name: str) -> str:
        """One tag: a snapshot file under a name; the name is used as it is."""
        return f"{self.tag_folder}/{TAG_PREFIX}{name}"

    @property
    def branch_folder(self) -> str:
        """Folder of the branches of the table, also where these are the names of one of them."""
        return f"{self.location}/branch"

    @property
    def branch_marker(self) -> str:
        """File of a branch that is being made; it goes when the branch is whole."""
        return f"{self.home}/{BRANCH_MARKER}"

    def branch(self, name: str | None) -> TablePaths:
        """The same table on a branch, None for the table itself: its schemas, snapshots, changelogs, tags and consumers
        are its own; manifests, index files, statistics and data lie with those of the table."""
        return TablePaths(self.location, self.data_directory, name)

    @property
    def consumer_folder(self) -> str:
        """Folder of streaming readers' positions."""
        return f"{self.home}/consumer"

    def consumer(self, consumer_id: str) -> str:
        """Position of one streaming reader."""
        return f"{self.consumer_folder}/{CONSUMER_PREFIX}{consumer_id}"

    @property
    def history_folder(self) -> str:
        """Folder of what expired snapshots said of their commits; no other program knows it."""
        return f"{self.home}/freshet/history"

    @property
    def data_root(self) -> str:
        """Folder above the partitions, or above the buckets of an unpartitioned table."""
        return f"{self.location}/{self.data_directory}" if self.data_directory else self.location

    def partition_folder(self, partition_path: str) -> str:
        """Folder of a partition; `partition_path` is empty for an unpartitioned table."""
        return f"{self.data_root}/{partition_path}" if partition_path else self.data_root

    def bucket_folder(self, partition_path: str, bucket: int) -> str:
        """Folder of one bucket."""
        return f"{self.partition_folder(partition_path)}/{BUCKET_PREFIX}{bucket_name(bucket)}"

    def data_file(self, partition_path: str, bucket: int, file_name: str, external_path: str | None = None) -> str:
        """A data or changelog file; a path recorded in its manifest entry replaces the derived one."""
        packed = packed_range(file_name)
        if external_path is not None:
            path = self._outside(external_path)
            return path if packed is None else f"{path.rsplit('/', 2)[0]}/{BUCKET_PREFIX}{packed.bucket}/{packed.name}"
        if packed is not None:
            return f"{self.bucket_folder(partition_path, packed.bucket)}/{packed.name}"
        return f"{self.bucket_folder(partition_path, bucket)}/{file_name}"

    def extra_file(self, partition_path: str, bucket: int, file_name: str, external_path: str | None = None) -> str:
        """A side-car file; it lies next to its data file, whose external path is given."""
        if external_path is not None:
            return f"{self._outside(external_path).rsplit('/', 1)[0]}/{file_name}"
        return f"{self.bucket_folder(partition_path, bucket)}/{file_name}"

    def _outside(self, external_path: str) -> str:
        scheme, path = scheme_of(self.location), written_location(external_path)
        if scheme_of(path) != scheme:
            raise InvalidRequestError(
                f"{external_path} is a file of {self.location} that lies in another store; only files of {scheme}: are "
                "opened with this table"
            )
        return path


def scheme_of(location: str) -> str:
    """Scheme of a location in lower case; `file` for a path."""
    scheme = urlsplit(location).scheme
    return FILE_SCHEME if not scheme or "/" in location.split(":", 1)[0] else scheme


def store_of(location: str) -> str:
    """The root of the store that a location is in: `/` of the disk, `s3://bucket/`."""
    scheme = scheme_of(location)
    return "/" if scheme == FILE_SCHEME else f"{scheme}://{urlsplit(location).netloc}/"


def canonical_location(location: str) -> str:
    """One text for one place: `/a/b` for `file:///a/b/`, `file:/a/b` and `/a/b`, `x:/a/b` for `X:///a/b/`, and
    `s3://b/a` for `s3a://b/a`."""
    scheme = scheme_of(location)
    if scheme != FILE_SCHEME:
        scheme = "s3" if scheme == "s3a" else scheme  # Hadoop's name for the same
        rest = location.partition(":")[2].rstrip("/")
        return f"{scheme}:{rest.removeprefix('//')}" if rest.startswith("///") else f"{scheme}:{rest}"
    parts = urlsplit(location)
    if parts.scheme == FILE_SCHEME and parts.netloc not in ("", "localhost"):
        raise InvalidRequestError(f"only local paths can be opened, not {location}, which is on {parts.netloc}")
    path = unquote(parts.path) if parts.scheme == FILE_SCHEME else location
    return path.rstrip("/") or path[:1]


def written_location(location: str) -> str:
    """The same of a location as Paimon writes it into manifests: nothing in it is encoded, `%3A` is of the name of a
    folder (`dt=10%3A00`), and so are `#` and `?`."""
    if urlsplit(location).scheme != FILE_SCHEME:
        return canonical_location(location)
    path = location.partition(":")[2]
    host, _, rest = path[2:].partition("/") if path.startswith("//") else ("", "", path.removeprefix("/"))
    if host not in ("", "localhost"):
        raise InvalidRequestError(f"only local paths can be opened, not {location}, which is on {host}")
    return f"/{rest}"


def checked_file_name(name: object) -> str:
    """The name, where a file of its folder can have it; `ValueError` otherwise. Every name that metadata gives passes
    here: with another one a table could have files elsewhere read, replaced and deleted."""
    if not isinstance(name, str) or name in _NO_NAMES or "/" in name or "\0" in name:
        raise ValueError(f"{name!r} is not a file name")
    return name


def escape_path_name(text: str) -> str:
    """Text as a folder name: characters that folders or paths cannot carry become %XX."""
    return _ESCAPED.sub(lambda match: f"%{ord(match[0]):02X}", text)


def numbered(name: str, prefix: str) -> int | None:
    """The number after the prefix, or None for any other name; a number with leading zeros is not a number here."""
    rest = name[len(prefix) :]
    return int(rest) if name.startswith(prefix) and _NUMBER.fullmatch(rest) else None


def bucket_name(bucket: int) -> str:
    """What a bucket is called in names of folders."""
    return "postpone" if bucket == POSTPONE_BUCKET else str(bucket)


def data_file_name(prefix: str, uuid: str, counter: int, file_format: str, compression: str | None = None) -> str:
    """Name of a new data or changelog file; a compression given becomes part of it."""
    suffix = COMPRESSION_SUFFIXES.get(compression.lower(), compression) if compression else None
    if suffix is None or suffix == "none":
        return f"{prefix}{uuid}-{counter}.{file_format}"
    return f"{prefix}{uuid}-{counter}.{suffix}.{file_format}"


class PackedRange(Frozen):
    """Where the bytes of a changelog file are that Flink has packed with others of its partition into one file."""

    bucket: int
    name: str
    offset: int
    length: int


def packed_range(file_name: str) -> PackedRange | None:
    """The part of a packed file that the name of a changelog file means; None for any other name.

    compacted-changelog-<uuid>$<bucket>-<length>.cc-parquet                      the file, and its first part
    compacted-changelog-<uuid>$<bucket>-<length>-<offset>-<length>.cc-parquet    another part of that file
    """
    match = _PACKED.fullmatch(file_name)
    if match is None:
        return None
    bucket, first = int(match["bucket"]), int(match["first"])
    if match["offset"] is None:
        return PackedRange(bucket, file_name, 0, first)
    name = f"{match['start']}${bucket}-{first}.{match['format']}"
    return PackedRange(bucket, name, int(match["offset"]), int(match["length"]))


def packed_name(start: str, bucket: int, first: int, part: tuple[int, int] | None) -> str:
    """Name of a part (offset, length) of a packed file, or of its first part, which has `first` bytes."""
    rest = "" if part is None else f"-{part[0]}-{part[1]}"
    return f"{start}${bucket}-{first}{rest}.cc-parquet"


def file_format_of(file_name: str) -> str:
    """Format that a data file name says, in lower case."""
    if packed_range(file_name) is not None:
        return file_name.rsplit(".cc-", 1)[1]
    parts = file_name.split(".")
    if len(parts) > 1 and parts[-1].lower() in COMPRESSION_SUFFIXES.values():
        parts.pop()
    if len(parts) < 2:
        raise InvalidRequestError(
            f"{file_name} is not a legal data file name: it has no extension, which says the format"
        )
    return parts[-1].lower()
