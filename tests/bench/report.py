"""Figures as a table: printed, and written to a Markdown file and a JSON file beside it."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.bench.storage_bench import Figure

OURS = "freshet"


def rows_of(figures: Sequence[Figure]) -> list[tuple[str, ...]]:
    """One row per figure: measurement, peer, threads, cold, warm, range of the warm rounds, Freshet's ratio to it."""
    best = {figure.measurement: figure.warm_rate for figure in reversed(figures) if figure.peer == OURS}
    rows = []
    for figure in figures:
        warm = [figure.rows / seconds for seconds in figure.seconds[1:]] or [figure.cold_rate]
        ratio = best.get(figure.measurement, 0.0) / figure.warm_rate
        rows.append(
            (
                figure.measurement,
                figure.peer,
                figure.threads,
                f"{figure.cold_rate:,.0f}",
                f"{figure.warm_rate:,.0f}",
                f"{min(warm):,.0f}–{max(warm):,.0f}",
                "" if figure.peer == OURS else f"{ratio:.2f}×",
            )
        )
    return rows


HEADER = ("measurement", "peer", "threads", "cold rows/s", "warm rows/s (median)", "warm range", "Freshet is")


def show(figures: Sequence[Figure], notes: Mapping[str, str], folder: Path) -> None:
    """Prints the figures and writes `results.md` and `results.json` into `folder`."""
    rows = rows_of(figures)
    table = Table(*HEADER, title=f"{os.cpu_count()} cores, {platform.machine()}")
    for row in rows:
        table.add_row(*row)
    console = Console(width=160)
    console.print(table)
    for name, text in notes.items():
        console.print(f"[bold]{name}[/bold]: {text}")
    lines = ["| " + " | ".join(HEADER) + " |", "|" + "---|" * len(HEADER)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    lines += [""] + [f"- **{name}**: {text}" for name, text in notes.items()]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.md").write_text("\n".join(lines) + "\n")
    (folder / "results.json").write_text(json.dumps([asdict(figure) for figure in figures], indent=1))
    console.print(f"written to {folder / 'results.md'}")
