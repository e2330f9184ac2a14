"""Takes away the rows of partitions that have expired, as OVERWRITE snapshots: after commits, at their end, by hand.

After a commit a program looks for such partitions once in `partition.expiration-check-interval`, the first time at
random within it, before snapshots expire. Each batch of partitions is one snapshot, under a made-up user that leaves no
trace: making it again takes away what is there then. (Apache Paimon uses the user and the identifier of the commit.)

What others commit meanwhile to a partition that was chosen by its values goes too, as late rows do with the next look.
By `update-time` each round of the commit judges again: a partition that has got a file is not old any more, and stays.

Source: FORMAT.md §3.6, §12.
"""

from __future__ import annotations

import datetime
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from weakref import WeakKeyDictionary

from freshet._frozen import Frozen
from freshet.storage.codec.binary_row import EPOCH_DAY_ORDINAL, ticks_per_second
from freshet.storage.codec.partition_path import partition_text
from freshet.storage.codec.time_format import DAY_NS, check_time_format, lenient_time, time_format
from freshet.storage.commit.changes import SnapshotChange
from freshet.storage.commit.committer import Committer
from freshet.storage.commit.round_change import live_in
from freshet.storage.commit.table_view import TableView
from freshet.storage.exceptions import InvalidRequestError, StorageError
from freshet.storage.io.env import CrashPoint, Env
from freshet.storage.metadata.live_files import delta_entries
from freshet.storage.metadata.table_store import TableStore
from freshet.storage.model.data_type import DataType, ScalarType, TypeRoot
from freshet.storage.model.display import ids_text
from freshet.storage.model.shown import Facts, Shown
from freshet.storage.model.snapshot import CommitKind, Snapshot
from freshet.storage.options.choices import OnLakeOnly
from freshet.storage.options.core import CoreOptions
from freshet.storage.options.declared.commits import STRATEGIES

_LOG: Final = logging.getLogger(__name__)

AGE: Final = "partition.expiration-time"
USER_PREFIX: Final = "freshet-expire-"
SHOWN: Final = 3
"""Partitions that a warning names."""

_CHECKED: Final[WeakKeyDictionary[Env, dict[str, int]]] = WeakKeyDictionary()
"""When partitions of a table were looked at last, by its location."""

_MS_NS: Final = 10**6
_UPDATE_TIME: Final = "update-time"
_DELIMITER: Final = ","


@dataclass(frozen=True, slots=True, repr=False)
class PartitionExpiry(Shown):
    """Partitions as values by key: those that expired (or would, with `dry_run`), in their order, and those whose
    values say no time, which stay. `snapshot_ids` took them away."""

    partitions: tuple[Mapping[str, str], ...] = ()
    unclear: tuple[Mapping[str, str], ...] = ()
    snapshot_ids: tuple[int, ...] = ()
    dry_run: bool = False

    def _shown(self) -> Facts:
        yield from (("not committed", self.dry_run), ("partitions", _names(self.partitions) or "none"))
        yield from (("of no time that can be read", _names(self.unclear)), ("snapshots", ids_text(self.snapshot_ids)))


def _names(partitions: Sequence[Mapping[str, str]]) -> str:
    return "; ".join("/".join(f"{key}={text}" for key, text in each.items()) for each in partitions)


class Expiration(Frozen):
    """The change of a commit that takes partitions away, judged by what each of its rounds sees."""

    rows: frozenset[bytes]
    rule: PartitionRule
    before_ms: int

    def upon(self, store: TableStore, view: TableView) -> SnapshotChange:
        """All that is live in the partitions as deleted."""
        gone, index = live_in(store, view.latest, self.rows.__contains__)
        if self.rule.strategy == _UPDATE_TIME:
            newest = newest_files((entry.partition, entry.file.creation_time_ms) for entry in gone)
            old = {row for row, time_ms in newest.items() if time_ms is not None and time_ms < self.before_ms}
            gone = tuple(entry for entry in gone if entry.partition in old)
            index = tuple(entry for entry in index if entry.partition in old)
        return SnapshotChange(CommitKind.OVERWRITE, gone, index_entries=index)


