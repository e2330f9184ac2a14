"""What `freshet resync` asks before it drops a table."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
import yaml

from freshet import Catalog
from freshet.pipeline.commands import resume as command
from freshet.pipeline.config.record_place import RecordPlace
from freshet.pipeline.config.sync import LEDGER_COLUMNS, LEDGER_KEY, SyncPipelineConfig
from freshet.pipeline.sync import resume
from freshet.pipeline.sync.ledger import WHOLE, LedgerRow, write_rows
from freshet.pipeline.sync.resume import Resumed
from tests.pipeline.commands.kit import Freshet


def test_what_goes_with_the_table_is_said_before_it_is_dropped(
    freshet: Freshet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    catalog = Catalog(tmp_path)
    table = catalog.create_table("lake.a", schema={"id": "INT"}, primary_keys=["id"], options={"bucket": "1"})
    ledger = catalog.create_table(
        "lake._freshet_ledger_shop", schema=LEDGER_COLUMNS, primary_keys=[LEDGER_KEY], options={"bucket": "1"}
    )
    write_rows(ledger, "shop", [LedgerRow(WHOLE, batch=3), LedgerRow("lake.a", batch=3)])
    kafka = {"kafka.bootstrap.servers": "h:1", "subscribePattern": "shop.*"}
    document = {
        "name": "shop",
        "sync": {
            "source": {"kafka": kafka, "format": "debezium-json"},
            "tables": [{"from": "shop.public.(.*)", "to": "lake.$1"}],
        },
        "warehouse": str(tmp_path),
        "checkpoint": str(tmp_path / "c"),
        "dead_letters": "lake.dead_letters",
    }
    file = tmp_path / "shop.yaml"
    file.write_text(yaml.safe_dump(document))
    place = f"in {tmp_path} and read it anew?"
    assert f"Drop lake.a {place}" in freshet("resync", file, "--table", "lake.a").out
    table.append([{"id": 1}])
    table.tags.create("eom", 1)
    table.tags.create("eoy", 1)
    table.branches.create("audit", from_tag="eom")
    said = freshet("resync", file, "--table", "lake.a").out
    assert f"Drop lake.a, its tags eom, eoy, its branches audit {place}" in said
    assert catalog.has_table("lake.a")
    wrong = freshet("resync", file, "--table", "lake.a", "--skip-record", "shop/0")
    assert wrong.code == 2 and "--skip-record 'shop/0': write topic, partition and offset" in wrong.err
    given: list[SyncPipelineConfig] = []
    done = Resumed("lake.a", 3, 5, 4, 1)
    monkeypatch.setattr(command, "engine_of", lambda config: nullcontext(lambda config, purpose: nullcontext()))
    monkeypatch.setattr(resume, "resume_table", lambda jobs, config, table, anew, say: [given.append(config), done][1])
    freshet.good("resync", file, "--table", "lake.a", "--yes", "--skip-record", "shop/0/7")
    assert given[0].skipped_records == {RecordPlace("shop", 0, 7)}
