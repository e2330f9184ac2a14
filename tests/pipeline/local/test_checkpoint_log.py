"""The texts of a checkpoint: byte for byte Spark's, and what is refused by name."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from freshet.pipeline.errors.error_kind import ErrorKind
from freshet.pipeline.exceptions import ConfigurationError, PipelineFailedError
from freshet.pipeline.identity.checkpoint_folder import LocalCheckpoint
from freshet.pipeline.identity.checkpoint_offsets import finished_lines, unfinished_batch
from freshet.pipeline.identity.checkpoint_owner import query_id_of
from freshet.pipeline.local.stream_checkpoint import (
    CONF,
    SHUFFLE_PARTITIONS,
    StreamCheckpoint,
    first_offsets,
    parsed_offsets,
)

SPARKS = (
    'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1795933688349,"conf":{"spark.sql.shuffle.partitions":"2",'
    '"spark.sql.streaming.multipleWatermarkPolicy":"min"}}\n{"orders":{"1":7,"0":5}}\n-'
)
DONE = 'v1\n{"nextBatchWatermarkMs":0}'


def test_what_spark_wrote_is_written_again_byte_for_byte() -> None:
    found = parsed_offsets(SPARKS, "offsets/0")
    assert found.offsets == ('{"orders":{"1":7,"0":5}}', None)
    assert found.text() == SPARKS


def test_the_conf_of_spark_is_carried_on_and_a_new_one_leaves_the_tasks_to_spark(tmp_path: Path) -> None:
    spark, fresh = LocalCheckpoint(tmp_path / "a"), LocalCheckpoint(tmp_path / "b")
    for name, text in (("offsets", SPARKS), ("commits", DONE)):
        assert spark.create(name, "0", text=text)
    assert spark.create("metadata", text='{"id":"3a"}')
    log = StreamCheckpoint(spark, 2, {SHUFFLE_PARTITIONS: "9"})
    assert (log.query_id, log.next_number, log.is_planned) == ("3a", 1, False)
    log.plan(['{"orders":{"1":8,"0":5}}', None], 1795933690000)
    log.settle()
    written = (spark.read("offsets", "1") or "").split("\n")
    assert written[1] == SPARKS.split("\n")[1].replace("1795933688349", "1795933690000")
    assert written[2:] == ['{"orders":{"1":8,"0":5}}', "-"]
    assert unfinished_batch(spark) == 1
    log.commit()
    assert spark.read("commits", "1") == DONE
    assert finished_lines(spark) == written[2:]

    log = StreamCheckpoint(fresh, 1, {})
    log.plan(["{}"], 5)
    log.settle()
    settings = orjson.loads((fresh.read("offsets", "0") or "").split("\n")[1])
    assert settings == {"batchWatermarkMs": 0, "batchTimestampMs": 5, "conf": dict(CONF)}
    assert (fresh.read("metadata") or "") == f'{{"id":"{query_id_of(fresh)}"}}'
    given = first_offsets({SHUFFLE_PARTITIONS: "9", "spark.executor.memory": "1g"}).settings["conf"]
    assert given == {**CONF, SHUFFLE_PARTITIONS: "9"}


def _checkpoint(folder: Path, **files: str) -> LocalCheckpoint:
    checkpoint = LocalCheckpoint(folder)
    for name, text in {"metadata": '{"id":"3a"}', **files}.items():
        checkpoint.create(*name.split("_"), text=text)
    return checkpoint


OTHER_CONF = SPARKS.replace('"min"', '"min","spark.sql.streaming.queryEvolution.enableSourceEvolution":"true"')


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"offsets_0": SPARKS.replace("v1", "v2", 1)}, r"offsets/0 is of version 2, .*source evolution.*run_on: spark"),
        ({"offsets_0": OTHER_CONF}, r"offsets/0 is of a query with source evolution"),
        ({"offsets_0": SPARKS, "commits_0": DONE.replace("v1", "v2")}, r"commits/0 is of version 2, .*another name"),
        ({"offsets_0": SPARKS, "state_0_metadata": "x"}, r"state: .* the state of a query that Spark alone runs"),
        ({"offsets_0": SPARKS.replace("\n-", "")}, r"offsets/0 is of 1 sources, and the pipeline has 2"),
    ],
)
def test_what_spark_alone_can_go_on_with_is_refused(tmp_path: Path, files: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        StreamCheckpoint(_checkpoint(tmp_path, **files), 2, {})


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"offsets_0": ""}, r"offsets/0 is empty or damaged.*remove it"),
        ({"offsets_0": "v1"}, r"offsets/0 is empty or damaged"),
        ({"offsets_0": SPARKS.replace('{"batch', "{batch")}, r"offsets/0 is empty or damaged"),
        ({"offsets_0": SPARKS.replace("}}\n", "}\n")}, r"offsets/0 is empty or damaged"),
        ({"offsets_0": SPARKS.replace("\n-", "\n7")}, r"offsets/0 is empty or damaged"),
        ({"offsets_0": SPARKS, "commits_0": ""}, r"commits/0 is empty or damaged"),
        ({"offsets_0": SPARKS, "metadata": ""}, r"metadata does not say whose checkpoint it is"),
        ({"commits_0": DONE}, r"offsets/0 is missing"),
        ({"offsets_3": SPARKS}, r"offsets/0 is missing"),
        ({"offsets_0": SPARKS, "commits_1": DONE}, r"offsets/1 is missing"),
        ({"offsets_0": SPARKS, "commits_0": DONE, "offsets_2": SPARKS}, r"offsets/1 is missing"),
    ],
)
def test_what_is_damaged_is_named(tmp_path: Path, files: dict[str, str], said: str) -> None:
    with pytest.raises(PipelineFailedError, match=said) as raised:
        StreamCheckpoint(_checkpoint(tmp_path, **files), 2, {})
    assert raised.value.kind is ErrorKind.CORRUPT_DATA
    assert str(tmp_path) in str(raised.value)


@pytest.mark.parametrize("octets", [b"\xb1\xff", SPARKS.encode("utf-16"), b"v1\n{}\n\xe9"])
@pytest.mark.parametrize("name", ["offsets/0", "offsets/1", "commits/0"])
def test_a_file_that_is_no_text_is_damaged(tmp_path: Path, name: str, octets: bytes) -> None:
    checkpoint = _checkpoint(tmp_path, offsets_0=SPARKS, commits_0=DONE, offsets_1=SPARKS)
    tmp_path.joinpath(name).write_bytes(octets)
    with pytest.raises(PipelineFailedError, match=rf"{name} is empty or damaged.*[Rr]emove it") as raised:
        StreamCheckpoint(checkpoint, 2, {}).offsets(0)
    assert raised.value.kind is ErrorKind.CORRUPT_DATA


def test_a_checkpoint_without_its_metadata_is_no_new_one(tmp_path: Path) -> None:
    """Its batches would get another identity."""
    checkpoint = _checkpoint(tmp_path, offsets_0=SPARKS)
    checkpoint.delete("metadata")
    with pytest.raises(PipelineFailedError, match="restore it from a backup"):
        StreamCheckpoint(checkpoint, 2, {})
    assert checkpoint.read("metadata") is None


def test_two_open_batches_are_run_in_their_order(tmp_path: Path) -> None:
    """Spark skips the older one."""
    files = {f"offsets_{number}": SPARKS.replace(":7", f":{number}") for number in range(4)}
    log = StreamCheckpoint(_checkpoint(tmp_path, **files, commits_1=DONE), 2, {})
    for number in (2, 3):
        assert (log.next_number, log.is_planned) == (number, True)
        assert (log.offsets(number) or ("",))[0] == f'{{"orders":{{"1":{number},"0":5}}}}'
        log.commit()
    assert (log.next_number, log.is_planned) == (4, False)


def test_a_full_disk_is_worth_another_try(tmp_path: Path) -> None:
    class Full(LocalCheckpoint):
        def create(self, *names: str, text: str) -> bool:
            raise OSError(28, "No space left on device", self.place(*names))

    log = StreamCheckpoint(_checkpoint(tmp_path), 1, {})
    log.folder = Full(tmp_path)
    log.plan(["{}"], 1)
    with pytest.raises(PipelineFailedError, match=r"checkpoint .* cannot be written: No space left.*Make room") as full:
        log.settle()
    assert full.value.kind is ErrorKind.RETRYABLE
