"""How objects are shown to people: in a line by `repr`, and in a notebook as a small table (`_repr_html_`).

A class that mixes `Shown` in says what there is to say of it, `_shown`: pairs of a label and a value; what is None,
zero or empty is left out. Everything is escaped: a table may be named `<script>`. Showing never raises: an object that
cannot be shown says why instead, below its `repr`, which reads no files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Final, TypeAlias

from freshet.storage.exceptions import StorageError
from freshet.storage.model.display import printable, shortened

CELL_MAX: Final = 120
"""Characters of one cell."""

ROWS_MAX: Final = 50
"""Rows of one table."""

UNSHOWN: Final = (StorageError, OSError, ValueError, TypeError, LookupError, ArithmeticError, RuntimeError)
"""What may go wrong with a table that is damaged or gone: a cell that shows it does not fail for that."""

Facts: TypeAlias = Iterable[tuple[str, object]]
"""Labels and values."""

_LEFT: Final = ' style="text-align: left"'
_RIGHT: Final = ' style="text-align: right"'


class HtmlShown:
    """What a notebook shows as HTML."""

    __slots__ = ()

    def _html(self) -> str:
        """The HTML; what goes wrong with a table that is damaged or gone may be raised."""
        raise NotImplementedError

    def _repr_html_(self) -> str:
        """The HTML, or the line that the object is otherwise with the error that came instead."""
        try:
            return self._html()
        except UNSHOWN as error:
            return f"<p>{escape(repr(self))}</p><p>{escape(printable(str(error) or type(error).__name__))}</p>"


class Shown(HtmlShown):
    """What is shown by its facts. They are at hand: to give them reads no files."""

    __slots__ = ()

    def _shown(self) -> Facts:
        """What there is to say, in order."""
        raise NotImplementedError

    def __repr__(self) -> str:
        parts = [f"{label} {_text(value)}".strip() for label, value in self._shown() if _is_said(value)]
        return f"{type(self).__name__}({', '.join(parts)})"

    def _html(self) -> str:
        return facts_html(type(self).__name__, self._shown())


def facts_html(title: str, facts: Facts, *more: str) -> str:
    """A title, a table of labels and values, and what follows it."""
    rows = [f"<tr><th{_LEFT}>{escape(label)}</th>{_cell(value)}</tr>" for label, value in facts if _is_said(value)]
    table = f"<table>{''.join(rows)}</table>" if rows else ""
    return f"<div><strong>{escape(printable(title))}</strong>{table}{''.join(more)}</div>"


def rows_html(header: Sequence[str], rows: Sequence[Sequence[object]], *, left_out: str | None = None) -> str:
    """A table of rows below a header, and what to say of those that are left out."""
    head = "".join(f"<th{_LEFT}>{escape(printable(name))}</th>" for name in header)
    body = "".join(f"<tr>{''.join(_cell(value) for value in row)}</tr>" for row in rows)
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    return table if left_out is None else f"{table}{note_html(left_out)}"


def note_html(text: str) -> str:
    """A line of text."""
    return f"<p><em>{escape(printable(text))}</em></p>"


def _is_said(value: object) -> bool:
    return value is not None and value != "" and value is not False and value != () and value != 0


def _text(value: object) -> str:
    if value is None:
        return "NULL"
    if value is True:
        return ""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return shortened(printable(str(value)), CELL_MAX)


def _cell(value: object) -> str:
    text = "yes" if value is True else "no" if value is False else _text(value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return f"<td{_RIGHT if is_number else _LEFT}>{escape(text)}</td>"
