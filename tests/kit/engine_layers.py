"""What Freshet makes of a key's rows in a flush before it merges them, row by row: blanks and cuts.

    blanked   values that count for nothing in a retract become NULL
    layers    the rows as the lists that are merged each for itself, the oldest first

Apache Paimon does neither. Source: MERGING.md §2.4 to §2.6.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tests.kit.engine_merges import MERGES, Engine, Record, names_of
from tests.kit.oracle import DELETE, RETRACTS

LAYERS_MAX = 16
RETRACTING = {"sum", "product", "last_value", "last_non_null_value", "collect", "merge_map", "nested_update"}
FOLDING = {"sum", "last_value"}


def blanked(engine: Engine, record: Record) -> Record:
    """The record as it is stored."""
    if record.kind not in RETRACTS or not (_removes(engine) or engine.groups):
        return record
    if engine.name == "aggregation" and record.kind != DELETE:
        return record
    kept = {*engine.primary_keys, *engine.sequence_columns}
    removing = _removing_columns(engine)
    is_removal = record.kind == DELETE and any(record.values[name] is not None for name in removing)
    for group in engine.groups:
        if not is_removal or set(group.ordering) & set(removing):
            kept.update(group.ordering)
        if not is_removal and any(record.values[name] is not None for name in group.ordering):
            kept.update(set(group.protected) & _retracting(engine))
    return replace(record, values={name: value if name in kept else None for name, value in record.values.items()})


def layers(engine: Engine, records: Sequence[Record]) -> list[list[Record]]:
    """Of records in their order, those that are merged together."""
    found: list[list[Record]] = [[records[0]]]
    removals = _removals(engine, records)
    last_removal = max((at for at, is_removal in enumerate(removals) if is_removal), default=-1)
    for at in range(1, len(records)):
        is_cut = _is_alone(engine, records[at]) or _is_alone(engine, records[at - 1]) or removals[at - 1]
        if is_cut and at > last_removal:
            found.append([])
        found[-1].append(records[at])
    if len(found) > LAYERS_MAX:
        adds = [at for at in range(1, LAYERS_MAX) if not _is_alone(engine, found[at][0])]
        last = adds[-1] if adds else LAYERS_MAX - 1
        found[last:] = [[record for part in found[last:] for record in part]]
    return found


def is_plain(engine: Engine) -> bool:
    """True where Freshet and Paimon write the same."""
    return not (_removes(engine) or engine.groups or any(_is_alone(engine, Record({}, kind, 0)) for kind in RETRACTS))


def _removes(engine: Engine) -> bool:
    return engine.options.get(f"{engine.name}.remove-record-on-delete") == "true"


def _removing_columns(engine: Engine) -> list[str]:
    named = names_of(engine.options.get("partial-update.remove-record-on-sequence-group", ""))
    return [name for group in engine.groups if set(named) & set(group.ordering) for name in group.ordering]


def _retracting(engine: Engine) -> set[str]:
    """Columns whose functions take retracts away."""
    default = engine.options.get("fields.default-aggregate-function")
    found = set()
    for column in engine.columns:
        own = engine.own_options(column)
        name = own.get("aggregate-function", default)
        if name is None and engine.name == "aggregation":
            name = "last_non_null_value"
        if column in engine.sequence_columns and engine.name == "aggregation":
            name = "last_value"
        if column not in engine.primary_keys and name in RETRACTING and own.get("ignore-retract") != "true":
            found.add(column)
    return found


def _is_alone(engine: Engine, record: Record) -> bool:
    if record.kind not in RETRACTS or engine.ignores_deletes:
        return False
    if engine.name == "aggregation":
        default = engine.options.get("fields.default-aggregate-function", "last_non_null_value")
        names = {
            "sequence.field"
            if column in engine.sequence_columns
            else engine.own_options(column).get("aggregate-function", default)
            for column in _retracting(engine)
        }
        return not (_removes(engine) and record.kind == DELETE) and not names <= FOLDING
    protected = {name for group in engine.groups for name in group.protected}
    return bool(protected & _retracting(engine))


def _removals(engine: Engine, records: Sequence[Record]) -> list[bool]:
    """Which records remove the row, as far as these records know."""
    if _removes(engine):
        return [record.kind == DELETE for record in records]
    if not _removing_columns(engine) or any(_is_alone(engine, record) for record in records):
        return [False] * len(records)
    merge = MERGES[engine.name](engine)
    found = []
    for record in records:
        merge.add(record)
        found.append(merge.is_removed)
    return found
