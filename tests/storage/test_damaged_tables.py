"""Tables with broken, missing, newer and stray files: a clear error or the right rows, never another error.

| file | cut | missing | bytes flipped |
|---|---|---|---|
| snapshot, schema | corrupt | the table is as it was before it | corrupt where the JSON or a name breaks; digits pass |
| manifest list, manifest | corrupt: size | not found, named | corrupt, or passes: blocks have no checksum |
| data file | corrupt: size | corrupt, named | corrupt: pages have checksums; one in the footer may pass |
| LATEST, EARLIEST | no matter | no matter | no matter |

A file of metadata is named with its whole path. Nothing is ever written by a call that meets one, and when the file is
put back the table reads and takes rows as before.
"""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from freshet import Catalog, CorruptDataError, InvalidRequestError, NotFoundError, StorageError, Table, col
from freshet import UnsupportedFeatureError as Unsupported
from freshet.storage.exceptions import MissingFileError
from tests.kit.folders import unchanged

KINDS = ("snapshot", "schema", "manifest-list", "manifest", "data")


@dataclass(frozen=True)
class Damage:
    """A table of two commits and its files by kind."""

    table: Table
    files: dict[str, Path]

    @property
    def catalog(self) -> Catalog:
        return Catalog(Path(self.table.location).parents[1])

    def rows(self, **arguments: Any) -> list[dict[str, Any]]:
        """Read by a program that knows nothing yet."""
        found = self.catalog.table("shop.orders").scan(**arguments).to_arrow().to_pylist()
        return sorted(found, key=lambda row: int(row["id"]))

    def write(self, identifier: int) -> None:
        with self.catalog.table("shop.orders").writer("loader") as writer:
            writer.write(rows(range(3)))
            writer.commit(identifier)

    @contextmanager
    def broken(self, kind: str, change: Callable[[bytes], bytes | None]) -> Iterator[Path]:
        """The file changed (or gone, for None); put back afterwards."""
        path = self.files[kind]
        content = path.read_bytes()
        changed = change(content)
        if changed is None:
            path.unlink()
        else:
            path.write_bytes(changed)
        try:
            with unchanged(self.table.location):
                yield path
        finally:
            path.write_bytes(content)


def rows(ids: range) -> pa.Table:
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "name": [f"name of {number}" for number in ids],
            "total": pa.array([number * 7 for number in ids], pa.int32()),
        }
    )


