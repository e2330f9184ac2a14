"""Lines, lines of code, and files of each room of the source, printed at the end of `make lint`.

A line of code is neither blank nor a comment, nor of a text that stands alone, as docstrings do. A room has the numbers
of the folders in it.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "freshet"
FOLDERS = 2
"""How deep the rooms are that have a line: `storage/commit` is one, what it has inside none."""


def code_lines(text: str) -> int:
    """How many lines of a module are code."""
    alone = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Expr)]
    texts = [node for node in alone if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)]
    without = {number for node in texts for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)}
    lines = enumerate(map(str.strip, text.splitlines()), 1)
    return sum(bool(line) and not line.startswith("#") and number not in without for number, line in lines)


def rooms(source: Path) -> Iterator[tuple[str, list[int]]]:
    """(name, [lines, lines of code, files]) of each, in order; the whole comes last."""
    sizes: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for path in sorted(source.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        folders = path.relative_to(source).parts[:-1][:FOLDERS]
        for room in ("/".join(folders) or ".", "all"):
            for number, more in enumerate((len(text.splitlines()), code_lines(text), 1)):
                sizes[room][number] += more
    whole = sizes.pop("all")
    yield from sorted(sizes.items())
    yield "all", whole


def main() -> None:
    print(f"{'room':32}{'lines':>8}{'code':>8}{'files':>7}")
    for name, (lines, code, files) in rooms(SOURCE):
        print(f"{name:32}{lines:8,}{code:8,}{files:7,}")


if __name__ == "__main__":
    main()
