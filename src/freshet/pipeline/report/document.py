"""What a report says, as one value for JSON: status and findings as their commands print them, and what goes beyond.

| key | is |
|---|---|
| `status` | what `freshet status --json` prints of the same moment |
| `findings` | what `freshet doctor --json` prints, the worst first |
| `details` | by table curves, levels, commits, compactions, schemas (`ReportedTable.facts`) |
| `dead_letters` | by table of dead letters the causes, with samples |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from freshet._version import __version__
from freshet.pipeline.report.dead_letters import dead_letter_facts, holds_dead_letters
from freshet.storage.catalog import Catalog, split_branch
from freshet.storage.exceptions import StorageError
from freshet.storage.model.display import rfc3339
from freshet.storage.options import without_secrets

if TYPE_CHECKING:
    from freshet.storage.status.finding import Finding
    from freshet.storage.status.report import ReportedTable

DEAD_TABLES_MAX: Final = 20
"""Tables of dead letters that are read, those of most rows."""


def report_document(
    reports: Sequence[ReportedTable],
    status: Mapping[str, Any],
    dead_letters: Sequence[Mapping[str, Any]],
    *,
    place: str,
    now_ms: int,
    options: Mapping[str, str],
    samples: bool,
    of_pipelines: Sequence[Finding] = (),
) -> dict[str, Any]:
    """All of it; `of_pipelines` are findings beside those of the tables, `options` those of the catalog, whose secrets
    are nowhere in it."""
    found = [*of_pipelines, *(each for report in reports for each in report.findings)]
    return {
        "made": rfc3339(now_ms),
        "version": __version__,
        "place": without_secrets(place, options),
        "status": _hidden(status, options),
        "findings": _hidden([each.facts() for each in sorted(found, key=attrgetter("severity.rank"))], options),
        "details": {report.status.name: facts for report in reports if (facts := report.facts())},
        "dead_letters": _hidden(dead_letters, options),
        "has_samples": samples,
    }


def dead_letters_of(catalog: Catalog, reports: Sequence[ReportedTable], *, samples: bool) -> list[dict[str, Any]]:
    """The dead letters of the tables that hold some, and of one named after a table that is alone, the most first."""
    names = [each.status.name for each in reports if _may_hold_some(each)]
    if len(reports) == 1 and not names:
        names = [f"{split_branch(reports[0].status.name)[0]}_dead_letters"]
    rows = {each.status.name: each.status.rows or 0 for each in reports}
    found = []
    for name in sorted(names, key=lambda each: -rows.get(each, 0))[:DEAD_TABLES_MAX]:
        try:
            table = catalog.table(name) if catalog.has_table(name) else None
            if table is not None and holds_dead_letters(table.schema):
                found.append(dead_letter_facts(table, samples=samples))
        except (StorageError, OSError, pa.ArrowException) as error:
            found.append(
                {"table": name, "count": 0, "is_all": False, "cause_count": 0, "causes": [], "error": str(error)}
            )
    return sorted(found, key=lambda each: -each["count"])


def _may_hold_some(report: ReportedTable) -> bool:
    if report.schema is None:  # a look at its columns is another request: by the name that pipelines give by default
        return report.status.error is None and report.status.name.endswith("_dead_letters")
    return holds_dead_letters(report.schema)


def _hidden(value: Any, options: Mapping[str, str]) -> Any:
    """The value without secrets, in whatever text of it."""
    if isinstance(value, str):
        return without_secrets(value, options)
    if isinstance(value, Mapping):
        return {without_secrets(key, options): _hidden(each, options) for key, each in value.items()}
    return [_hidden(each, options) for each in value] if isinstance(value, list | tuple) else value
