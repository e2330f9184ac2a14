"""The scenarios of the log store that Apache Paimon had, by their numbers: what hybrid and latest readers see.

Each row of an input set is a commit of its own, as readers of that log saw row after row. Expected changes are folded
from the set here: the filter and the columns of a reader are applied to them, and lone halves of updates become -D and
+I, where Paimon's readers saw a lone -U or +U (V15, V18, V23). An update that leaves the columns asked for as they were
is not emitted (V17, V21).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from freshet.storage.catalog import Catalog
from freshet.storage.table import Table
from tests.logstore.logged_tables import fake_kafka

Row = tuple[Any, ...]


@dataclass(frozen=True)
class InputSet:
    """Columns of a table and rows to write, `+I US 102 d1`."""

    columns: str
    key: str
    partition: str
    text: str
    rates: pa.DataType = field(default_factory=pa.int64)

    @property
    def names(self) -> list[str]:
        return self.columns.split()

    def rows(self) -> Iterator[tuple[str, Row]]:
        for part in self.text.split("|"):
            kind, *values = part.split()
            yield kind, tuple(self._value(name, value) for name, value in zip(self.names, values, strict=True))

    def _value(self, name: str, value: str) -> Any:
        if value == "null":
            return None
        return pa.scalar(value).cast(self.rates).as_py() if name == "rate" else value


RATES = "currency rate"
PAIRS = "from to rate"
SETS = {
    "A": InputSet(
        f"{RATES} dt", "currency dt", "dt",
        "+I US 102 d1 | +I EU 114 d1 | +I YE 1 d1 | +U EU 116 d1 | -D YE 1 d1 | -D EU 116 d1 | "
        "+I EU 119 d2 | +U EU 119 d2",
    ),
    "B": InputSet(
        RATES, "currency", "",
        "+I US 102 | +I EU 114 | +I YE 1 | +U EU 116 | -D EU 116 | +I EU 119 | +U EU 119 | -D YE 1",
    ),
    "C": InputSet(RATES, "currency", "", "+I US 102 | +I EU 114 | +I YE 1 | +I EU 114 | +I EU 119"),
    "C, no key": InputSet(RATES, "", "", "+I US 102 | +I EU 114 | +I YE 1 | +I EU 114 | +I EU 119"),
    "D": InputSet(
        f"{RATES} dt", "currency dt", "dt",
        "+I US 102 d1 | +I EU 114 d1 | +I YE 1 d1 | +I EU 114 d1 | +I US 114 d1 | +I EU 119 d2",
    ),
    "D, no key": InputSet(
        f"{RATES} dt", "", "dt",
        "+I US 102 d1 | +I EU 114 d1 | +I YE 1 d1 | +I EU 114 d1 | +I US 114 d1 | +I EU 119 d2",
    ),
    "E": InputSet(
        f"{PAIRS} dt hh", "from to dt hh", "dt hh",
        "+I US US 1.0 d2 20 | +I EU US null d2 20 | +I HK US .13 d2 20 | +I YE US .0082 d2 20 | +I SG US .74 d2 20 | "
        "+U YE US .0081 d2 20 | -D US US 1.0 d2 20 | -D EU US null d2 20 | +U SG US .76 d2 20 | +I US EU .9 d2 20 | "
        "+I SG EU .67 d2 20 | +U SG EU null d2 20 | +I YE YE 1.0 d2 20 | +I CN YE 19.25 d2 20 | +U CN YE 25.6 d2 20 | "
        "+I SG YE 90.32 d2 20 | +I US YE 122.46 d2 21 | +U SG YE 90.1 d2 20",
        pa.float64(),
    ),
    "F": InputSet(
        f"{PAIRS} dt", "from to dt", "dt",
        "+I US US null d1 | +I EU US null d1 | +I HK US .13 d1 | +I YE US .0082 d1 | -D YE US .0082 d1 | "
        "+I SG US .74 d1 | +I YE US .0081 d1 | +U EU US 1.11 d1 | +U US US 1.0 d1 | +I US EU .9 d2 | +I SG EU .67 d2 | "
        "-D SG EU .67 d2 | +I YE YE 1.0 d2 | +I CN YE 19.25 d2 | +I SG YE 90.32 d2 | +U SG YE 122.46 d2",
        pa.float64(),
    ),
    "G": InputSet(
        PAIRS, "from to", "",
        "+I US US 1.0 | +I EU US 1.11 | +I HK US .13 | +U EU US 1.12 | +I YE US .0082 | +I SG US .74 | "
        "+U YE US .0081 | -D US US 1.0 | -D YE US .0081 | +I US EU .9 | +I SG EU .67 | +U SG EU .69 | "
        "+I YE YE 1.0 | +I CN YE 19.25 | +I SG YE 90.32 | -D YE YE 1.0 | +U SG YE 122.46 | +U SG YE 122",
        pa.float64(),
    ),
    "H": InputSet(
        f"{RATES} dt hh", "currency dt hh", "dt hh",
        "+I US 102 d1 15 | +I EU 114 d1 15 | +I YE 1 d1 15 | +U EU 116 d1 15 | -D YE 1 d1 15 | -D EU 116 d1 15 | "
        "+I EU 119 d2 23 | +U EU 119 d2 23",
    ),
}  # fmt: skip

Keeps = Callable[[dict[str, Any]], bool]


@dataclass(frozen=True)
class Reader:
    """One reader of a scenario."""

    vectors: str
    source: str
    filter: str | None = None
    keeps: Keeps = lambda row: True
    columns: str = ""


READERS = [
    Reader("V13", "A"),
    Reader("V02 V14", "A", "dt = 'd1'", lambda row: row["dt"] == "d1"),
    Reader("V03 V14", "A", "currency = 'YE'", lambda row: row["currency"] == "YE"),
    Reader("V15", "A", "rate = 114", lambda row: row["rate"] == 114),
    Reader("V04 V15", "A", "rate = 114 and dt = 'd2'", lambda row: row["rate"] == 114 and row["dt"] == "d2"),
    Reader(
        "V01", "A", "dt >= 'd1' and dt <= 'd3' or currency = 'HK'",
        lambda row: "d1" <= row["dt"] <= "d3" or row["currency"] == "HK",
    ),
    Reader("V16", "A", columns="rate"),
    Reader(
        "V05", "A", "dt = 'd2' and currency = 'EU'",
        lambda row: row["dt"] == "d2" and row["currency"] == "EU", "rate dt currency",
    ),
    Reader("V06 V17", "B"),
    Reader("V17", "B", "currency = 'EU'", lambda row: row["currency"] == "EU", "rate"),
    Reader("V06 V17", "B", columns="currency"),
    Reader("V18 V31", "C"),
    Reader("V18", "C", "rate = 114", lambda row: row["rate"] == 114),
    Reader("V18", "C", "rate = 114", lambda row: row["rate"] == 114, "currency"),
    Reader("V18 V31", "C, no key"),
    Reader("V31", "D"),
    Reader("V31", "D, no key"),
    Reader("V07 V19", "E"),
    Reader("V20", "E", "dt = 'd2' and hh = '21'", lambda row: row["hh"] == "21"),
    Reader(
        "V20", "E", "rate is not null and `from` = 'US'",
        lambda row: row["rate"] is not None and row["from"] == "US",
    ),
    Reader("V08", "E", "dt = 'd2' and `from` = 'US'", lambda row: row["from"] == "US", "from to"),
    Reader("V21", "E", columns="from to"),
    Reader("V21", "E", "rate > 100", lambda row: row["rate"] is not None and row["rate"] > 100, "from to"),
    Reader("V09 V22", "F"),
    Reader("V23", "F", "dt = 'd2'", lambda row: row["dt"] == "d2"),
    Reader("V23", "F", "rate is null", lambda row: row["rate"] is None),
    Reader(
        "V23", "F", "dt = 'd2' and rate > 100",
        lambda row: row["dt"] == "d2" and row["rate"] is not None and row["rate"] > 100, "from to",
    ),
    Reader("V24", "G"),
    Reader("V25", "G", "rate < 1 or rate > 100", lambda row: row["rate"] < 1 or row["rate"] > 100),
    Reader("V25", "G", "rate < 1 or rate > 100", lambda row: row["rate"] < 1 or row["rate"] > 100, "from to"),
    Reader("V26", "H"),
    Reader("V26", "H", "dt >= 'd2'", lambda row: row["dt"] >= "d2"),
    Reader("V26", "H", "rate = 1", lambda row: row["rate"] == 1, "currency"),
]  # fmt: skip


def changes(source: InputSet) -> Iterator[tuple[dict[str, Any] | None, dict[str, Any] | None]]:
    """(row before, row after) of each row that changes something."""
    held: dict[Row, dict[str, Any]] = {}
    for kind, values in source.rows():
        row = dict(zip(source.names, values, strict=True))
        if not source.key:
            yield None, row
            continue
        key = tuple(row[name] for name in source.key.split())
        before = held.pop(key, None)
        after = None if kind == "-D" else row
        if after is not None:
            held[key] = after
        if before != after:
            yield before, after


def expected(source: InputSet, reader: Reader) -> list[Row]:
    names = reader.columns.split() or source.names
    found: list[Row] = []
    for both in changes(source):
        before, after = (
            None if row is None or not reader.keeps(row) else tuple(row[name] for name in names) for row in both
        )
        if before is not None and before == after:
            continue
        is_update = before is not None and after is not None
        if before is not None:
            found.append(("-U" if is_update else "-D", *before))
        if after is not None:
            found.append(("+U" if is_update else "+I", *after))
    return found


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Table]]:
    """Every set, written row by row."""
    with fake_kafka():
        yield {name: written(tmp_path_factory.mktemp("set"), place, each) for place, (name, each) in
               enumerate(SETS.items())}  # fmt: skip


def written(folder: Path, number: int, source: InputSet) -> Table:
    key = source.key.split()
    schema = pa.schema(
        [pa.field(name, source.rates if name == "rate" else pa.string(), name not in key) for name in source.names]
    )
    options = {"bucket": "1", "log.system": "kafka", "kafka.topic": f"t{number}", "kafka.bootstrap.servers": "no:9"}
    options |= (
        {"changelog-producer": "lookup", "changelog-producer.row-deduplicate": "true"}
        if key
        else {"bucket-key": source.names[0]}
    )
    table = Catalog(str(folder)).create_table(
        "db.t", schema=schema, primary_keys=key, partition_keys=source.partition.split(), options=options
    )
    with table.writer("u") as writer:
        for kind, values in source.rows():
            columns = {name: [value] for name, value in zip(source.names, values, strict=True)}
            writer.write(pa.table(columns, schema=schema).append_column("_ROW_KIND", pa.array([kind])))
            writer.commit()
    return table


def seen(table: Table, reader: Reader, **start: Any) -> list[Row]:
    stream = table.stream(columns=reader.columns.split() or None, filter=reader.filter, max_wait_s=0.0, **start)
    rows = [row for batch in stream for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)]
    stream.close()
    return [(row[-1], *row[:-1]) for row in rows]


@pytest.mark.few(24)
@pytest.mark.parametrize("reader", READERS, ids=lambda each: f"{each.vectors} {each.filter} {each.columns}")
def test_what_readers_of_the_log_see(tables: dict[str, Table], reader: Reader, isolation: str) -> None:
    wanted = expected(SETS[reader.source], reader)
    table = tables[reader.source]
    assert seen(table, reader, isolation=isolation, from_snapshot=1) == wanted
    assert seen(table, reader, isolation=isolation, from_timestamp=0) == wanted  # V31
    rest = Counter[Row]()
    for kind, *values in wanted:
        rest[tuple(values)] += 1 if kind in ("+I", "+U") else -1
    hybrid = seen(table, reader, isolation=isolation)
    assert {row[0] for row in hybrid} <= {"+I"}
    if not reader.columns:  # an update that a projection hides leaves a row that was emitted before
        assert Counter(row[1:] for row in hybrid) == +rest


def test_the_oracle_gives_what_the_scenarios_say() -> None:
    found = {reader.vectors: expected(SETS[reader.source], reader) for reader in READERS}
    assert found["V13"] == [
        ("+I", "US", 102, "d1"), ("+I", "EU", 114, "d1"), ("+I", "YE", 1, "d1"), ("-U", "EU", 114, "d1"),
        ("+U", "EU", 116, "d1"), ("-D", "YE", 1, "d1"), ("-D", "EU", 116, "d1"), ("+I", "EU", 119, "d2"),
    ]  # fmt: skip
    assert found["V15"] == [("+I", "EU", 114, "d1"), ("-D", "EU", 114, "d1")]  # the lone -U
    assert found["V04 V15"] == []
    assert found["V06 V17"] == [("+I", "US"), ("+I", "EU"), ("+I", "YE"), ("-D", "EU"), ("+I", "EU"), ("-D", "YE")]
    assert found["V23"] == [("+I", "SG", "YE")]  # the lone +U
    assert len(found["V07 V19"]) == 18 + 5
    assert len(found["V24"]) == 18 + 5
    assert len(found["V09 V22"]) == 16 + 3