@pytest.fixture(scope="module")
def warehouses(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Tables of two commits, of which each test has a copy."""
    made = {}
    for kind in ("keyed", "append"):
        made[kind] = tmp_path_factory.mktemp(kind)
        is_keyed = kind == "keyed"
        table = Catalog(made[kind]).create_table(
            "shop.orders",
            schema={"id": "BIGINT", "name": "STRING", "total": "INT"},
            primary_keys=["id"] if is_keyed else [],
            options={"bucket": 1 if is_keyed else -1, "write-only": True},
        )
        with table.writer("loader") as writer:
            for number in range(2):
                writer.write(rows(range(number * 100, number * 100 + 150)))
                writer.commit(number)
    return made


@pytest.fixture(params=["keyed", "append"])
def damage(request: pytest.FixtureRequest, tmp_path: Path, warehouses: dict[str, Path]) -> Damage:
    shutil.copytree(warehouses[request.param], tmp_path, dirs_exist_ok=True)
    table = Catalog(tmp_path).table("shop.orders")
    store = table.store
    latest = store.snapshots.latest()
    assert latest is not None
    manifests = store.manifests.read_manifest_list(latest.base_manifest_list)
    folder = Path(table.location)
    files = {
        "snapshot": folder / "snapshot" / "snapshot-2",
        "schema": folder / "schema" / "schema-0",
        "manifest-list": folder / "manifest" / latest.base_manifest_list,
        "manifest": folder / "manifest" / manifests[0].file_name,
        "data": min(folder.glob("bucket-0/*.parquet")),
    }
    return Damage(table, files)


# ------------------------------------------------------------------------------------------------- cut, missing, mad


@pytest.mark.few(10)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [0, 0.5, 1])
def test_files_cut_short(damage: Damage, kind: str, share: float) -> None:
    before = damage.rows()
    with damage.broken(kind, lambda data: data[: min(int(len(data) * share), len(data) - 1)]) as path:
        with pytest.raises(CorruptDataError) as caught:
            damage.rows()
        assert caught.value.path == str(path)
        assert str(path) in str(caught.value)
        assert any(word in str(caught.value) for word in ("torn", "truncated", "cut short"))
        if kind != "data":
            with pytest.raises(CorruptDataError, match=path.name):
                damage.write(2)
    assert damage.rows() == before
    damage.write(2)
    assert damage.rows(filter=col("id") == 2)[-1]["total"] == 14


@pytest.mark.parametrize("kind", KINDS)
def test_files_that_are_something_else(damage: Damage, kind: str) -> None:
    before = damage.rows()
    with (
        damage.broken(kind, lambda data: bytes(len(data))),
        pytest.raises(CorruptDataError, match=damage.files[kind].name),
    ):
        damage.rows()
    assert damage.rows() == before


@pytest.mark.parametrize(
    ("kind", "error", "word"),
    [
        ("manifest-list", MissingFileError, "the file was lost"),
        ("manifest", MissingFileError, "the file was lost"),
        ("data", CorruptDataError, "missing"),
        ("schema", CorruptDataError, "restore schema-0"),
    ],
)
def test_files_that_are_gone(damage: Damage, kind: str, error: type[StorageError], word: str) -> None:
    before = damage.rows()
    with damage.broken(kind, lambda data: None) as path:
        with pytest.raises(error, match=word) as caught:
            damage.rows()
        assert str(path) in str(caught.value)
    assert damage.rows() == before


def test_a_table_whose_latest_snapshot_was_removed_is_not_the_one_before(damage: Damage) -> None:
    with damage.broken("snapshot", lambda data: None):
        with pytest.raises(CorruptDataError, match=r"snapshot 2 was committed .* the newest there is is 1"):
            damage.rows()
        assert [row["id"] for row in damage.rows(snapshot_id=1)] == list(range(150)), "older ones are read by their id"
        with pytest.raises(NotFoundError, match=r"snapshot 2.*1 to 1"):
            damage.rows(snapshot_id=2)


@pytest.mark.few(2)
@pytest.mark.parametrize("kind", KINDS)
def test_flipped_bytes(damage: Damage, kind: str) -> None:
    """Wherever a bit flips: an error of the package, or rows; in a text of JSON or Avro they may be other rows."""
    before = damage.rows()
    size = damage.files[kind].stat().st_size
    chance = random.Random(kind)
    places = chance.sample(range(size), 80)
    found = [flipped(damage, kind, place, 1 << chance.randrange(8), before) for place in places]
    assert found.count("refused") > 20
    assert found.count("refused") + found.count("same rows") >= len(found) - 2, found
    assert damage.rows() == before


def test_no_flip_in_the_pages_of_a_data_file_passes(damage: Damage) -> None:
    """Page data has a checksum, and a flip in a page's head breaks the page or says nothing about the rows."""
    with pq.ParquetFile(damage.files["data"]) as file:
        footer = damage.files["data"].stat().st_size - 8 - file.metadata.serialized_size
    before = damage.rows()
    found = [flipped(damage, "data", place, 0x10, before) for place in range(4, footer, 11)]
    assert set(found) == {"refused", "same rows"}
    assert found.count("refused") > len(found) // 3, "columns that are not read do not count"


def flipped(damage: Damage, kind: str, place: int, bits: int, before: list[dict[str, Any]]) -> str:
    """What a reader finds when bits of one byte are others."""
    with damage.broken(kind, lambda data: data[:place] + bytes([data[place] ^ bits]) + data[place + 1 :]):
        try:
            return "same rows" if damage.rows() == before else "other rows"
        except StorageError as error:
            return "refused" if len(str(error)) < 1000 else f"refused at length: {error}"


def test_a_file_of_another_row_count_is_not_taken(damage: Damage) -> None:
    """Same size and a valid Parquet file, but not the one that the manifest speaks of."""
    store = damage.table.store
    entry = next(entry for entry in damage.table.files() if entry.file.file_name == damage.files["data"].name)
    other = pa.BufferOutputStream()
    pq.write_table(rows(range(5)), other)
    fake = other.getvalue().to_pybytes()
    size = entry.file.file_size_bytes
    assert len(fake) < size
    # Parquet readers go from the end; bytes between the magic and the pages are nobody's, offsets are not checked.
    padded = fake[:4] + bytes(size - len(fake)) + fake[4:]
    assert store.location
    with damage.broken("data", lambda data: padded), pytest.raises(CorruptDataError, match="5 rows.*says 150"):
        damage.rows()


def test_a_manifest_of_another_number_of_entries_is_not_taken(damage: Damage) -> None:
    store = damage.table.store
    path = damage.files["manifest"]
    listed = store.snapshots.snapshot(2)
    [meta] = [m for m in store.manifests.read_manifest_list(listed.base_manifest_list) if m.file_name == path.name]
    fresh = damage.catalog.table("shop.orders").store.manifests
    wrong = type(meta)(**{**{f: getattr(meta, f) for f in meta.__slots__}, "num_added_files": 3})
    with pytest.raises(CorruptDataError, match="has 1 entries where its list records 3"):
        fresh.read_manifest(wrong)


# ----------------------------------------------------------------------------------------------------- hints, strays


@pytest.mark.few(8)
@pytest.mark.parametrize("damage", ["keyed"], indirect=True)
@pytest.mark.parametrize(
    "hint", [b"", b"-1", b"0", b"1", b"two", b"\xff\xfe", b"2.5", b"1_0", b"9" * 4000, b"9" * 400, "٣".encode()]
)
@pytest.mark.parametrize("name", ["LATEST", "EARLIEST"])
def test_hints_may_lie(damage: Damage, name: str, hint: bytes) -> None:
    before = damage.rows()
    (Path(damage.table.location) / "snapshot" / name).write_bytes(hint)
    assert damage.rows() == before
    assert damage.rows(timestamp_ms=2**60) == before
    damage.write(2)
    assert [snapshot.id for snapshot in damage.catalog.table("shop.orders").snapshots()] == [1, 2, 3]


@pytest.mark.parametrize("damage", ["keyed"], indirect=True)
def test_lost_newest_snapshot_is_refused_and_its_id_is_not_used_again(damage: Damage) -> None:
    folder = Path(damage.table.location) / "snapshot"
    kept = (folder / "snapshot-2").read_bytes()
    (folder / "snapshot-2").unlink()
    for call in (damage.rows, lambda: damage.write(2)):
        with pytest.raises(CorruptDataError, match=r"snapshot 2 was committed .* the newest there is is 1"):
            call()
    assert not (folder / "snapshot-2").exists()
    (folder / "snapshot-2").write_bytes(kept)
    damage.write(2)
    assert [snapshot.id for snapshot in damage.catalog.table("shop.orders").snapshots()] == [1, 2, 3]


def test_stray_names_are_passed_over(damage: Damage) -> None:
    before = damage.rows()
    folder = Path(damage.table.location)
    for name in ("snapshot-3.tmp", "snapshot-x", "snapshot-", "snapshot-0007", "snapshot--9", ".snapshot-9.a.tmp", "x"):
        (folder / "snapshot" / name).write_bytes(b"{}")
    for name in ("schema-x", "schema-0007", "schema-1.bak", ".schema-1.a.tmp", "_SUCCESS"):
        (folder / "schema" / name).write_bytes(b"{}")
    (folder / "snapshot" / "snapshot-9").mkdir()
    (folder / "schema" / "schema-9").mkdir()
    (folder / "bucket-0" / "data-stray-0.parquet").write_bytes(b"PAR1")
    (folder / "snapshot" / "LATEST").unlink()
    assert damage.rows() == before
    damage.write(2)
    assert [snapshot.id for snapshot in damage.catalog.table("shop.orders").snapshots()] == [1, 2, 3]
    assert damage.catalog.list_tables("shop") == ["orders"]


# ---------------------------------------------------------------------------------------------------- newer, foreign


def with_key(key: str, value: object) -> Callable[[bytes], bytes]:
    """A change of a JSON file; None takes the key away."""

    def change(data: bytes) -> bytes:
        content = {**json.loads(data), key: value}
        return json.dumps({name: item for name, item in content.items() if item is not None}).encode()

    return change


@pytest.mark.parametrize("kind", ["snapshot", "schema"])
def test_newer_versions_are_named(damage: Damage, kind: str) -> None:
    with damage.broken(kind, with_key("version", 4)) as path:
        for call in (damage.rows, lambda: damage.write(2)):
            with pytest.raises(Unsupported, match=r"version 4.*up to 3.*[Uu]pgrade") as caught:
                call()
            assert path.name in str(caught.value)


@pytest.mark.few(10)
@pytest.mark.parametrize("damage", ["keyed"], indirect=True)
@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        ("snapshot", "id", 7),
        ("snapshot", "id", None),
        ("snapshot", "baseManifestList", None),
        ("snapshot", "baseManifestList", "../../other"),
        ("snapshot", "deltaManifestList", "a\0b"),
        ("snapshot", "commitKind", "GUESS"),
        ("snapshot", "schemaId", "zero"),
        ("snapshot", "baseManifestListSize", 5),
        ("snapshot", "timeMillis", 10**30),
        ("snapshot", "totalRecordCount", 1e400),
        ("snapshot", "commitIdentifier", 2**63),
        ("snapshot", "nextRowId", "x"),
        ("snapshot", "properties", "x"),
        ("schema", "id", 7),
        ("schema", "fields", None),
        ("schema", "fields", "id"),
        ("schema", "primaryKeys", ["nope"]),
        ("schema", "primaryKeys", ["id", "id"]),
        ("schema", "primaryKeys", {}),
        ("schema", "fields", [{"id": 0, "name": "id", "type": "BIGINT"}, {"id": 0, "name": "v", "type": "INT"}]),
        ("schema", "partitionKeys", ["nope"]),
        ("schema", "fields", [{"id": 0, "name": "id", "type": "WEIRD"}]),
        ("schema", "fields", [{"id": 0, "name": "id", "type": "INT"}] * 2),
        ("schema", "options", None),
    ],
)
def test_metadata_with_wrong_content(damage: Damage, kind: str, key: str, value: object) -> None:
    before = damage.rows()
    with damage.broken(kind, with_key(key, value)) as path:
        with pytest.raises(CorruptDataError) as caught:
            damage.rows()
        named = Path(caught.value.path)
        assert named.name == (path.name if key != "baseManifestListSize" else damage.files["manifest-list"].name)
    assert damage.rows() == before


