"""Options, topics, users and readers that do not go together with a log are refused, with what to do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from freshet.logstore.exceptions import LogConfigError
from freshet.storage.catalog import Catalog
from freshet.storage.changes.stream import SplitStream
from freshet.storage.changes.stream_request import StreamRequest
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.logs.registry import PROVIDERS
from freshet.storage.table import Table
from tests.kit.fake_log import FakeLog
from tests.logstore.logged_tables import make_logged, write


def test_a_second_user_is_refused(table: Table) -> None:
    write(table, "+I 1 a")
    with pytest.raises(InvalidRequestError, match="a log has one commit user; 'v' cannot"):
        table.writer("v")
    with pytest.raises(InvalidRequestError, match="this writer does not write it"):
        table.engine.task_writer(base_snapshot_id=None)
    with pytest.raises(InvalidRequestError, match="this writer does not write it"):
        table.engine.committer("u")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"changelog_producer": "none", "log__changelog_mode": "all"}, "needs changelog-producer=lookup or input"),
        ({"changelog_producer": "full-compaction", "log__changelog_mode": "all"}, "needs changelog-producer=lookup"),
        ({"changelog_producer": "none", "merge_engine": "partial-update"}, "merge-engine=partial-update needs"),
        ({"changelog_producer": "none", "merge_engine": "first-row"}, "merge-engine=first-row needs"),
        ({"changelog_producer": "input", "sequence__field": "v"}, "sequence.field needs changelog-producer=lookup"),
        ({"lookup_wait": "false"}, "needs lookup-wait=true"),
        ({"lookup_compact": "gentle"}, "lookup-compact=radical"),
        ({"write_only": "true"}, "write-only tables cannot have a log"),
        ({"kafka__topic": " "}, "needs the option kafka.topic"),
        ({"kafka__topic": "a topic"}, "kafka.topic=a topic: a topic has letters"),
        ({"kafka__topic": ".."}, "a topic has letters"),
        ({"kafka__topic": "t" * 242}, "241 of them at most"),
        ({"kafka__acks": "1"}, "kafka.acks=1: .* leave the option out, it is all"),
        ({"kafka__enable__idempotence": "false"}, "kafka.enable.idempotence=false"),
        ({"log__system": "none", "log__changelog_mode": "upsert"}, "log.changelog-mode=upsert needs a log"),  # V43
        ({"log__system": "none", "log__consistency": "eventual"}, "log.consistency=eventual needs a log"),  # V43
    ],
)
def test_combinations_that_are_refused(tmp_path: Path, options: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidRequestError, match=message):
        make_logged(tmp_path, **options)


def test_a_log_system_checks_its_own_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Elsewhere:
        def check_options(self, given: Mapping[str, str]) -> None:
            if "kafka.elsewhere" not in given:
                raise InvalidRequestError("a log elsewhere needs kafka.elsewhere")

    monkeypatch.setitem(PROVIDERS, "kafka", Elsewhere)
    with pytest.raises(InvalidRequestError, match="needs kafka.elsewhere"):
        make_logged(tmp_path)
    assert make_logged(tmp_path, kafka__topic="not a topic", kafka__elsewhere="there")
    monkeypatch.delitem(PROVIDERS, "kafka")
    with pytest.raises(InvalidRequestError, match="log.system=kafka is not provided here"):
        make_logged(tmp_path / "2")


def test_append_tables_without_buckets_or_with_upsert_are_refused(tmp_path: Path) -> None:  # V35, V37
    with pytest.raises(InvalidRequestError, match="upsert needs a primary key"):
        make_logged(tmp_path, keyed=False, log__changelog_mode="upsert")
    with pytest.raises(InvalidRequestError, match="bucket-key has no meaning"):
        make_logged(tmp_path, keyed=False, bucket="-1")


def test_keyed_tables_with_dynamic_buckets_are_refused_with_the_remedy(tmp_path: Path) -> None:
    for given, where in (({"bucket": "-1"}, "-1: "), ({}, "-1 where it is not set: ")):
        options = {"log.system": "kafka", "kafka.topic": "t", "kafka.bootstrap.servers": "nowhere:9", **given}
        with pytest.raises(InvalidRequestError, match=f"bucket is {where}.*set bucket to a number such as 4"):
            Catalog(str(tmp_path)).create_table("db.t", schema={"k": "INT"}, primary_keys=["k"], options=options)


def test_a_topic_that_does_not_fit_is_refused(log: FakeLog, table: Table) -> None:
    log.client().create_topic("t", 3, {})
    with pytest.raises(LogConfigError, match="has 1 buckets and topic t of its log 3 partitions"):
        table.writer("u")
    log.topics.clear()
    log.client().create_topic("t", 1, {"cleanup.policy": "compact"})
    with pytest.raises(LogConfigError, match="cleanup.policy=compact"):
        table.writer("u")


def test_what_cannot_be_read_is_refused(log: FakeLog, tmp_path: Path) -> None:
    upserts = make_logged(tmp_path / "1", changelog_producer="none")
    with pytest.raises(InvalidRequestError, match="upserts=True"):
        upserts.engine.split_stream()
    with pytest.raises(LogConfigError, match="logs no rows before updates"):
        upserts.engine.split_stream(StreamRequest(isolation="speculative", upserts=True))
    with pytest.raises(InvalidRequestError, match="isolation is one of"):
        make_logged(tmp_path / "2", kafka__topic="t2").engine.split_stream(StreamRequest(isolation="serializable"))
    plain = make_logged(tmp_path / "3", log__system="none")
    assert isinstance(plain.engine.split_stream(), SplitStream)
    with pytest.raises(InvalidRequestError, match="has no log"):
        plain.engine.split_stream(StreamRequest(isolation="committed"))
