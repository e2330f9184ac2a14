"""The options of one table, parsed: what code reads.

    CoreOptions.parse(options, has_primary_key=…)          a new table: unknown keys are refused with the nearest one
    CoreOptions.parse(options, has_primary_key=…, strict=False)   any table: unknown keys are tolerated

Which options there are, with their types and defaults, is in `options.declared`; how sizes and durations are spelled is
in `options.values`; whether a table may be read or written with its options is asked of `check_access`.

Source: FORMAT.md §15.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NoReturn

from freshet.storage.exceptions import InvalidRequestError, UnsupportedFeatureError
from freshet.storage.model.schema import TableSchema
from freshet.storage.options.choices import (
    DYNAMIC_BUCKET,
    LogChangelogMode,
    LogConsistency,
    LogSystem,
    MergeEngine,
    SortOrder,
    TagPeriodChoice,
)
from freshet.storage.options.declaration import ATTRIBUTES, DeclaredOptions, nearest_key, option_status, refusals
from freshet.storage.options.option import LATER, Access
from freshet.storage.options.secrets import shown_text
from freshet.storage.options.values import LONG_MAX
from freshet.storage.paths import POSTPONE_BUCKET

KEYED_TARGET_FILE_SIZE_BYTES: Final = 128 * 1024 * 1024
APPEND_TARGET_FILE_SIZE_BYTES: Final = 256 * 1024 * 1024

HOUR_MS: Final = 3_600_000
PERIOD_MS: Final = {
    TagPeriodChoice.DAILY: 24 * HOUR_MS,
    TagPeriodChoice.HOURLY: HOUR_MS,
    TagPeriodChoice.TWO_HOURS: 2 * HOUR_MS,
}

_DEFAULTS: Final = {name: option.default for name, option in ATTRIBUTES.items()}
_ATTRIBUTE_OF: Final = {key: name for name, option in ATTRIBUTES.items() for key in (option.key, *option.former)}
_POSITIONS: Final = {name: position for position, name in enumerate(ATTRIBUTES)}

_REFUSALS: Final = tuple(refusals())


class CoreOptions(DeclaredOptions):
    """The options of one table as frozen attributes; keys that were not given have their defaults."""

    has_primary_key: bool
    given: Mapping[str, str]
    """What was given, as text, with keys that mean nothing here."""

    def __init__(self, values: Mapping[str, Any], given: Mapping[str, str], *, has_primary_key: bool) -> None:
        """`values` by attribute; use `parse`."""
        # In `__dict__` they hide the declarations, which are attributes of the class.
        self.__dict__.update(_DEFAULTS, **values, given=given, has_primary_key=has_primary_key)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"options are not changed ({name}); parse others")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CoreOptions) and self.__dict__ == other.__dict__

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        values = {**self._changed(), "has_primary_key": self.has_primary_key}
        return f"CoreOptions({', '.join(f'{name}={value!r}' for name, value in values.items())})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self._changed(), self.given, self.has_primary_key)

    def _changed(self) -> dict[str, Any]:
        return {name: value for name, default in _DEFAULTS.items() if (value := getattr(self, name)) != default}

    @classmethod
    def parse(
        cls,
        options: Mapping[str, str],
        *,
        has_primary_key: bool,
        schema_version: int = 3,
        strict: bool = True,
    ) -> CoreOptions:
        """Reads the options of a table.

        `strict` refuses unknown keys, for options that a user typed here; those of a table that another program may
        have made are read with `strict=False`. Raises `InvalidRequestError` that names the option.
        """
        if strict:
            check_option_keys(options)
        given = {_ATTRIBUTE_OF[key] for key in options.keys() & _ATTRIBUTE_OF}
        # In the order of their declaration, so that of several wrong ones always the same is named.
        values = {name: ATTRIBUTES[name].of(options) for name in sorted(given, key=_POSITIONS.__getitem__)}
        if schema_version < 3:
            values.setdefault("file_format", "orc")
        return cls(values, dict(options), has_primary_key=has_primary_key)

    @property
    def target_file_size_bytes(self) -> int:
        """Size at which a file is closed: 128 MB for keyed tables, 256 MB for append tables, unless it is set."""
        default = KEYED_TARGET_FILE_SIZE_BYTES if self.has_primary_key else APPEND_TARGET_FILE_SIZE_BYTES
        return self.target_file_size_given_bytes or default

    @property
    def compaction_file_size_bytes(self) -> int:
        """Files smaller than this are small: compaction rewrites them rather than leaving them as they are."""
        return int(self.target_file_size_bytes * self.compaction_small_file_ratio)

    @property
    def num_levels(self) -> int:
        """Levels, level 0 included; more if there are files above."""
        return self.num_levels_given or self.compaction_trigger + 1

    @property
    def stop_trigger(self) -> int:
        """Sorted runs at which writing waits for compaction; never below the compaction trigger."""
        given = self.stop_trigger_given
        return max(self.compaction_trigger + 3 if given is None else given, self.compaction_trigger)

    @property
    def needs_lookup(self) -> bool:
        """True when level 0 holds changes and the lowest level above holds the whole rows: MERGING.md §0, §2.7."""
        return self.has_primary_key and (
            self.merge_engine is MergeEngine.FIRST_ROW
            or self.changelog_producer.emits.by_lookup
            or self.deletion_vectors_enabled
            or self.force_lookup
        )

    @property
    def commits_empty_level_0(self) -> bool:
        """True when a commit waits until what it wrote was compacted together with the rows it replaces."""
        return self.needs_lookup and (self.lookup_wait or self.commit_force_compact)

    @property
    def takes_whole_rows(self) -> bool:
        """True when a row is all that there is of its key: columns that it lacks do not stay as they were."""
        return self.merge_engine in (MergeEngine.DEDUPLICATE, MergeEngine.FIRST_ROW)

    @property
    def numbers_rows(self) -> bool:
        """True when of two rows of a bucket the one to which its writer gave the larger number is the later one."""
        if self.has_primary_key:
            return not self.sequence_snapshot_ordering
        return self.bucket > 0 and self.bucket_append_ordered

    @property
    def has_dynamic_buckets(self) -> bool:
        """True when an index says which bucket a key is in."""
        return self.has_primary_key and self.bucket == DYNAMIC_BUCKET

    @property
    def follows_early(self) -> bool:
        """True when rows may become files, with sequence numbers, before the commit, or are assigned to buckets."""
        if self.has_dynamic_buckets:
            return True
        if not self.has_primary_key:
            return self.bucket > 0
        return not self.write_buffer_spillable or self.write_buffer_spill_max_disk_size_bytes < LONG_MAX

    @property
    def has_postponed_buckets(self) -> bool:
        """True when rows may wait in files of no bucket until a compaction finds their buckets (`bucket=-2`)."""
        return self.has_primary_key and self.bucket == POSTPONE_BUCKET

    @property
    def makes_commits_wait(self) -> bool:
        """True when the rows of plain commits wait for their bucket, too."""
        return self.has_postponed_buckets and not self.postpone_batch_write_fixed_bucket

    @property
    def compacts_elsewhere(self) -> bool:
        """True when writers leave all compaction to others."""
        return self.write_only or self.has_postponed_buckets

    @property
    def hides_level_0(self) -> bool:
        """True when rows show only once they were compacted: until then it is unknown which rows they replace."""
        if not self.has_primary_key:
            return False
        has_vectors = self.deletion_vectors_enabled and not self.deletion_vectors_merge_on_read
        return self.merge_engine is MergeEngine.FIRST_ROW or has_vectors

    @property
    def full_compaction_delta_commits(self) -> int | None:
        """Commits from one full compaction to the next; None if there are none."""
        if self.full_compaction_delta_commits_given is not None:
            return self.full_compaction_delta_commits_given
        return 1 if self.changelog_producer.emits.only_at_highest_level else None

    @property
    def lookup_compact_max_interval(self) -> int:
        """Compaction rounds that a gentle table may skip before it compacts level 0; never below the trigger."""
        given = self.lookup_compact_max_interval_given
        return max(self.compaction_trigger, 2 * self.compaction_trigger if given is None else given)

    @property
    def sequence_descending(self) -> bool:
        """True when the smaller sequence value wins."""
        return self.sequence_field_sort_order is SortOrder.DESCENDING

    @property
    def logs_before_images(self) -> bool:
        """True when the log has the rows before updates too (`log.changelog-mode`, `log.ignore-delete`)."""
        if self.has_primary_key and self.log_ignore_delete:
            return False
        if self.log_changelog_mode is not LogChangelogMode.AUTO:
            return self.log_changelog_mode is LogChangelogMode.ALL
        emits = self.changelog_producer.emits
        return not self.has_primary_key or emits.with_commit or (emits.in_compactions and self.publishes_changes)

    @property
    def has_log(self) -> bool:
        """True when changes are logged, or published to a log."""
        return self.log_system is not LogSystem.NONE

    @property
    def logs_changes(self) -> bool:
        """True when changes are logged before their commit."""
        return self.has_log and self.log_consistency is LogConsistency.EVENTUAL

    @property
    def publishes_changes(self) -> bool:
        """True when committed changes are published to a log after their commit."""
        return self.has_log and self.log_consistency is LogConsistency.TRANSACTIONAL

    @property
    def changelog_is_decoupled(self) -> bool:
        """True when changelogs are to outlive their snapshots."""
        return (
            (self.changelog_num_retained_min or 0) > self.snapshot_num_retained_min
            or (self.changelog_num_retained_max or 0) > self.snapshot_num_retained_max
            or (self.changelog_time_retained_ms or 0) > self.snapshot_time_retained_ms
        )

    @property
    def tag_period_ms(self) -> int:
        """Length of the period of an automatic tag."""
        given = self.tag_creation_period_duration_ms
        return PERIOD_MS[self.tag_creation_period] if given is None else given

    def format_at_level(self, level: int) -> str:
        """File format of a level."""
        return dict(self.file_format_per_level).get(str(level), self.file_format).lower()

    def compression_at_level(self, level: int) -> str:
        """Compression codec of a level."""
        return dict(self.file_compression_per_level).get(str(level), self.file_compression).lower()

    def changelog_format_at_level(self, level: int) -> str:
        """File format of changelog files."""
        return (self.changelog_file_format_given or self.format_at_level(level)).lower()

    def changelog_compression_at_level(self, level: int) -> str:
        """Compression codec of changelog files."""
        return (self.changelog_file_compression_given or self.compression_at_level(level)).lower()

    def changelog_stats_mode_at_level(self, level: int) -> str:
        """Statistics mode of columns of changelog files that have none of their own."""
        return self.changelog_file_stats_mode_given or self.stats_mode_at_level(level)

    def stats_mode_at_level(self, level: int) -> str:
        """Statistics mode of columns that have none of their own."""
        return dict(self.metadata_stats_mode_per_level).get(str(level), self.metadata_stats_mode)

    def field_option(self, column: str, name: str) -> str | None:
        """Value of `fields.<column>.<name>`."""
        return self.given.get(f"fields.{column}.{name}")


def check_option_keys(options: Iterable[str]) -> None:
    """Raises `InvalidRequestError` for a key that has no meaning anywhere, with the nearest one."""
    for key in options:
        if option_status(key) is None:
            near = nearest_key(key)
            hint = f"did you mean {near}?" if near else "options are spelled as in Apache Paimon, such as merge-engine"
            raise InvalidRequestError(f"unknown option {key!r}; {hint}", option=key)


def _restored(values: Mapping[str, Any], given: Mapping[str, str], has_primary_key: bool) -> CoreOptions:
    return CoreOptions(values, given, has_primary_key=has_primary_key)


def check_access(options: CoreOptions, access: Access, where: str, keys: Collection[str] | None = None) -> None:
    """The check whether a table may be created, written or read with its options; the refusals are declared with the
    options.

    Raises `UnsupportedFeatureError` for the first option that forbids the access; `where` names the table.

    With `keys` only these options are looked at.
    """
    verb = ("read", "written", "created")[access]
    for key, refusal in _REFUSALS:
        if keys is not None and key not in keys:
            continue
        text = _value(options, key)
        if text is not None and refusal.access <= access and refusal.applies(text, options.has_primary_key):
            given = f"{key}={shown_text(text)}"
            raise UnsupportedFeatureError(
                f"table {where} cannot be {verb}: {given} is not supported ({refusal.reason}); {refusal.remedy}",
                option=key,
            )
    for key, text in options.given.items():
        if (keys is None or key in keys) and key.endswith(".map.storage-layout") and text.lower() != "default":
            raise UnsupportedFeatureError(
                f"table {where} cannot be {verb}: {key}={text} is not supported; {LATER}", option=key
            )


def _value(options: CoreOptions, key: str) -> str | None:
    """Text of an option; `bucket` and `file.format` also by their defaults."""
    if key == "bucket":
        return str(options.bucket)
    if key == "file.format":
        return options.file_format
    return options.given.get(key)


def readable_options(schema: TableSchema, location: str, options: Mapping[str, str] | None = None) -> CoreOptions:
    """The schema's options, or these in their place; raises `UnsupportedFeatureError` where the table cannot be read
    rightly, `InvalidRequestError` where a value is none that an option may have."""
    try:
        parsed = CoreOptions.parse(
            schema.options if options is None else options,
            has_primary_key=schema.has_primary_key,
            schema_version=schema.version,
            strict=False,
        )
    except InvalidRequestError as error:
        raise error.reworded(f"table {location}: {error}", table=location) from error
    check_access(parsed, Access.READ, location)
    return parsed
