"""The page of all options of Apache Paimon 2.0 with what Freshet does with them (`tests.docs.reference`).

The keys are in `paimon_options`; what becomes of each is asked of the declared options, so the page cannot differ from
what the code does. `status_of` has None for a key that the code would take for a misspelt one: a test finds it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from freshet.storage.options.core import CoreOptions
from freshet.storage.options.declaration import OPTIONS, option_status
from freshet.storage.options.declared.unsupported import MOVED_OUT
from freshet.storage.options.option import Option
from freshet.storage.options.option import Status as CodeStatus
from freshet.storage.options.risky import unheeded_options
from tests.kit import paimon_options

HEAD: Final = """\
# Options of Apache Paimon 2.0

Every table option of Apache Paimon 2.0.0, and what Freshet does with a table that has it. This page is made from the
code (`make reference`); do not edit it.

| status | |
|---|---|
| supported | it does what it does in Paimon; [Table options](table-options.md) has type, default and meaning |
| supported in part | the same, and some values are [refused](table-options.md#refused) |
| refused | a table that has it is neither read nor written |
| read only | a table that has it is read; writing is refused |
| not at creation | tables that have it are read and written; it cannot be given to `create_table` or `alter` |
| an argument | it is given as an argument of `create_table` |
| ignored | kept as it is. It changes no row and nothing on disk that Freshet writes |
| ignored, with a warning | kept, and a writer says that it has no effect |
"""

SECTIONS: Final = (
    ("The format", paimon_options.CORE),
    ("One column, or one kind of file index", paimon_options.FAMILIES),
    ("ORC files and global indexes", paimon_options.FILES),
    ("Iceberg metadata", paimon_options.ICEBERG),
    ("The Flink connector", paimon_options.FLINK),
    ("The Spark connector", paimon_options.SPARK),
)

_FAMILIES: Final = {
    "blob": "tables with BLOB columns are refused",
    "bitmap-index.": "global indexes are not used",
    "btree-index.": "global indexes are not used",
    "sorted-index.": "global indexes are not used",
    "global-index.": "global indexes are not used",
    "full-text-index.": "global indexes are not used",
    "scalar-index.": "global indexes are not used",
    "vector": "tables with VECTOR columns are refused",
    "chain-table.": "chain tables are refused",
    "clustering.": "rows are not clustered",
    "sink.clustering.": "rows are not clustered",
    "data-evolution.": "tables with data evolution are refused",
    "data-file.external-paths.": "tables with external paths are not written",
    "row-tracking.": "tables with row tracking are not written",
    "format-table.": "format tables are refused",
    "materialized-table.": "of Flink's materialized tables",
    "metadata.iceberg.": "Freshet writes no Iceberg metadata",
    "metastore.": "of metastores that list partitions",
    "partition.": "partitions neither expire nor are they marked done",
    "tag.callback.": "callbacks are not called",
    "tag.create-success-file": "no such files are written",
    "snapshot.watermark-idle-timeout": "a stream commits its empty batches as well",
    "variant.": "tables with VARIANT columns are refused",
    "parquet.variant.": "tables with VARIANT columns are refused",
    "visibility-callback.": "commits do not wait for readers",
    "consumer": "an argument of readers of changes",
}
"""Why options of a family have no effect, by how they begin; those of no family are about how Paimon works inside."""


class OptionStatus(NamedTuple):
    """What becomes of an option, and why."""

    status: str
    remark: str


def status_of(key: str) -> OptionStatus | None:
    """None for a key that the code does not know."""
    option = OPTIONS.get(key) or next((each for each in OPTIONS.values() if key in each.former), None)
    if option is not None:
        return _of_declared(key, option)
    if key in MOVED_OUT:
        return OptionStatus("an argument", f"`{MOVED_OUT[key]}`")
    if key.endswith(".map.storage-layout"):
        return OptionStatus("refused", "for values other than `default`")
    if key.startswith("fields."):
        return OptionStatus("supported", "[Merge options](merge-options.md)")
    if option_status(key) is None:
        return None
    spelled = key.replace("<type>", "bloom-filter").replace("<column>", "c").replace("<option>", "fpp")
    if any(unheeded_options(CoreOptions.parse({spelled: text}, has_primary_key=True)) for text in ("c", "true")):
        return OptionStatus("ignored, with a warning", "")
    if key.startswith("file-index."):
        return OptionStatus("supported", "")
    return OptionStatus("ignored", next((why for start, why in _FAMILIES.items() if key.startswith(start)), ""))


def _of_declared(key: str, option: Option[object]) -> OptionStatus:
    remark = "" if key == option.key else f"a former name of `{option.key}`"
    if option.status is CodeStatus.TOLERATED:
        return OptionStatus("ignored", remark)
    if option.status is CodeStatus.READ:
        if option.key == "file-index.read.enabled" and unheeded_options(_given(option.key, "true")):
            return OptionStatus("ignored, with a warning", remark)
        if option.key == "write-buffer-for-append" and unheeded_options(_given(option.key, "true")):
            return OptionStatus("ignored, with a warning", remark)
        return OptionStatus("supported in part" if option.refusals else "supported", remark)
    refusal = min(option.refusals, key=lambda each: each.access)
    return OptionStatus(
        ("refused", "read only", "not at creation")[refusal.access], f"{refusal.reason}; {refusal.remedy}"
    )


def _given(key: str, text: str) -> CoreOptions:
    return CoreOptions.parse({key: text}, has_primary_key=False)


def markdown() -> str:
    """The whole page."""
    parts = [HEAD]
    for title, keys in SECTIONS:
        parts.append(f"\n## {title}\n\n| option | status | |\n|---|---|---|\n")
        for key in keys:
            found = status_of(key)
            status, remark = found or OptionStatus("unknown", "")
            parts.append(f"| `{key}` | {status} | {remark} |\n".replace("  ", " "))
    return "".join(parts)