def expire_partitions(
    store: TableStore,
    *,
    older_than_ms: int | None = None,
    max_num: int | None = None,
    dry_run: bool = False,
) -> PartitionExpiry:
    """Takes away partitions by the options of the table; an age and a number that are given count before those."""
    store.check_is_there()
    if not store.schema.partition_keys:
        raise InvalidRequestError(f"table {store.name} has no partitions that could expire", table=store.name)
    age_ms = store.options.partition_expiration_time_ms if older_than_ms is None else older_than_ms
    if age_ms is None:
        raise InvalidRequestError(
            f"table {store.name} has no {AGE}: give the age of partitions that expire, or set the option",
            table=store.name,
            option=AGE,
        )
    if age_ms < 0 or (max_num is not None and max_num < 1):
        raise InvalidRequestError(
            f"the age of partitions that expire is 0 or more, and their number 1 or more; given are {age_ms} ms and "
            f"{max_num}"
        )
    if not dry_run:
        store.check_writable()
        _check_log(store)
    found = _chosen(store, store.snapshots.latest(), age_ms, max_num)
    if dry_run:
        return _expiry(found.choice, found.rule, (), dry_run=True)
    snapshots = _take_away(store, found)
    gone = {entry.partition for each in snapshots for entry in delta_entries(store.manifests, each)}
    expired = tuple(each for each in found.choice.expired if each.row in gone)
    return _expiry(replace(found.choice, expired=expired), found.rule, snapshots)


def expire_partitions_after_commit(store: TableStore, latest: Snapshot) -> Snapshot:
    """Takes partitions away where it is time to look for them, after a commit; the latest snapshot then. Failures are
    logged: the commit is there."""
    return _follow(store, latest) if _expires(store) and _is_due(store) else latest


def expire_partitions_at_end(store: TableStore, latest: Snapshot) -> None:
    """The same at the end of a program that has committed, where the table asks for it, whatever the interval."""
    if _expires(store) and store.options.end_input_check_partition_expire:

        def expire() -> None:
            _follow(store, latest)

        store.env.run_later(f"partitions of {store.location}", expire)


class _Expired(Frozen):
    """What is to be taken away, and what was older than when."""

    choice: ExpiryChoice
    rule: PartitionRule
    before_ms: int


def _expires(store: TableStore) -> bool:
    options = store.options
    is_set = options.partition_expiration_time_ms is not None
    return is_set and bool(store.schema.partition_keys) and not options.write_only


def _is_due(store: TableStore) -> bool:
    interval_ms, now_ms = store.options.partition_expiration_check_interval_ms, store.env.now_ms()
    checked = _CHECKED.setdefault(store.env, {})
    last_ms = checked.setdefault(store.location, now_ms - int(interval_ms * store.env.jitter()))
    if interval_ms and now_ms <= last_ms + interval_ms:
        return False
    checked[store.location] = now_ms
    return True


def _follow(store: TableStore, latest: Snapshot) -> Snapshot:
    options = store.options
    try:
        _check_log(store)
        store = store.at_latest_schema()
        found = _chosen(store, store.snapshots.latest(), options.partition_expiration_time_ms or 0, None)
        if found.choice.unclear:
            texts = "; ".join(found.rule.text_of(each) for each in found.choice.unclear[:SHOWN])
            _LOG.warning(
                "table %s: %d partitions never expire, their time is not known (%s): see partition.timestamp-pattern, "
                "partition.timestamp-formatter and partition.expiration-strategy=update-time",
                store.name,
                len(found.choice.unclear),
                texts,
            )
        _take_away(store, found)
        return store.snapshots.latest() or latest
    except StorageError as error:
        _LOG.warning("table %s: partitions were not expired: %s", store.name, error)
        return latest


