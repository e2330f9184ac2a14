"""Where the log is after each kind of commit, as a truth table, and through real commits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from freshet.storage.commit.changes import LogChange, next_log
from freshet.storage.commit.committer import Committer
from freshet.storage.exceptions import ConflictError, InvalidRequestError, UnknownOutcomeError
from freshet.storage.model.commit_message import CommitMessage
from freshet.storage.model.data_file import EMPTY_ROW
from freshet.storage.model.manifest import BucketId
from freshet.storage.model.snapshot import CommitKind
from freshet.storage.model.table_log import (
    LOG_PROPERTY,
    NO_BATCH,
    LogIdentity,
    LogIncrement,
    LogProgress,
    log_of,
    log_to_text,
)
from tests.kit.hand_made import make_table, message, new_file
from tests.kit.log_model import progress_of
from tests.kit.sim_env import SimDisk

LOG = LogIdentity("orders", "id-1", "u", {0: 4, 1: 0})
BUCKET = (EMPTY_ROW, 0)
BEFORE = LogProgress(LOG, 0, 6, {0: 20, 1: 5}, {BUCKET: LogIncrement(1, 0, 20, 3, "aa")})


def won(next_offset: int = 30) -> Mapping[BucketId, LogIncrement]:
    return {BUCKET: LogIncrement(2, 0, next_offset, 3, "bb")}


def after(
    before: LogProgress | None,
    change: LogChange,
    kind: CommitKind = CommitKind.APPEND,
    *,
    log: LogIdentity | None = LOG,
    last: int | None = 6,
) -> LogProgress | None:
    return next_log(before, change, kind, log=log, identifier=7, last_identifier=last)


def test_a_batch_is_stable_with_the_snapshot_that_holds_what_was_logged() -> None:
    done = LogProgress(LOG, 0, 7, {0: 30, 1: 5}, won())
    assert after(BEFORE, LogChange(won())) == done
    assert after(BEFORE, LogChange(won()), CommitKind.COMPACT, last=7) == done


def test_an_empty_batch_is_stable_too_and_carries_the_full_vector() -> None:
    assert after(BEFORE, LogChange()) == LogProgress(LOG, 0, 7, {0: 20, 1: 5}, {})


def test_an_append_whose_compaction_logs_makes_only_that_stable_what_came_before_it() -> None:
    pending = LogChange(is_pending=True)
    assert after(BEFORE, pending) == BEFORE
    lost = after(replace(BEFORE, batch=4), pending)  # the compactions of 5 and 6 never took effect
    assert lost == LogProgress(LOG, 0, 6, {0: 20, 1: 5}, {})
    assert after(None, pending, last=None) == LogProgress(LOG, 0, NO_BATCH, {0: 4, 1: 0}, {})


def test_a_compaction_that_logged_nothing_and_other_users_change_nothing() -> None:
    assert after(BEFORE, LogChange(), CommitKind.COMPACT) == BEFORE
    assert after(BEFORE, LogChange(), log=None) == BEFORE
    assert after(None, LogChange(), log=None) is None


def test_offsets_never_go_back() -> None:
    progress = after(BEFORE, LogChange(won(next_offset=11)))
    assert progress is not None and progress.next_offsets == {0: 20, 1: 5}


def test_another_topic_begins_a_log_anew() -> None:
    other = LogIdentity("orders-2", "id-2", "v", {0: 100})
    assert after(BEFORE, LogChange(), log=other) == LogProgress(other, 1, 7, {0: 100}, {})


@pytest.mark.parametrize("other", [replace(LOG, topic_id="id-2"), replace(LOG, commit_user="v")])
def test_a_commit_for_another_log_on_the_same_topic_is_refused(other: LogIdentity) -> None:
    with pytest.raises(ConflictError, match="topic orders is written by 'u'"):
        after(BEFORE, LogChange(won()), log=other)


def test_increments_without_a_log_are_refused() -> None:
    with pytest.raises(InvalidRequestError, match="opened without the log"):
        after(BEFORE, LogChange(won()), log=None)


def test_the_text_is_read_back_and_other_text_is_refused() -> None:
    assert log_of({LOG_PROPERTY: log_to_text(BEFORE)}, 1) == BEFORE
    assert log_of({}, 1) is None
    for text in ("{", "{}", log_to_text(BEFORE).replace('"version":1', '"version":2')):
        with pytest.raises(UnknownOutcomeError, match="snapshot 9.*unreadable"):
            log_of({LOG_PROPERTY: text}, 9)


def test_what_a_compaction_logged_goes_with_its_snapshot_and_is_dropped_with_it() -> None:
    store = make_table(SimDisk().boot())
    logging = Committer(store, "u", log=LOG)
    file = new_file(store, "a")
    first = replace(message(store, new=[file]), log=LogIncrement(1, 0, 9, 2, "x"))
    [snapshot] = logging.commit(0, [first]).snapshots
    assert (progress_of(snapshot).batch, progress_of(snapshot).next_offsets) == (0, {0: 9, 1: 0})
    moved = [replace(file, level=5)]
    logged = replace(message(store, before=[file], after=moved), compact_log=LogIncrement(1, 0, 12, 1, "y"))
    append, compact = logging.commit(1, [logged]).snapshots
    assert (progress_of(append).batch, progress_of(compact).batch) == (0, 1)
    assert progress_of(compact).next_offsets == {0: 12, 1: 0}
    again = replace(logged, compact_log=LogIncrement(1, 0, 20, 1, "z"))  # the file is at another level meanwhile
    result = logging.commit(2, [again])
    assert result.aborted_compactions and [progress_of(each).batch for each in result.snapshots] == [1]
    [following] = logging.commit(3, []).snapshots
    assert (progress_of(following).batch, progress_of(following).won) == (3, {})
    assert progress_of(following).next_offsets == {0: 12, 1: 0}


def test_commits_of_others_carry_the_log_forward() -> None:
    disk = SimDisk()
    store = make_table(disk.boot())
    Committer(store, "u", log=LOG).commit(0, [CommitMessage(EMPTY_ROW, 0, 2, log=LogIncrement(1, 0, 9, 2, "x"))])
    [snapshot] = Committer(store, "other").commit(0, []).snapshots
    assert progress_of(snapshot).batch == 0 and progress_of(snapshot).next_offsets == {0: 9, 1: 0}
    with pytest.raises(InvalidRequestError, match="a log has one commit user; 'other' cannot"):
        Committer(store, "other", log=replace(LOG, commit_user="other")).log_progress()
    with pytest.raises(InvalidRequestError, match="deleted and created again"):
        Committer(store, "u", log=replace(LOG, topic_id="id-7")).log_progress()