@pytest.mark.parametrize("damage", ["keyed"], indirect=True)
@pytest.mark.parametrize("time_ms", [10**17, -(10**17), 0])
def test_times_that_no_calendar_has(damage: Damage, time_ms: int) -> None:
    before = damage.rows()
    with damage.broken("snapshot", with_key("timeMillis", time_ms)):
        assert damage.rows() == before
        text = damage.catalog.table("shop.orders").describe()
        assert (f"{time_ms} ms" if time_ms else "1970-01-01 00:00:00 UTC") in text


@pytest.mark.parametrize("damage", ["keyed"], indirect=True)
@pytest.mark.parametrize(
    ("options", "read", "write", "key"),
    [
        ({"file.format": "csv"}, False, False, "file.format"),
        ({"manifest.format": "parquet"}, False, False, "manifest.format"),
        ({"scan.snapshot-id": "1"}, False, False, "scan.snapshot-id"),
        ({"file.compression": "brotli"}, True, False, "file.compression"),
        ({"commit.callbacks": "com.example.Hook"}, True, False, "commit.callbacks"),
        ({"partition.expiration-time": "1 d"}, True, True, ""),
        ({"an.option.of-tomorrow": "1"}, True, True, ""),
        ({"path": "/elsewhere"}, True, True, ""),
    ],
)
def test_tables_of_others_that_use_what_is_not_supported(
    damage: Damage, options: dict[str, str], read: bool, write: bool, key: str
) -> None:
    before = damage.rows()
    mine = dict(damage.table.schema.options)
    damage.files["schema"].write_bytes(with_key("options", {**mine, **options})(damage.files["schema"].read_bytes()))
    if read:
        assert damage.rows() == before
    else:
        with unchanged(damage.table.location), pytest.raises(Unsupported, match=f"cannot be read: {key}="):
            damage.rows()
    if write:
        damage.write(2)
        return
    with unchanged(damage.table.location), pytest.raises(Unsupported, match=f"cannot be (read|written): {key}="):
        damage.write(2)