def _chosen(store: TableStore, latest: Snapshot | None, age_ms: int, max_num: int | None) -> _Expired:
    rule = partition_rule(store.schema.partition_keys, store.partition_types, store.options)
    before_ms = store.env.creation_time_ms() - age_ms
    entries = () if latest is None else store.live.at(latest).entries()
    newest = newest_files((entry.partition, entry.file.creation_time_ms) for entry in entries)
    partitions = (Partition(row, store.partition_values(row), time_ms) for row, time_ms in newest.items())
    limit = store.options.partition_expiration_max_num if max_num is None else max_num
    return _Expired(rule.choose(partitions, before_ms, limit), rule, before_ms)


def _take_away(store: TableStore, found: _Expired) -> tuple[Snapshot, ...]:
    """One commit for each batch; a crash between two leaves the rest to the next look."""
    if not found.choice.expired:
        return ()
    made: list[Snapshot] = []
    prefix = store.options.commit_user_prefix
    user = f"{USER_PREFIX if prefix is None else prefix + '_'}{store.env.new_uuid()}"
    committer = Committer(store, user)
    for identifier, batch in enumerate(batches(found.choice.expired, store.options.partition_expiration_batch_size)):
        change = Expiration(frozenset(each.row for each in batch), found.rule, found.before_ms)
        made += committer.change(identifier, change, is_traced=False).snapshots
        store.env.reach(CrashPoint.PARTITIONS_REMOVED)
    committer.finish()
    if made:
        _LOG.info("table %s: %d partitions expired", store.name, len(found.choice.expired))
    return tuple(made)


def _check_log(store: TableStore) -> None:
    if store.options.logs_changes and store.options.log_on_lake_only is OnLakeOnly.FAIL:
        raise InvalidRequestError(
            f"table {store.name} has log.on-lake-only=fail: readers of its log would stop where partitions expire, "
            "which is not logged. Set log.on-lake-only=apply",
            table=store.name,
            option="log.on-lake-only",
        )


def _expiry(
    choice: ExpiryChoice, rule: PartitionRule, snapshots: tuple[Snapshot, ...], *, dry_run: bool = False
) -> PartitionExpiry:
    return PartitionExpiry(
        tuple(rule.texts_of(each) for each in choice.expired),
        tuple(rule.texts_of(each) for each in choice.unclear),
        tuple(each.id for each in snapshots),
        dry_run,
    )


class Partition(Frozen):
    """A partition that has live files: its serialized row, its values, and when the newest file was made (ms of the
    wall clock, None where a file does not say)."""

    row: bytes
    values: tuple[Any, ...]
    newest_file_ms: int | None


class ExpiryChoice(Frozen):
    """The partitions that expire, in their order, and those whose time is not known."""

    expired: tuple[Partition, ...]
    unclear: tuple[Partition, ...]


