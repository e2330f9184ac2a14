"""The page of all metrics (`tests.docs.reference`), and the names of their samples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from freshet.pipeline.running.metric_list import (
    BUILD_INFO,
    HISTOGRAMS,
    OWN,
    PIPELINE_GAUGES,
    PREFIX,
    RESTARTS,
    RUN_COUNTERS,
    TABLE_GAUGES,
)
from freshet.pipeline.running.metrics import KEPT_MAX_S, KEPT_S

HEAD: Final = """\
# Metrics

This page is made from the code (`make reference`); do not edit it.

`freshet run` publishes them with `metrics:` in a [pipeline file](pipeline-keys.md) or
[`--metrics-port`](commands.md#freshet-run), `freshet exporter` for tables and pipelines whose files it reads; how, and
what to do when an alert fires, is in [Metrics and alerts](../how-to/metrics-and-alerts.md). Units are seconds and
bytes. Labels are `pipeline` (empty of tables by themselves), `database` and `table`, and what a metric names here; none
has the partition or the bucket.

"""

_OF_FILES: Final = (
    "They show what [`freshet status`](commands.md#freshet-status) shows, from the same function, so a restart does "
    f"not reset them. Files are read when somebody asks, and what was read is kept for {KEPT_S:g} seconds, up to "
    f"{KEPT_MAX_S:g} where reading takes long. What is not known is absent.\n\n"
)


def markdown() -> str:
    """The whole page."""
    histograms = ((each.name, "", f"{each.text} Up to {_bounds(each.bounds)}.") for each in HISTOGRAMS)
    counters = [*RUN_COUNTERS, RESTARTS]
    return "".join(
        [
            HEAD,
            "## Of a pipeline\n\nGauges. ",
            _OF_FILES,
            _table((each.name, each.by or "", each.text) for each in PIPELINE_GAUGES),
            "\n## Of a table\n\nGauges, by the same rules. Those from `level0_files_max` on are there of a table that "
            "is looked at in detail: that of a pipeline (of `sync` none), one that the exporter is given by name, and "
            "the 100 of a warehouse that are furthest behind.\n\n",
            _table((each.name, each.by or "", each.text) for each in TABLE_GAUGES),
            "\n## Of a run\n\nCounters since the process began.\n\n",
            _table((f"{each.name}_total", each.by or "", each.text) for each in counters),
            "\nHistograms over its batches.\n\n",
            _table(histograms),
            "\n## Of whoever publishes\n\n",
            _table((name, "version" if name == BUILD_INFO else "", text) for name, text in OWN.items()),
        ]
    )


def sample_names() -> set[str]:
    """The names that expressions may have."""
    names = {each.name for each in (*PIPELINE_GAUGES, *TABLE_GAUGES)} | set(OWN)
    names |= {f"{each.name}_total" for each in (*RUN_COUNTERS, RESTARTS)}
    names |= {f"{each.name}_{part}" for each in HISTOGRAMS for part in ("bucket", "sum", "count")}
    return {f"{PREFIX}{name}" for name in names}


def _bounds(bounds: Iterable[float]) -> str:
    return ", ".join(f"{bound:g}" for bound in bounds)


def _table(rows: Iterable[tuple[str, str, str]]) -> str:
    def lines() -> Iterator[str]:
        yield "| metric | label | |\n|---|---|---|\n"
        for name, label, text in rows:
            yield f"| `{PREFIX}{name}` | {f'`{label}`' if label else ''} | {text} |\n"

    return "".join(lines())
