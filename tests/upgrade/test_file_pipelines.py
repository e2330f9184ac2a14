"""Pipelines that an earlier head left in the middle of a batch, into dynamic, moving and waiting rows: continued.

What was still to come arrives before anything is started again. All run by one command, on either engine.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from freshet import Catalog, Table
from freshet.storage.metadata.hash_index_store import decode_hashes
from freshet.storage.model.snapshot import CommitKind
from tests.upgrade.archive import KINDS_ARCHIVE, unpack
from tests.upgrade.either_engine import ENGINES
from tests.upgrade.file_pipelines import BATCHES, FILE_PIPELINES, LATER_BATCHES, PLACE, FilePipeline, add_input
from tests.upgrade.fixed_place import fixed_place
from tests.upgrade.shapes import Row, folded_changes, in_order

pytestmark = [pytest.mark.spark, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module", params=ENGINES)
def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Their folder after all pipelines have run to the end, and its manifest."""
    unpacked = tmp_path_factory.mktemp("upgrade")
    unpack(KINDS_ARCHIVE, unpacked, below="files/")
    manifest = json.loads((unpacked / "files" / "manifest.json").read_text())
    with fixed_place(PLACE) as folder:
        shutil.copytree(unpacked / "files", folder, dirs_exist_ok=True)
        _run_to_the_end(folder, manifest["rest"], request.param)
        yield folder, manifest


def _run_to_the_end(folder: Path, rest: list[list[Row]], engine: str) -> None:
    add_input(folder, range(BATCHES, BATCHES + LATER_BATCHES), rest)
    for pipeline in FILE_PIPELINES:
        assert len(_batches(_table(folder, pipeline), pipeline)) == BATCHES - (pipeline.point == "before-commit")
    files = map(str, sorted((folder / "pipelines").iterdir()))
    command = [sys.executable, "-m", "freshet", "run", *files, "--on", engine]
    environment = {**os.environ, "WORLD": str(folder)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("pipeline", FILE_PIPELINES, ids=lambda each: each.name)
def test_a_pipeline_is_continued(world: tuple[Path, dict[str, Any]], pipeline: FilePipeline) -> None:
    folder, manifest = world
    table = _table(folder, pipeline)
    assert _batches(table, pipeline) == list(range(BATCHES + LATER_BATCHES)), "each batch is one commit"
    if pipeline.waits:
        table.compact()
    rows = in_order(table.scan().to_arrow().to_pylist())
    assert rows == manifest["rows in the end"][pipeline.name]
    changes = table.changelog().to_arrow().to_pylist()
    assert folded_changes(changes, pipeline.name, identity=("p", "k")) == rows
    assert not table.check().damage
    if not pipeline.waits and not pipeline.partition_by:
        assert _indexed_count(table) == len(rows)


def _table(folder: Path, pipeline: FilePipeline) -> Table:
    return Catalog(str(folder / "warehouse")).table(f"shop.{pipeline.name}")


def _batches(table: Table, pipeline: FilePipeline) -> list[int]:
    """The numbers of the batches that are committed."""
    ours = [each for each in table.snapshots() if each.commit_user == pipeline.name]
    return [each.commit_identifier for each in ours if each.commit_kind is CommitKind.APPEND]


def _indexed_count(table: Table) -> int:
    """Keys in the hash indexes of buckets, each of which is in one."""
    indexes, latest = table.store.hash_indexes, table.store.snapshots.latest()
    files = [file for by_bucket in indexes.files(latest).values() for file in by_bucket.values()]
    hashes = [each for file in files for each in decode_hashes(indexes.read(file)).tolist()]
    assert len(hashes) == len(set(hashes)), "a key is in two buckets"
    return len(hashes)
