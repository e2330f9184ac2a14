"""The second judge, judged by the first: both see the same rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from tests.kit.paimon_judge import PaimonJudge
from tests.kit.pypaimon_judge import PypaimonError, PypaimonJudge

pytestmark = pytest.mark.judge


def test_reads_what_paimon_wrote(paimon: PaimonJudge, pypaimon: PypaimonJudge, tmp_path: Path) -> None:
    table = paimon.create_table(
        tmp_path / "t",
        {"k": "BIGINT", "v": "STRING", "d": "DECIMAL(10, 2)"},
        primary_keys=["k"],
        options={"bucket": 2, "write-only": True},
    )
    table.write([(k, f"v{k}", k) for k in range(50)])
    table.write([("-D", 3, "v3", 3), ("+U", 4, "new", None)])
    assert pypaimon.read_arrow(table.location, sort_by=["k"]).equals(table.read_arrow(sort_by=["k"]))
    assert pypaimon.read_arrow(table.location, ["v"], snapshot_id=1).num_rows == 50


@pytest.mark.parametrize("primary_keys", [["k"], []])
def test_writes_what_paimon_reads(
    paimon: PaimonJudge, pypaimon: PypaimonJudge, tmp_path: Path, primary_keys: list[str]
) -> None:
    schema = pa.schema([pa.field("k", pa.int64(), nullable=not primary_keys), pa.field("v", pa.string())])
    options = {"bucket": 1} if primary_keys else {}
    pypaimon.create_table(tmp_path / "t", schema, primary_keys=primary_keys, options=options)
    rows = pa.table({"k": [1, 2], "v": ["a", None]}, schema=schema)
    pypaimon.write(tmp_path / "t", rows)
    assert paimon.table(tmp_path / "t").read_arrow(sort_by=["k"]).equals(rows)


def test_errors_arrive(pypaimon: PypaimonJudge, tmp_path: Path) -> None:
    with pytest.raises(PypaimonError) as caught:
        pypaimon.read_arrow(tmp_path / "nothing here")
    assert "pypaimon_process.py" in caught.value.stack
