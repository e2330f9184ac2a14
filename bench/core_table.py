"""The table per core and its plots, from the results that `python -m bench --parts core` has left.

    python -m bench.core_table [RESULTS.json]     prints the table
    python -m bench.core_table --publish FILE     FILE becomes docs/results/core.json; table and plots of the docs

`docs/benchmarks.md` has the table between two marks; a test compares it and the plots with the committed results.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any, Final

from bench.peers import REPOSITORY

PUBLISHED: Final = REPOSITORY / "docs" / "results" / "core.json"
PAGE: Final = REPOSITORY / "docs" / "benchmarks.md"
PLOTS: Final = REPOSITORY / "docs" / "pictures"
MARKS: Final = ("<!-- core: made by bench.core_table -->", "<!-- core: end -->")
WHO: Final = ("Freshet", "Freshet on Spark", "Paimon on Flink", "Paimon (Java)", "pypaimon")
ROWS: Final = {
    "CDC": "CDC from Kafka, whole runs (Flink: later queries)",
    "ingest": "ingest with compaction",
    "merge read": "merge read of five runs",
    "merging over reading": "merging over reading",
    "lookups": "lookups",
    "first commit": "process start → first commit",
    "event to commit": "event → commit at 1000/s",
    "memory": "memory of a CDC run",
}
PLOTTED: Final = {"CDC": "K records", "ingest": "K rows", "merge read": "K rows"}
_STYLE: Final = (
    "text{font:13px system-ui,sans-serif;fill:#1f2933}.n{fill:#52606d}.b{fill:#9aa5b1}.o{fill:#0f766e}"
    "@media(prefers-color-scheme:dark){text{fill:#e4e7eb}.n{fill:#9aa5b1}.b{fill:#616e7c}.o{fill:#2dd4bf}}"
)


def table(core: dict[str, Any]) -> str:
    """The table in Markdown, with a line about where it was measured."""
    shown = [who for who in WHO if any(who in of for of in core["figures"].values())]
    lines = ["| per core | " + " | ".join(shown) + " |", "|---|" + "---|" * len(shown)]
    for key, name in ROWS.items():
        if of := core["figures"].get(key):
            lines.append(f"| {name} | " + " | ".join(of.get(who, "") for who in shown) + " |")
    return "\n".join(lines) + f"\n\nMeasured on {core['machine']}; revision {core['revision']}.\n"


def plot(core: dict[str, Any], key: str, unit: str) -> str:
    """One figure as bars, ours coloured, as SVG for light and dark pages."""
    of = {who: rate for who in WHO if (rate := _number(core["figures"].get(key, {}).get(who, "")))}
    most, height = max(of.values(), default=1.0), 34 + 26 * len(of)
    bars = []
    for row, (who, rate) in enumerate(of.items()):
        y, width = 30 + 26 * row, 330 * rate / most
        kind = "o" if who.startswith("Freshet") else "b"
        bars.append(
            f'<text x="130" y="{y + 14}" text-anchor="end">{who}</text>'
            f'<rect class="{kind}" x="140" y="{y}" width="{width:.0f}" height="18" rx="2"/>'
            f'<text class="n" x="{146 + width:.0f}" y="{y + 14}">{rate:,.0f} {unit}/s</text>'
        )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 620 {height}" role="img" '
        f'aria-label="{ROWS[key]}, per core">'
        f'<style>{_STYLE}</style><text x="0" y="16">{ROWS[key]}, per core</text>{"".join(bars)}</svg>\n'
    )


def page_with(page: str, core: dict[str, Any]) -> str:
    """The page with the table of these results between its marks."""
    begin, end = map(re.escape, MARKS)
    text = f"{MARKS[0]}\n{table(core)}{MARKS[1]}"
    return re.sub(f"{begin}.*?{end}", lambda _: text, page, flags=re.DOTALL)


def plots(core: dict[str, Any]) -> dict[str, str]:
    """The plots by file name."""
    return {f"core-{key.replace(' ', '-').lower()}.svg": plot(core, key, unit) for key, unit in PLOTTED.items()}


def main() -> None:
    """Prints or publishes."""
    parser = argparse.ArgumentParser(description="the table per core")
    parser.add_argument("results", nargs="?", type=Path, default=Path("bench-output/results.json"))
    parser.add_argument("--publish", action="store_true", help="make the results those of the docs")
    arguments = parser.parse_args()
    core = json.loads(arguments.results.read_text())["core"]
    print(table(core))
    if arguments.publish:
        PUBLISHED.parent.mkdir(exist_ok=True)
        PUBLISHED.write_text(json.dumps(core, indent=1, ensure_ascii=False) + "\n")
        PAGE.write_text(page_with(PAGE.read_text(), core))
        for name, svg in plots(core).items():
            (PLOTS / name).write_text(svg)


def _number(text: str) -> float:
    found = re.match(r"[\d,.]+", text)
    return float(found[0].replace(",", "")) if found else 0.0


if __name__ == "__main__":
    main()
