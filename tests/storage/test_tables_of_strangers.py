"""Tables whose metadata names what is not theirs: whatever is done with them, other files stay as they are, and no row
of another table is read.

Each name that metadata gives is replaced by one that leads out of its folder, to a file that is there.
"""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import fastavro
import pytest

from freshet import Catalog, CorruptDataError, InvalidRequestError, SetOption, StorageError, Table
from freshet.storage.paths import checked_file_name
from tests.kit.folders import contents

KEYED = {
    "bucket": "1",
    "changelog-producer": "input",
    "deletion-vectors.enabled": "true",
    "num-sorted-run.compaction-trigger": "2",
}
Change = Callable[[dict[str, Any]], None]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tables of three commits each, with changelogs and vectors; one will turn hostile."""
    place = tmp_path_factory.mktemp("template")
    catalog = Catalog(place / "wh")
    for name in ("mine", "others"):
        schema = {"k": "INT NOT NULL", "v": "STRING"}
        made = catalog.create_table(f"shop.{name}", schema=schema, primary_keys=["k"], options=KEYED)
        with made.writer("w") as writer:
            for value in ("one", "two", "three"):
                writer.write([{"k": 1, "v": f"{name} {value}"}, {"k": 2, "v": f"{name} {value}"}])
                writer.commit()
        made.compact()
        made.delete("k = 1")
        assert any(Path(made.location, "index").iterdir())
        made.tags.create("tag")
    (place / "wh/shop.db/victim").write_text("precious")
    return place


@pytest.fixture
def place(template: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(template, tmp_path / "place"))


def mine(place: Path) -> Path:
    return place / "wh/shop.db/mine"


def elsewhere(place: Path) -> dict[str, Any]:
    return {path: data for path, data in contents(place).items() if not path.startswith("wh/shop.db/mine")}


def changed_json(folder: Path, pattern: str, change: Change) -> None:
    for path in folder.glob(pattern):
        content = json.loads(path.read_bytes())
        change(content)
        path.write_text(json.dumps(content))


def changed_avro(path: Path, change: Change) -> None:
    reader: Any = fastavro.reader(io.BytesIO(path.read_bytes()))
    records = list(reader)
    for record in records:
        change(record)
    buffer = io.BytesIO()
    fastavro.writer(buffer, reader.writer_schema, records)
    path.write_bytes(buffer.getvalue())


def snapshots_say(key: str, value: str) -> Callable[[Path], None]:
    """All but the latest, which expire; `LIST` is a manifest list of the other table."""

    def carry_out(folder: Path) -> None:
        manifest_list = next((folder.parent / "others/manifest").glob("manifest-list-*"))
        name = value.replace("LIST", f"../../others/manifest/{manifest_list.name}")
        for path in sorted(folder.glob("snapshot/snapshot-*"))[:-1]:
            changed_json(folder, f"snapshot/{path.name}", lambda content: content.update({key: name}))

    return carry_out


def manifests_say(pattern: str, change: Change) -> Callable[[Path], None]:
    """Changed records; sizes follow."""

    def carry_out(folder: Path) -> None:
        manifests = folder / "manifest"
        for path in manifests.glob(pattern):
            if pattern != "manifest-*" or not path.name.startswith("manifest-list"):
                changed_avro(path, change)

        def sized(record: dict[str, Any]) -> None:
            path = manifests / record["_FILE_NAME"]
            record["_FILE_SIZE"] = path.stat().st_size if path.is_file() else 1

        def unsized(content: dict[str, Any]) -> None:
            for key in ("base", "delta", "changelog"):
                content.pop(f"{key}ManifestListSize", None)

        for path in manifests.glob("manifest-list-*"):
            changed_avro(path, sized)
        for each in ("snapshot/snapshot-*", "tag/tag-*"):
            changed_json(folder, each, unsized)

    return carry_out


def options_say(key: str, value: str) -> Callable[[Path], None]:
    return lambda folder: changed_json(
        folder, "schema/schema-0", lambda content: content["options"].update({key: value})
    )


def of_file(**values: Any) -> Change:
    return lambda record: record["_FILE"].update(values)


def of_record(**values: Any) -> Change:
    return lambda record: record.update(values)


def marking(name: str) -> Change:
    def change(record: dict[str, Any]) -> None:
        for each in record["_DELETIONS_VECTORS_RANGES"] or ():
            each["f0"] = name

    return change


def outside(
    *, named: bool = True, declared: str | None = None, into: str = "others/bucket-0"
) -> Callable[[Path], None]:
    """Data files that are said to be those of the other table; with its folder or one above as a declared place."""

    def carry_out(folder: Path) -> None:
        there = next((folder.parent / "others/bucket-0").glob("data-*"))

        def change(record: dict[str, Any]) -> None:
            name = there.name if named else record["_FILE"]["_FILE_NAME"]
            path = f"file:{folder.parent}/{into}/{there.name}"
            record["_FILE"].update(_FILE_NAME=name, _EXTERNAL_PATH=path, _FILE_SIZE=there.stat().st_size)

        manifests_say("manifest-*", change)(folder)
        if declared is not None:
            options_say("data-file.external-paths", f"file://{folder.parent}/{declared}")(folder)

    return carry_out


def index_outside(folder: Path) -> None:
    there = next((folder.parent / "others/index").iterdir())
    manifests_say("index-manifest-*", of_record(_FILE_NAME=there.name, _EXTERNAL_PATH=f"file:{there}"))(folder)


OUT = "../../victim"
LISTS = ("baseManifestList", "deltaManifestList", "changelogManifestList")
HOSTILE = {
    **{f"snapshot {key}": snapshots_say(key, "LIST") for key in LISTS},
    "index manifest": snapshots_say("indexManifest", OUT),
    "statistics": snapshots_say("statistics", OUT),
    "statistics absolute": snapshots_say("statistics", "/../../victim"),
    "statistics ..": snapshots_say("statistics", ".."),
    "list": manifests_say("manifest-list-*", of_record(_FILE_NAME=OUT)),
    "data": manifests_say("manifest-*", of_file(_FILE_NAME=OUT)),
    "extra": manifests_say("manifest-*", of_file(_EXTRA_FILES=[OUT])),
    "extra ..": manifests_say("manifest-*", of_file(_EXTRA_FILES=[".."])),
    "index": manifests_say("index-manifest-*", of_record(_FILE_NAME=OUT)),
    "vector": manifests_say("index-manifest-*", marking(OUT)),
    "external": outside(),
    "external under a name": outside(named=False),
    "external declared": outside(declared="others"),
    "external declared above": outside(declared=""),
    "external by ..": outside(into="mine/../others/bucket-0"),
    "external index": index_outside,
    "prefix": options_say("data-file.prefix", "../../x-"),
    "changelog prefix": options_say("changelog-file.prefix", "../../x-"),
    "directory": options_say("data-file.path-directory", "../others"),
    "directory absolute": options_say("data-file.path-directory", "/tmp"),
}


def everything(place: Path) -> list[StorageError]:
    """What people do with a table, each with a process that knows nothing yet; the errors."""

    def table() -> Table:
        return Catalog(place / "wh").table("shop.mine")

    def write() -> None:
        with table().writer("x") as writer:
            writer.write([{"k": 5, "v": "new"}])
            writer.commit()

    def expire() -> None:
        table().expire_snapshots(retain_max=1, retain_min=1)

    errors = []
    for verb in (
        lambda: read_rows(table()),
        lambda: table().changelog(from_snapshot=1).to_arrow(),
        lambda: table().check(),
        lambda: table().system("files").scan().to_arrow(),
        write,
        lambda: table().tags.delete("tag"),
        expire,
        lambda: table().compact(full=True),
        lambda: table().remove_orphan_files(older_than_ms=0),
        lambda: table().rollback(2),
        lambda: Catalog(place / "wh").drop_table("shop.mine"),
    ):
        try:
            verb()
        except StorageError as error:
            errors.append(error)
    return errors


def read_rows(table: Table) -> None:
    found = table.scan().to_arrow()["v"].to_pylist()
    assert not [value for value in found if value.startswith("others")]


@pytest.mark.few(8)
@pytest.mark.parametrize("how", HOSTILE)
def test_nothing_outside_of_the_table_is_read_replaced_or_deleted(how: str, place: Path) -> None:
    (mine(place) / "statistics").mkdir()
    HOSTILE[how](mine(place))
    before = elsewhere(place)
    errors = everything(place)
    assert elsewhere(place) == before
    assert any(isinstance(error, CorruptDataError | InvalidRequestError) for error in errors)


@pytest.mark.parametrize("name", ["", ".", "..", "/", "a/b", "../x", "/x", "x/", "x\0", None, 5])
def test_what_is_no_name_of_a_file(name: object) -> None:
    with pytest.raises(ValueError, match="is not a file name"):
        checked_file_name(name)


@pytest.mark.parametrize("name", ["...", "..x", "x..", "a b", "ä", "a\\b", "tag-%2F", "data-1-0.parquet", "~"])
def test_odd_names_that_files_may_have(name: str) -> None:
    assert checked_file_name(name) == name


@pytest.mark.parametrize("declared", ["outside", "", "older schema", "caller"])
def test_files_in_a_folder_that_the_table_declares_are_its_own(declared: str, place: Path) -> None:
    """As Apache Paimon writes them with `data-file.external-paths`, in folders of any depth."""
    folder, key = mine(place), "data-file.external-paths"
    (place / "outside").mkdir()
    shutil.move(folder / "bucket-0", place / "outside/ab12/bucket-0")

    def change(record: dict[str, Any]) -> None:
        path = f"file:{place}/outside/ab12/bucket-0/{record['_FILE']['_FILE_NAME']}"
        record["_FILE"]["_EXTERNAL_PATH"] = path

    manifests_say("manifest-*", change)(folder)
    root = f"s3://bucket/x, file://{place}/{'outside' if declared != '' else ''}"
    if declared != "caller":
        options_say(key, root)(folder)
    table = Catalog(place / "wh").table("shop.mine")
    if declared == "older schema":
        table.alter(SetOption(key, ""))
    with pytest.raises(CorruptDataError, match="declare") if declared == "caller" else nullcontext():
        assert table.scan().to_arrow()["v"].to_pylist() == ["mine three"]
    opened = Catalog(place / "wh").table("shop.mine")
    opened = opened.with_options({key: root}) if declared == "caller" else opened
    assert opened.scan().to_arrow()["v"].to_pylist() == ["mine three"]
    opened.expire_snapshots(retain_max=1, retain_min=1)
    assert len(list(place.glob("outside/ab12/bucket-0/data-*"))) == 1
