"""Tables whose rows move between partitions in turns: Apache Paimon and Freshet continue what the other has written."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from freshet import Catalog
from tests.contract.test_dynamic_buckets import check_every_snapshot
from tests.kit.paimon_judge import PaimonJudge
from tests.storage.write.test_moving_rows import ENGINES, Oracle, Row, given_rows

pytestmark = pytest.mark.judge

TURNS = 16
CASES = [
    ("deduplicate", {}),
    ("deduplicate", {"changelog-producer": "lookup"}),
    ("deduplicate", {"deletion-vectors.enabled": "true"}),
    ("partial-update", {"changelog-producer": "full-compaction"}),
    ("aggregation", {}),
    ("first-row", {}),
]


@pytest.mark.slow
@pytest.mark.few(1)
@pytest.mark.parametrize(("engine", "options"), CASES)
def test_turns_of_writers_of_both_kinds(
    engine: str, options: dict[str, str], tmp_path: Path, paimon: PaimonJudge
) -> None:
    judge = paimon.create_table(
        tmp_path / "db.db" / "t",
        {"k": "BIGINT NOT NULL", "p": "STRING NOT NULL", "v": "BIGINT"},
        primary_keys=["k"],
        partition_keys=["p"],
        options={"bucket": "-1", "dynamic-bucket.target-row-num": "7", **ENGINES[engine], **options},
    )
    chance, oracle = random.Random(f"{engine} {options}"), Oracle(engine)
    table = Catalog(str(tmp_path)).table("db.t")
    with table.writer("freshet") as writer:
        for turn in range(TURNS):
            rows: list[Row] = [
                (chance.randrange(40), chance.choice("abc"), chance.randrange(9), "+I") for _ in range(12)
            ]
            if turn % 2 or chance.random() < 0.3:
                judge.write([(k, p, v) for k, p, v, _ in rows], compact="full" if turn % 5 == 1 else None)
            else:
                writer.write(given_rows(rows))
                writer.commit()
            oracle.take(rows)
            if turn % 4 == 3:
                judge.compact()
                _check(table, judge, oracle)
    assert not table.check().damage
    check_every_snapshot(table, judge)


@pytest.mark.few(1)
@pytest.mark.parametrize("lose_kind", [False, True])
def test_the_rows_that_are_written_are_those_of_apache_paimon(
    lose_kind: bool, tmp_path: Path, paimon: PaimonJudge
) -> None:
    """The same rows by both, as an input changelog shows them; Paimon makes a +I of a delete of another partition."""
    stream: list[Row] = [
        (1, "B", 1, "+I"),
        (1, "B", 2, "+I"),
        (1, "C", 3, "-D"),
        (1, "D", 4, "+I"),
        (2, "B", 5, "+I"),
        (2, "A", 6, "+I"),
    ]
    written = {}
    for engine in ("deduplicate", "aggregation"):
        for name in ("ours", "theirs"):
            options = {"bucket": "-1", "changelog-producer": "input", **ENGINES[engine]}
            if lose_kind and name == "ours":
                options["cross-partition-upsert.lose-row-kind"] = "true"
            judge = paimon.create_table(
                tmp_path / "db.db" / f"{engine}_{name}",
                {"k": "BIGINT NOT NULL", "p": "STRING NOT NULL", "v": "BIGINT"},
                primary_keys=["k"],
                partition_keys=["p"],
                options=options,
            )
            table = Catalog(str(tmp_path)).table(f"db.{engine}_{name}")
            with table.writer("freshet") as writer:
                writer.write(given_rows([(1, "A", 0, "+I")]))
                writer.commit()
                if name == "ours":
                    writer.write(given_rows(stream))
                    writer.commit()
                else:
                    judge.write(given_rows(stream))
            rows = table.changelog(from_snapshot=2).to_arrow().to_pylist()
            written[engine, name] = sorted((row["p"], row["k"], row["_ROW_KIND"], row["v"]) for row in rows)
    assert written["deduplicate", "ours"] == written["deduplicate", "theirs"]
    ours, theirs = written["aggregation", "ours"], written["aggregation", "theirs"]
    assert ("A", 1, "+I" if lose_kind else "-D", 3) in ours
    assert (ours == theirs) is lose_kind


@pytest.mark.few(1)
@pytest.mark.parametrize("engine", ["deduplicate", "aggregation"])
def test_partitions_that_apache_paimon_drops_and_both_fill_again(
    engine: str, tmp_path: Path, paimon: PaimonJudge
) -> None:
    """Keys of the dropped partition are new, wherever they come; its overwrites with rows likewise."""
    judge = paimon.create_table(
        tmp_path / "db.db" / "t",
        {"k": "BIGINT NOT NULL", "p": "STRING NOT NULL", "v": "BIGINT"},
        primary_keys=["k"],
        partition_keys=["p"],
        options={"bucket": "-1", "dynamic-bucket.target-row-num": "7", **ENGINES[engine]},
    )
    chance, oracle, table = random.Random(engine), Oracle(engine), Catalog(str(tmp_path)).table("db.t")
    with table.writer("freshet") as writer:
        for turn in range(6):
            rows: list[Row] = [
                (chance.randrange(30), chance.choice("abc"), chance.randrange(9), "+I") for _ in range(12)
            ]
            writer.write(given_rows(rows))
            writer.commit()
            oracle.take(rows)
            dropped, static = "abc"[turn % 3], {"dynamic-partition-overwrite": "false"}
            oracle.rows = {key: row for key, row in oracle.rows.items() if row[0] != dropped}
            filled = [(100 + turn, dropped, turn)] if turn % 2 else []  # a key that is nowhere: nobody would look
            judge.write(filled, overwrite={"p": dropped}, options=static)
            oracle.take([(k, p, v, "+I") for k, p, v in filled])
            _check(table, judge, oracle)
            if turn > 2:
                again: list[Row] = [(key, chance.choice("abc"), 1, "+I") for key in range(15)]
                judge.write([(k, p, v) for k, p, v, _ in again])
                oracle.take(again)
    _check(table, judge, oracle)
    assert not table.check().damage


def _check(table: Any, judge: Any, oracle: Oracle) -> None:
    want = sorted((k, p, v) for k, (p, v) in oracle.rows.items())
    assert sorted(tuple(row.values()) for row in table.scan().to_arrow().to_pylist()) == want
    assert sorted(tuple(row) for row in judge.read_rows()) == want
