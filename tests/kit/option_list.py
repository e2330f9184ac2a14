"""The page of table options, made from their declaration (`tests.docs.reference`).

Names, types, defaults and what is refused come from the declared options, the texts from the docstrings below them,
the groups from the classes that they are declared in.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from enum import StrEnum
from typing import Any, Final

from freshet.storage.options.declaration import GROUPS, refusals
from freshet.storage.options.option import DURATION, SIZE, Option
from freshet.storage.options.values import INT_MAX, LONG_MAX

HEAD: Final = """\
# Table options

All options that Freshet gives a meaning, with Apache Paimon's keys. They are given to `create_table` and `alter`, to
`with_options` for one reader or writer, and under `table.options` and `table.write_options` of a pipeline file; values
are texts. Sizes are spelled as `64 mb`, durations as `10 min`. An unknown key is refused with the nearest one;
keys of other engines are kept as they are. This page is made from the declaration (`make reference`); do not edit it.

Options of one column are keyed `fields.<column>.<option>`: `aggregate-function` and what that function reads
(`ignore-retract`, `distinct`, `list-agg-delimiter`, `nested-key`, …), `sequence-group`, `stats-mode`. See
[Merge options](merge-options.md).
"""
_REFUSED: Final = ("reading and writing", "writing", "creating")


def markdown() -> str:
    """The whole page."""
    parts = [HEAD]
    for group in GROUPS:
        title = str(group.__doc__).removesuffix(".")
        parts.append(f"\n## {title}\n\n| option | type | default | |\n|---|---|---|---|")
        for option, text in declared(group):
            parts.append(
                f"| `{option.key}` | {option.kind.name} | {_default(option)} | {' '.join(text.split())} |".replace(
                    "  ", " "
                )
            )
    parts.append(
        "\n## Refused\n\nOptions with which a table cannot be used, since rows would be lost, wrong or late. What else "
        "differs from\nApache Paimon: [Differences](../differences.md).\n"
    )
    parts.append("| option | refuses | because | instead |\n|---|---|---|---|")
    parts += [f"| `{key}` | {_REFUSED[r.access]} | {r.reason} | {r.remedy} |" for key, r in refusals()]
    return "\n".join(parts) + "\n"


def declared(group: type) -> Iterator[tuple[Option[Any], str]]:
    """The options of a group with their texts."""
    body = ast.parse(inspect.getsource(group)).body[0].body  # type: ignore[attr-defined]
    for statement, following in zip(body, [*body[1:], None], strict=True):
        if isinstance(statement, ast.Assign):
            yield vars(group)[statement.targets[0].id], _text(following)  # type: ignore[attr-defined]


def _text(following: ast.stmt | None) -> str:
    is_text = isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant)
    return str(following.value.value) if is_text else ""  # type: ignore[union-attr]


def _default(option: Option[Any]) -> str:
    value = option.default
    if value is None or value == ():
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if value in (INT_MAX, LONG_MAX):
        return "unlimited"
    if option.kind is SIZE:
        return f"{value // (1024 * 1024)} mb"
    if option.kind is DURATION:
        if value % 3_600_000 == 0:
            return f"{value // 3_600_000} h"
        return f"{value} ms" if value < 1000 else f"{value // 1000} s"
    return str(value.value if isinstance(value, StrEnum) else value)