class PartitionRule(Frozen):
    """The rule by which partitions of one table expire: a pure decision over their values and times.

    | strategy | a partition expires when this is before now - `partition.expiration-time` |
    |---|---|
    | values-time | the time that its values say |
    | update-time | the creation time of the newest of its live files |

    The text of values-time is the first value, or `partition.timestamp-pattern` with each `$<key>` replaced, key by key
    in their order: `$d` is replaced in `$dt` too. It is read by `codec.time_format`. The first value of type DATE or
    TIMESTAMP is a time by itself where no pattern is set: Apache Paimon 2.0.0 takes the number of the day for a text,
    and never expires such partitions. What is no time stays, and so does a partition with a NULL that is asked for: the
    first value or, with a pattern, any.

    All times are of the wall clock where the program runs, in nanoseconds since 1970. At most `max_num` partitions
    expire, the first in the order of their texts.

    Source: FORMAT.md §12; the strategies and the texts are those of Apache Paimon 2.0.0.
    """

    keys: tuple[str, ...]
    types: tuple[DataType, ...]
    strategy: str
    pattern: str | None
    formatter: str | None

    def choose(self, partitions: Iterable[Partition], before_ms: int, max_num: int | None) -> ExpiryChoice:
        """The partitions that are older than a moment of the wall clock, at most so many."""
        expired: list[Partition] = []
        unclear: list[Partition] = []
        for partition in partitions:
            time_ns = self.time_ns(partition)
            if time_ns is None:
                unclear.append(partition)
            elif time_ns < before_ms * _MS_NS:
                expired.append(partition)
        return ExpiryChoice(
            tuple(sorted(expired, key=self.text_of)[:max_num]), tuple(sorted(unclear, key=self.text_of))
        )

    def time_ns(self, partition: Partition) -> int | None:
        """The time by which a partition is judged; None where its values say none."""
        if self.strategy == _UPDATE_TIME:
            return None if partition.newest_file_ms is None else partition.newest_file_ms * _MS_NS
        if self.pattern is None:
            return self._first_time(partition.values[0])
        if any(value is None for value in partition.values):
            return None
        text = self.pattern
        for key, value, data_type in zip(self.keys, partition.values, self.types, strict=True):
            text = text.replace(f"${key}", _text(value, data_type))
        return self._parsed(text)

    def text_of(self, partition: Partition) -> str:
        """The values as one text."""
        return _DELIMITER.join(self.texts_of(partition).values())

    def texts_of(self, partition: Partition) -> dict[str, str]:
        """The values as people write them, by key; NULL as its folder is called."""
        pairs = zip(partition.values, self.types, strict=True)
        texts = (partition_text(None, kind) if value is None else _text(value, kind) for value, kind in pairs)
        return dict(zip(self.keys, texts, strict=True))

    def _first_time(self, value: Any) -> int | None:
        data_type = self.types[0]
        if value is None:
            return None
        if isinstance(data_type, ScalarType) and data_type.root is TypeRoot.DATE:
            return _epoch_day(value) * DAY_NS
        if isinstance(data_type, ScalarType) and data_type.root is TypeRoot.TIMESTAMP:
            return int(value) * (10**9 // ticks_per_second(data_type.precision or 0))
        return self._parsed(_text(value, data_type))

    def _parsed(self, text: str) -> int | None:
        return lenient_time(text) if self.formatter is None else time_format(self.formatter).parse(text)


def partition_rule(keys: Sequence[str], types: Sequence[DataType], options: CoreOptions) -> PartitionRule:
    """The rule of a table; `InvalidRequestError` for a strategy or a format that is not known here."""
    strategy, formatter = options.partition_expiration_strategy, options.partition_timestamp_formatter
    if strategy not in STRATEGIES:
        raise InvalidRequestError(
            f"option partition.expiration-strategy={strategy} is not known here; give values-time or update-time",
            option="partition.expiration-strategy",
        )
    if formatter is not None:
        check_time_format(formatter)
    return PartitionRule(tuple(keys), tuple(types), strategy, options.partition_timestamp_pattern, formatter)


def batches(partitions: Sequence[Partition], size: int | None) -> list[Sequence[Partition]]:
    """The partitions of one commit each."""
    step = size or max(1, len(partitions))
    return [partitions[start : start + step] for start in range(0, len(partitions), step)]


def newest_files(files: Iterable[tuple[bytes, int | None]]) -> Mapping[bytes, int | None]:
    """The largest time among the files of each partition; None where one of them does not say."""
    found: dict[bytes, int | None] = {}
    for row, time_ms in files:
        known = found.setdefault(row, time_ms)
        found[row] = None if known is None or time_ms is None else max(known, time_ms)
    return found


def _text(value: Any, data_type: DataType) -> str:
    """A value in a pattern: dates as people write them, the rest as folders show it."""
    if isinstance(data_type, ScalarType) and data_type.root is TypeRoot.DATE:
        return partition_text(value, data_type, legacy=False)
    if isinstance(data_type, ScalarType) and data_type.root in (TypeRoot.CHAR, TypeRoot.VARCHAR):
        return str(value)  # a blank one too, which has the folder of NULL
    return partition_text(value, data_type)


def _epoch_day(value: Any) -> int:
    return value.toordinal() - EPOCH_DAY_ORDINAL if isinstance(value, datetime.date) else int(value)
