"""The snippets of the README for plain Python do what it says, also when they are run again with other rows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from freshet import Catalog

README = Path(__file__).parents[2] / "README.md"
WAREHOUSE = "file:///tmp/warehouse"


def snippets(folder: Path) -> list[str]:
    """Those of the section Plain Python, with a warehouse of the test."""
    section = README.read_text(encoding="utf-8").split("## Plain Python\n", 1)[1].split("\n## ", 1)[0]
    found = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    assert WAREHOUSE in found[0]
    return [text.replace(WAREHOUSE, f"file://{folder}/w") for text in found]


def test_the_first_snippets_run_again_with_other_rows(tmp_path: Path, capsys: Any, caplog: Any) -> None:
    first, second = snippets(tmp_path)
    names: dict[str, Any] = {}
    exec(first, names)
    exec(second, names)
    stock = Catalog(tmp_path / "w").table("shop.stock")
    assert stock.scan().to_arrow().to_pylist() == [{"item": "bolt", "pieces": 7}]
    changed = first.replace('{"order_id": 2, "status": "paid"}', '{"order_id": 2, "status": "sent"}, {"order_id": 3}')
    assert changed != first
    exec(changed, names)
    exec(second, names)
    orders = Catalog(tmp_path / "w").table("shop.orders")
    assert sorted((row["order_id"], row["status"]) for row in orders.scan().to_arrow().to_pylist()) == [
        (1, "new"), (2, "sent"), (3, None)
    ]  # fmt: skip
    assert stock.scan().to_arrow().to_pylist() == [{"item": "bolt", "pieces": 14}]
    assert not caplog.records
    assert "shop.orders" in capsys.readouterr().out


def test_it_installs_nothing_by_name() -> None:
    for line in README.read_text(encoding="utf-8").splitlines():
        for command in re.findall(r"pip install ([^`]+)", line):
            assert not re.match(r"'?freshet\b(?!-[0-9])", command), line
