"""What a run has measured so far, written after every step, so that a failure later on loses nothing.

`results.md` has a table for people, `results.json` the seconds of every round, the notes and the failures.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from bench.measure import Figure

OURS: Final = "freshet"
HEADER: Final = ("measurement", "peer", "threads", "cold rows/s", "warm rows/s (median)", "warm range", "Freshet is")


@dataclass(slots=True)
class Results:
    """Figures, notes and failures, and the folder where they are written."""

    folder: Path
    figures: list[Figure] = field(default_factory=list)
    notes: dict[str, str] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    """What went wrong, by the part of the benchmark."""
    core: dict[str, Any] = field(default_factory=lambda: {"figures": {}})
    """What `bench.core_table` shows: machine, revision, and texts by figure and peer."""

    def add(self, figures: Sequence[Figure]) -> None:
        """Keeps figures."""
        self.figures += figures
        self._write()

    def note(self, name: str, text: str) -> None:
        """Keeps a figure that is not rows per second."""
        self.notes[name] = text
        self._write()

    def per_core(self, figure: str, who: str, text: str) -> None:
        """Keeps a figure of the table per core."""
        self.core["figures"].setdefault(figure, {})[who] = text
        self._write()

    def fail(self, part: str, reason: str) -> None:
        """Keeps why a part has ended early."""
        self.failures[part] = reason
        self._write()

    def show(self) -> None:
        """Prints everything."""
        table = Table(*HEADER, title=f"{os.cpu_count()} cores, {platform.machine()}")
        for row in self._rows():
            table.add_row(*row)
        console = Console(width=160)
        console.print(table)
        for line in self._remarks():
            console.print(line, markup=False)
        console.print(f"written to {self.folder / 'results.md'}")

    def _write(self) -> None:
        lines = ["| " + " | ".join(HEADER) + " |", "|" + "---|" * len(HEADER)]
        lines += ["| " + " | ".join(row) + " |" for row in self._rows()]
        lines += ["", *(f"- {line}" for line in self._remarks())]
        everything = {
            "figures": [asdict(figure) for figure in self.figures],
            "notes": self.notes,
            "core": self.core,
            "failures": self.failures,
        }
        (self.folder / "results.md").write_text("\n".join(lines) + "\n")
        (self.folder / "results.json").write_text(json.dumps(everything, indent=1))

    def _remarks(self) -> list[str]:
        failed = [f"FAILED, {part}: {reason}" for part, reason in self.failures.items()]
        return [f"{name}: {text}" for name, text in self.notes.items()] + failed

    def _rows(self) -> list[tuple[str, ...]]:
        """Freshet's ratio is that of its first figure of the measurement, with two threads."""
        best = {figure.measurement: figure.warm_rate for figure in reversed(self.figures) if figure.peer == OURS}
        rows = []
        for figure in self.figures:
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
                    "" if figure.peer == OURS or not ratio else f"{ratio:.2f}×",
                )
            )
        return rows
