"""What travels to another process reads and writes the same table there, reached as it was here.

The tables lie in a store that is found with its settings only, and whose password every process has to have itself
(`kit_store`): a carrier that opens the local disk, or anything else, finds nothing.
"""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from freshet.pipeline.commands.executors import PieceTask
from freshet.pipeline.query.driver.dead_letters import open_dead_letters
from freshet.pipeline.query.task.batch_work import TableWork
from freshet.pipeline.query.task.renumber_work import RenumberWork
from freshet.pipeline.query.wire.batch_pin import BatchPin
from freshet.storage.catalog import Catalog
from freshet.storage.changes.stream_request import StreamRequest
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.io.env import Env, open_env
from freshet.storage.io.env_settings import EnvSettings
from freshet.storage.io.local_file_io import LocalFileIO
from freshet.storage.maintenance.table_compaction import Elsewhere
from freshet.storage.table import Table
from freshet.storage.table_engine import StreamLimit, decode_commit_messages, encode_commit_messages
from tests.kit.kit_store import PASSWORD, KitFileIO, in_fresh_process, kit_store
from tests.kit.task_runs import at, summed, task_results
from tests.logstore.logged_tables import fake_kafka
from tests.pipeline.query.outcome_rows import data, dead, outcome_table, tally

OPTIONS = {"bucket": "1", "changelog-producer": "lookup", "num-sorted-run.compaction-trigger": "9"}
LOG = {"log.system": "kafka", "kafka.topic": "t", "kafka.bootstrap.servers": "nowhere:9"}
CARRIERS = ("table", "scan", "changelog", "split stream", "log split stream")


@dataclass(frozen=True)
class World:
    """Two tables of a store, one with a log, and how the store is reached."""

    settings: EnvSettings
    catalog: Catalog

    @property
    def keyed(self) -> Table:
        return self.catalog.table("db.keyed", options={"source.split.target-size": "1 kb"})


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with kit_store(tmp_path_factory.mktemp("store")) as settings, fake_kafka():
        catalog = Catalog("kit://lake/w", env=open_env("kit://lake/w", settings))
        for name, options in (("keyed", OPTIONS), ("logged", OPTIONS | LOG)):
            table = catalog.create_table(
                f"db.{name}", schema={"k": "BIGINT", "v": "STRING"}, primary_keys=["k"], options=options
            )
            with table.writer("first") as writer:
                for text in ("a", "b"):
                    writer.write([{"k": key, "v": text} for key in range(3)])
                    writer.commit()
        yield World(settings, catalog)


def _carriers(world: World) -> dict[str, Any]:
    changes = world.keyed.engine.split_stream(StreamRequest(scan_mode="latest-full"))
    logged = world.catalog.table("db.logged").engine.split_stream(
        StreamRequest(scan_mode="latest-full", isolation="committed")
    )
    return {
        "table": (world.keyed, None),
        "scan": (world.keyed.scan(["v", "k"], "k > 0"), None),
        "changelog": (world.keyed.changelog(from_snapshot=1, filter="k < 2"), None),
        "split stream": (changes, _groups(changes)),
        "log split stream": (logged, _groups(logged)),
    }


def _groups(stream: Any) -> list[Any]:
    start = stream.first()
    return list(stream.groups(start, stream.advance(start, StreamLimit())))


def _rows(carrier: Any, groups: list[Any] | None) -> list[Mapping[str, Any]]:
    if groups is not None:
        return [row for group in groups for batch in carrier.read_group(group) for row in batch.to_pylist()]
    found: list[Mapping[str, Any]] = (carrier.scan() if isinstance(carrier, Table) else carrier).to_arrow().to_pylist()
    return found


def _store(carrier: Any) -> Any:
    for name in ("store", "_store", "_history"):
        if hasattr(carrier, name):
            found = getattr(carrier, name)
            return _store(found) if name == "_history" else found
    raise AssertionError(carrier)


def _elsewhere(pickled: Mapping[str, bytes]) -> dict[str, Any]:
    """In the other process: the rows of each carrier, and the world that it made for them."""
    found = {}
    for name, carried in pickled.items():
        carrier, groups = pickle.loads(carried)
        store = _store(carrier)
        folder = store.env.scratch_folder()
        store.env.release_scratch(folder)
        assert isinstance(store.env.file_io, KitFileIO)
        found[name] = (_rows(carrier, groups), store.name, store.dynamic_options, store.env.settings, folder)
    return found


@pytest.fixture(scope="module")
def there(world: World) -> dict[str, Any]:
    return in_fresh_process(_elsewhere, {name: pickle.dumps(each) for name, each in _carriers(world).items()})


@pytest.mark.dear("a process that imports what it reads with")
@pytest.mark.parametrize("name", CARRIERS)
def test_what_reads_gives_the_same_rows_in_another_process(world: World, there: dict[str, Any], name: str) -> None:
    carrier, groups = _carriers(world)[name]
    rows, table_name, options, settings, scratch = there[name]
    assert rows == _rows(carrier, groups)
    assert rows
    assert (table_name, options) == (_store(carrier).name, _store(carrier).dynamic_options)
    assert settings == world.settings
    assert Path(scratch).parent == Path(world.settings.scratch_root or "")


