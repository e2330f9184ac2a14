"""The list of table options, made from their declaration: `make reference`.

Names, types and defaults come from the fields of `CoreOptions`, the texts from the docstrings below them, the groups
from the comments that divide them, and what is refused from the rules of `options.supported`.
"""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from enum import StrEnum
from typing import Any, Final

from freshet.storage.options import core
from freshet.storage.options.core import CoreOptions
from freshet.storage.options.supported import RULES
from freshet.storage.options.values import INT_MAX, LONG_MAX

HEAD: Final = """\
# Table options

All options that Freshet gives a meaning, with Apache Paimon's keys. They are given to `create_table` and `alter`, to
`with_options` for one reader or writer, and under `table.options` and `table.write_options` of a pipeline file; values
are texts. Sizes are spelled as `64 mb`, durations as `10 min`. A key that nobody knows is refused with the nearest one;
keys of other engines are kept as they are. This page is made from the declaration (`make reference`); do not edit it.

Options of one column are keyed `fields.<column>.<option>`: `aggregate-function` and what that function reads
(`ignore-retract`, `distinct`, `list-agg-delimiter`, `nested-key`, …), `sequence-group`, `stats-mode`. See
[MERGING.md](MERGING.md) §2.5 and §2.6.1.
"""
_GROUP: Final = re.compile(r"^    # --- (?P<name>.+?) -+$")
_REFUSED: Final = ("reading and writing", "writing", "creating")


def markdown() -> str:
    """The whole page."""
    parts = [HEAD]
    group = ""
    for name, key, text in _declared():
        if name != group:
            group = name
            parts.append(f"\n## {name[0].upper()}{name[1:]}\n\n| option | type | default | |\n|---|---|---|---|")
        field = next(field for field in CoreOptions.model_fields.values() if field.alias == key)
        default = _default(key, field.default)
        parts.append(f"| `{key}` | {_type(key)} | {default} | {' '.join(text.split())} |".replace("  ", " "))
    parts.append(
        "\n## Refused\n\nOptions with which a table cannot be used, since rows would be lost, wrong or late.\n"
    )
    parts.append("| option | refuses | because | instead |\n|---|---|---|---|")
    parts += [f"| `{r.key}` | {_REFUSED[r.refused]} | {r.reason} | {r.remedy} |" for r in RULES]
    return "\n".join(parts) + "\n"


def _declared() -> Iterator[tuple[str, str, str]]:
    """(group, key, text) of every option, in the order of the declaration."""
    source = inspect.getsource(core)
    groups = {n: m["name"] for n, line in enumerate(source.splitlines(), 1) if (m := _GROUP.match(line))}
    tree = ast.parse(source)
    declaration = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == CoreOptions.__name__)
    body = declaration.body
    for statement, following in zip(body, [*body[1:], None], strict=True):
        if not isinstance(statement, ast.AnnAssign) or not (key := _alias(statement)):
            continue
        group = [name for line, name in groups.items() if line < statement.lineno][-1]
        yield group, key, _text(following)


def _alias(statement: ast.AnnAssign) -> str | None:
    for node in ast.walk(statement):
        if isinstance(node, ast.keyword) and node.arg == "alias" and isinstance(node.value, ast.Constant):
            alias = str(node.value.value)
            return None if alias.startswith(" ") else alias
    return None


def _text(following: ast.stmt | None) -> str:
    is_text = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
    return str(following.value.value) if is_text else ""  # type: ignore[union-attr]


_KINDS: Final = {
    "SizeBytes": "size",
    "DurationMs": "duration",
    "Int": "integer",
    "Long": "integer",
    "Flag": "boolean",
    "Names": "names",
    "ColumnNames": "names",
    "Pairs": "map",
    "Ratio": "number",
}


def _type(key: str) -> str:
    name = next(name for name, field in CoreOptions.model_fields.items() if field.alias == key)
    annotation = inspect.get_annotations(CoreOptions)[name]
    text = annotation if isinstance(annotation, str) else str(annotation)
    kind = next((kind for word, kind in _KINDS.items() if re.match(rf"{word}\b", text)), None)
    if kind:
        return kind
    if enum := re.match(r"Annotated\[(\w+), _text\(_enum", text):
        return ", ".join(f"`{value}`" for value in getattr(core, enum[1]))
    return "names" if text.startswith("Annotated[tuple") else "text"


def _default(key: str, value: Any) -> str:
    if value is None or value == ():
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if value in (INT_MAX, LONG_MAX):
        return "unlimited"
    if _type(key) == "size":
        return f"{value // (1024 * 1024)} mb"
    if _type(key) == "duration":
        return (
            f"{value // 3_600_000} h"
            if value % 3_600_000 == 0
            else f"{value} ms"
            if value < 1000
            else f"{value // 1000} s"
        )
    return str(value.value if isinstance(value, StrEnum) else value)


if __name__ == "__main__":
    sys.stdout.write(markdown())