def test_an_option_of_another_program_that_cannot_be_read(damage: Damage) -> None:
    mine = dict(damage.table.schema.options)
    with (
        damage.broken("schema", with_key("options", {**mine, "write-only": "maybe"})),
        pytest.raises(InvalidRequestError, match=r"write-only.*'maybe'"),
    ):
        damage.rows()


# ------------------------------------------------------------------------------------------------------- upkeep of it


def test_compaction_of_a_broken_file_leaves_the_table_as_it_is(damage: Damage) -> None:
    before = damage.rows()
    with (
        damage.broken("data", lambda data: data[:-1]),
        pytest.raises(CorruptDataError, match=damage.files["data"].name),
    ):
        damage.catalog.table("shop.orders").compact(full=True)
    assert damage.rows() == before
    damage.catalog.table("shop.orders").compact(full=True)
    assert damage.rows() == before


@pytest.mark.parametrize("kind", ["snapshot", "manifest-list", "manifest"])
def test_what_cannot_be_read_is_not_cleaned(damage: Damage, kind: str) -> None:
    """Expiry and orphan cleaning delete nothing where it is not known what is in use."""
    before = damage.rows()
    with damage.broken(kind, lambda data: data[: len(data) // 2]):
        table = damage.catalog.table("shop.orders")
        with pytest.raises(CorruptDataError):
            table.remove_orphan_files(older_than_ms=-1_000_000)
        if kind != "manifest":  # the expiry of the first snapshot needs no list of its files
            with pytest.raises(CorruptDataError):
                table.expire_snapshots(retain_max=1, older_than_ms=0)
    assert damage.rows() == before


@pytest.mark.parametrize("damage", ["keyed"], indirect=True)
@pytest.mark.parametrize(
    "name", ["tag/tag-x", "consumer/consumer-x", "branch/branch-b/snapshot/snapshot-1", "changelog/changelog-1"]
)
def test_what_others_hold_on_to_and_cannot_be_read(damage: Damage, name: str) -> None:
    """A tag, a branch, a reader's position: the table reads and takes rows, but nothing of it is removed."""
    before = damage.rows()
    path = Path(damage.table.location) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b'{"id": 1')
    table = damage.catalog.table("shop.orders")
    with unchanged(damage.table.location):
        assert damage.rows() == before
        with pytest.raises(CorruptDataError, match=path.name):
            table.expire_snapshots(retain_max=1, older_than_ms=0)
        if not name.startswith("consumer"):
            with pytest.raises(CorruptDataError, match=path.name):
                table.remove_orphan_files(older_than_ms=-1_000_000)
        if name.startswith("tag"):
            with pytest.raises(CorruptDataError, match=path.name):
                table.scan(tag="x")
    damage.write(2)
    assert {row["id"] for row in damage.rows()} == {row["id"] for row in before}


@pytest.mark.parametrize("hint", ["2", "4"])
@pytest.mark.parametrize("folder", ["snapshot", "changelog"])
def test_a_hint_of_the_oldest_is_only_where_to_begin_to_look(folder: str, hint: str, tmp_path: Path) -> None:
    """Whatever EARLIEST says, of snapshots or of kept changelogs: nothing that is there is left out."""
    options = {"bucket": 1, "changelog-producer": "input", "snapshot.num-retained.max": 1, "write-only": "true"}
    options |= {"snapshot.num-retained.min": 1, "changelog.num-retained.min": 9, "changelog.num-retained.max": 9}
    options |= {"snapshot.num-retained.max": 9} if folder == "snapshot" else {}
    columns = {"id": "BIGINT NOT NULL", "total": "INT"}
    table = Catalog(tmp_path).create_table("shop.orders", schema=columns, primary_keys=["id"], options=options)
    with table.writer("loader") as writer:
        for number in range(1, 5):
            writer.write([{"id": number, "total": number}])
            writer.commit()
    table.expire_snapshots()
    (Path(table.location) / folder / "EARLIEST").write_text(hint)
    opened = Catalog(tmp_path).table("shop.orders")
    assert opened.changelog().to_arrow()["id"].to_pylist() == [1, 2, 3, 4]
    assert opened.changelog(from_timestamp=1).to_arrow().num_rows == 4
    stream = opened.stream(scan_mode="from-snapshot", from_snapshot=1, max_wait_s=0)
    assert sum(batch.num_rows for batch in stream) == 4
    if folder == "snapshot":
        opened.expire_snapshots(retain_max=2, retain_min=1)
        assert [each.id for each in opened.snapshots()] == [3, 4]
