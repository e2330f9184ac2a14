"""The options of a table: tags that are made and removed by whoever commits."""

from __future__ import annotations

from freshet.storage.options.choices import TagCreation, TagPeriodChoice, TagPeriodFormat
from freshet.storage.options.option import DURATION, FLAG, INT, TEXT, Option, one_of


class TagOptions:
    """Tags."""

    tag_automatic_creation = Option("tag.automatic-creation", one_of(TagCreation), TagCreation.NONE)
    """Whether whoever commits makes a tag of each period that has ended: by the time of the commits (`process-time`) or
    by their watermarks (`watermark`). The tag of a period holds the first snapshot after it. `batch`: `Table.writer`
    leaves a tag of the day when it is closed. Commits to a write-only table make no tags of periods."""
    tag_creation_period = Option("tag.creation-period", one_of(TagPeriodChoice), TagPeriodChoice.DAILY)
    """The period of an automatic tag."""
    tag_creation_period_duration_ms = Option("tag.creation-period-duration", DURATION, None, above=0)
    """A period of any whole number of minutes, instead of `tag.creation-period`; names are then `yyyyMMddHHmm`."""
    tag_creation_delay_ms = Option("tag.creation-delay", DURATION, 0)
    """How long after the end of a period its tag is made, for rows that come late. Shorter than the period."""
    tag_period_formatter = Option("tag.period-formatter", one_of(TagPeriodFormat), TagPeriodFormat.WITH_DASHES)
    """How the names of daily and hourly tags are written: `2026-03-01 09`, `20260301 09` or `2026030109`."""
    tag_automatic_completion = Option("tag.automatic-completion", FLAG, False)
    """Periods without a commit get tags too: each later snapshot becomes the tag of one of them, the oldest first."""
    tag_batch_customized_name = Option("tag.batch.customized-name", TEXT, None)
    """Name of the tag that `batch` leaves, instead of `batch-write-yyyy-MM-dd`."""
    tag_num_retained_max = Option("tag.num-retained-max", INT, None, above=0)
    """Automatic tags that are kept at most: when one is made, the oldest ones go. Tags with other names stay."""
    tag_default_time_retained_ms = Option("tag.default-time-retained", DURATION, None, above=0)
    """How long tags stay, automatic ones and those that are made without a time of their own."""
    tag_time_expire_enabled = Option("tag.time-expire-enabled", FLAG, True)
    """Whoever commits removes tags whose time is over."""
    sink_process_time_zone = Option("sink.process-time-zone", TEXT, None)
    """Time zone of automatic tags by the time of commits, such as `Europe/Berlin` or `GMT-08:00`; the machine's unless
    set."""
    sink_watermark_time_zone = Option("sink.watermark-time-zone", TEXT, "UTC")
    """Time zone of automatic tags by watermarks."""