@pytest.mark.parametrize("name", CARRIERS)
def test_no_secret_travels(world: World, name: str) -> None:
    assert PASSWORD.encode() not in pickle.dumps(_carriers(world)[name])


def _run(task: Callable[..., Any], *given: Any) -> Any:
    return task(*given)


def _run_rows(work: TableWork, pin: BatchPin, rows: pa.Table) -> list[bytes]:
    return task_results(work, pin, rows.to_batches())


@pytest.mark.dear("a process that imports what it writes with")
def test_a_task_of_a_micro_batch_writes_where_its_driver_commits(world: World) -> None:
    table = world.catalog.create_table(
        "db.written", schema={"k": "BIGINT", "v": "STRING"}, primary_keys=["k"], options=OPTIONS
    )
    letters = open_dead_letters(world.catalog, "db.dead")
    pin = BatchPin(0, table.schema.id, table.schema.time_ms, None)
    work = TableWork(table.handle, "p", ("k", "v"), 1, dead_letters=letters.handle)
    rows = outcome_table(table.schema, [data(1, 1, "a"), data(2, 2, "b"), dead(3), tally(3)], bucket_count=1)
    result = summed(in_fresh_process(_run_rows, work, pin, rows))
    table.engine.committer("p").commit(0, result.messages[0])
    letters.engine.committer("p").commit(0, result.dead_letter_messages)
    assert table.scan().to_arrow().to_pylist() == [{"k": 1, "v": "a"}, {"k": 2, "v": "b"}]
    assert letters.scan().count() == 1


@pytest.mark.slow
def test_so_do_the_other_tasks(world: World) -> None:
    table = world.catalog.create_table(
        "db.others", schema={"k": "BIGINT", "v": "STRING"}, primary_keys=["k"], options=OPTIONS
    )
    with closing(table.engine.task_writer(base_snapshot_id=None)) as writer:
        writer.write(pa.table({"k": [1, 2], "v": ["a", "b"]}))
        messages = writer.prepare_commit(0)
    with table.writer("before") as session:
        session.write([{"k": 9, "v": "z"}])
        session.commit()
    pin = BatchPin(0, 0, table.schema.time_ms, None)
    work = RenumberWork(table.handle, pin, 1, headroom=100)
    made = decode_commit_messages(in_fresh_process(_run, work, encode_commit_messages(messages), at(pin)))
    table.engine.committer("p").commit(0, made)
    works: list[Any] = []

    def run_unit(handle: Any, given: Any) -> Any:
        works.extend(given)
        return [decode_commit_messages(in_fresh_process(_run, PieceTask(handle), work)) for work in given]

    table.compact(full=True, elsewhere=Elsewhere(run_unit, 1))
    assert len(works) == 1
    assert all(entry.file.level for entry in table.files())
    assert table.scan().to_arrow()["v"].to_pylist() == ["a", "b", "z"]


def test_a_secret_that_was_given_as_it_is_stays_here(world: World) -> None:
    settings = EnvSettings.of(dict(world.settings.catalog) | {"kit.password": PASSWORD})
    catalog = Catalog("kit://lake/w", env=open_env("kit://lake/w", settings))
    table = catalog.create_table("db.secret", schema={"k": "BIGINT"}, options={"bucket": "-1"})
    with table.writer("u") as writer:
        writer.write([{"k": 1}])
        writer.commit()
    for shown in (repr(settings), repr(table.handle), str(table.handle), repr(table.store.handle.settings)):
        assert PASSWORD not in shown
    with pytest.raises(InvalidRequestError, match="kit.password holds a secret.*kit.password=env:NAME") as caught:
        pickle.dumps(table.scan())
    assert PASSWORD not in str(caught.value)


class OwnEnv(Env):
    """Such as a simulation: nobody else has it."""


@pytest.mark.parametrize("kind", ["simulation", "memory"])
def test_a_world_of_this_process_does_not_travel(tmp_path: Path, kind: str) -> None:
    place, env = ("memory:/w/own", None) if kind == "memory" else (str(tmp_path), OwnEnv(LocalFileIO()))
    catalog = Catalog(place, env=env)
    table = catalog.create_table("db.t", schema={"k": "BIGINT"}, options={"bucket": "-1"}, if_not_exists=True)
    with table.writer("u") as writer:
        writer.write([{"k": 1}])
        writer.commit()
    scan, stream = table.scan(), table.engine.split_stream(StreamRequest(scan_mode="latest-full"))
    for carrier in (table, scan, table.changelog(from_snapshot=1), stream):
        with pytest.raises(InvalidRequestError, match="db.t cannot be sent to another process.*open it without env="):
            pickle.dump(carrier, io.BytesIO())
    with pytest.raises(InvalidRequestError, match="stays in its process"):
        pickle.dumps(catalog)
    for again in (copy.copy(scan), copy.deepcopy(scan), copy.copy(table).scan(), copy.deepcopy(table).scan()):
        assert again.to_arrow()["k"].to_pylist() == [1]
        assert _store(again).env is table.store.env
