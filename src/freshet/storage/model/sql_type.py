"""Column types as people write them: scalars as in schema files, and ARRAY<T>, MAP<K, V>, ROW<name T, ...>.

    type   = scalar | ( "ARRAY<" type ">" | "MAP<" type "," type ">" | "ROW<" field { "," field } ">" ) [ "NOT NULL" ]
    field  = name [ ":" ] type            a name is a word or is in back quotes

CHAR, VARCHAR, BINARY and VARBINARY need their length here: without one they would hold a single character or byte.

Field ids inside a ROW are 0 until `freshet.storage.model.schema.assign_ids` hands them out.
"""

from __future__ import annotations

import re
from typing import Final

from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.model.arguments import NESTING_MAX
from freshet.storage.model.data_type import ArrayType, DataField, DataType, MapType, RowType, parse_data_type
from freshet.storage.model.display import shortened

_CONSTRUCTED: Final = re.compile(
    r"^\s*(ARRAY|MAP|ROW|STRUCT)\s*<(.*)>\s*(NOT\s+NULL|NULL)?\s*$", re.IGNORECASE | re.DOTALL
)
_WITHOUT_LENGTH: Final = re.compile(r"^\s*(CHAR|VARCHAR|BINARY|VARBINARY)\s*(?:NOT\s+NULL|NULL)?\s*$", re.IGNORECASE)
_FIELD: Final = re.compile(r"^\s*(?:`([^`]+)`|([^\s:<>,`]+))\s*:?\s*(.+)$", re.DOTALL)


def parse_sql_type(text: str) -> DataType:
    """Reads a type; raises `InvalidRequestError` showing the text that cannot be read."""
    if text.count("<") > NESTING_MAX:
        raise InvalidRequestError(f"the column type {shortened(text, 80)!r} has more than {NESTING_MAX} types in it")
    match = _CONSTRUCTED.match(text)
    if match is None:
        bare = _WITHOUT_LENGTH.match(text)
        if bare is not None:
            name = bare[1].upper()
            unlimited = {"VARCHAR": "STRING, or ", "VARBINARY": "BYTES, or "}.get(name, "")
            raise InvalidRequestError(
                f"the column type {text.strip()!r} has no length, which in SQL means {name}(1); "
                f"write {unlimited}{name}(n) with the length that you mean"
            )
        return parse_data_type(text)
    head, inner, null = match[1].upper(), match[2], match[3]
    nullable = not (null or "").upper().startswith("NOT")
    parts = _split_top_level(inner)
    if head == "ARRAY" and len(parts) == 1:
        return ArrayType(parse_sql_type(parts[0]), nullable)
    if head == "MAP" and len(parts) == 2:
        return MapType(parse_sql_type(parts[0]), parse_sql_type(parts[1]), nullable)
    if head in ("ROW", "STRUCT"):
        return RowType(tuple(_parse_field(part) for part in parts), nullable)
    raise InvalidRequestError(f"cannot read the column type {text!r}; examples: ARRAY<INT>, MAP<STRING, INT>")


def column_type(name: str, written: str | DataType) -> DataType:
    """The type of a column as a caller gives it; errors name the column."""
    if not isinstance(name, str) or not isinstance(written, str | DataType):
        raise InvalidRequestError(
            f"column {name!r}: a column is a name with a type such as 'BIGINT' or 'DECIMAL(14, 4)', not {written!r}; "
            "Arrow types go into a pyarrow schema",
            column=name,
        )
    try:
        return parse_sql_type(written) if isinstance(written, str) else written
    except InvalidRequestError as error:
        raise error.reworded(f"column {name!r}: {error}", column=name) from error


def _parse_field(text: str) -> DataField:
    match = _FIELD.match(text)
    if match is None:
        raise InvalidRequestError(f"cannot read the field {text!r} of a ROW type; example: ROW<name STRING, age INT>")
    return DataField(0, match[1] or match[2], parse_sql_type(match[3]))


def _split_top_level(text: str) -> list[str]:
    """Splits at the commas that are inside no bracket."""
    parts, depth, start = [], 0, 0
    for position, symbol in enumerate(text):
        if symbol in "<(":
            depth += 1
        elif symbol in ">)":
            depth -= 1
        elif symbol == "," and depth == 0:
            parts.append(text[start:position])
            start = position + 1
    parts.append(text[start:])
    return parts
