"""What records say of the table that they are of: its columns, their types, its key.

| format | types | key |
|---|---|---|
| Debezium's, with a schema | of the fields of `after` (`sql_types`) | the fields of the record's key |
| canal-json | `mysqlType` (the same) | `pkNames` |
| debezium-avro, avro | of the writer schema | of the schema of the record's key |
| any other | guessed from values | the record's key; `primary_key_columns` of Maxwell |

A guess makes whole numbers of 64 bits BIGINT, true and false BOOLEAN, all else STRING: it cannot know decimals and
times. A field that has been NULL only is not there yet.

Decoders count the fields that records have and their table does not by name. Where these are to become columns, a few
of the records that have them are read by the careful path, for their schema or, without one, for their values.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from freshet._frozen import Frozen
from freshet.pipeline.config.formats import ENVELOPE_FORMATS, Format
from freshet.pipeline.decode import raw_records, record_block
from freshet.pipeline.decode.avro.schemas import HEAD_BYTES
from freshet.pipeline.decode.careful import UNKNOWN_NOTE, shown_name
from freshet.pipeline.decode.change import RawRecord, changes_of, is_wrapped, json_object, key_image
from freshet.pipeline.decode.debezium import row_fields
from freshet.pipeline.decode.images import RowIndexes
from freshet.pipeline.decode.json_value import BOOL, INT, JsonValue, encodable, kind_of
from freshet.pipeline.decode.plan import DecodePlan, RegistrySettings
from freshet.pipeline.decode.reading import read_record
from freshet.pipeline.decode.record_block import RecordBlock
from freshet.pipeline.decode.sql_types import DECIMAL_DIGITS_MAX, sql_type_of_field, sql_type_of_mysql
from freshet.storage.casts.casts import possible_loss
from freshet.storage.model.data_type import DataType, ScalarType, TypeRoot, with_nullable
from freshet.storage.model.schema import is_system_name
from freshet.storage.model.sql_type import parse_sql_type

NEW_COLUMNS_MAX: Final = 100
"""The columns of one table in one batch: more is a mistake of the source rather than a change."""

BIGINT, BOOLEAN, STRING = "BIGINT", "BOOLEAN", "STRING"
_KEY_PREFIX: Final = "pk."
_KINDS: Final = (
    frozenset({TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.BIGINT}),
    frozenset({TypeRoot.FLOAT, TypeRoot.DOUBLE}),
    frozenset({TypeRoot.CHAR, TypeRoot.VARCHAR}),
    frozenset({TypeRoot.BINARY, TypeRoot.VARBINARY}),
)
"""Types between which a column is widened, as Apache Paimon does; one of them alone is a kind of its own."""
_GUESSED: Final = {INT: BIGINT, BOOL: BOOLEAN}
_BIGINT_DIGITS: Final = 19


class DescribedTable(Frozen):
    """Columns with their types in SQL, and the columns of the key; `where` is the place of a record that says so,
    `lacks` the columns of a table that is there already, of which such a record has no field. Where `knows_key`, a
    table of which no key is named has none."""

    columns: Mapping[str, str]
    keys: tuple[str, ...]
    is_typed: bool
    where: str
    lacks: tuple[str, ...] = ()
    knows_key: bool = False

    def joined(self, other: DescribedTable) -> DescribedTable:
        """What both say: every column, in the type that takes the values of both; a text where there is none."""
        columns = dict(self.columns)
        for name, text in other.columns.items():
            known = columns.get(name)
            columns[name] = text if known is None else union_type(known, text) or STRING
        lacks = tuple(dict.fromkeys((*self.lacks, *other.lacks)))
        return DescribedTable(columns, self.keys or other.keys, self.is_typed and other.is_typed, self.where, lacks)

    def named(self, columns: Mapping[str, str]) -> DescribedTable:
        """The same with the names of these columns for some of the fields."""
        fields = {columns.get(name, name): text for name, text in self.columns.items()}
        return replace(self, columns=fields, keys=tuple(columns.get(name, name) for name in self.keys))

    def as_columns(self, there: Collection[str]) -> tuple[dict[str, str], tuple[str, ...]]:
        """The fields that can be columns beside those that are there, and the others: of names that differ in the case
        of their letters alone, a table has one."""
        taken = {name.lower(): name for name in there}
        columns, no_names = {}, []
        for name, text in self.columns.items():
            if (is_column_name(name) and taken.setdefault(name.lower(), name) == name) or name in there:
                columns[name] = text
            else:
                no_names.append(name)
        return columns, tuple(no_names)

    def respelled(self, there: Collection[str]) -> dict[str, str]:
        """The columns of fields that are called otherwise by the case of their letters alone, where no field has the
        name of the column, and one alone is called so."""
        found = {}
        fields, columns = (Counter(name.lower() for name in names) for names in (self.columns, there))
        by_lower = {name.lower(): name for name in there}
        for name in self.columns:
            lower = name.lower()
            if name not in there and fields[lower] == columns[lower] == 1:
                found[name] = by_lower[lower]
        return found

    @property
    def is_empty(self) -> bool:
        """True where nothing is known."""
        return not self.columns

    def to_document(self) -> list[JsonValue]:
        """The form that JSON takes."""
        return [list(self.columns.items()), list(self.keys), self.is_typed, self.where, list(self.lacks)]

    @classmethod
    def of(cls, document: list[JsonValue]) -> DescribedTable:
        """The inverse of `to_document`."""
        columns, keys, is_typed, where, lacks = document
        return cls(dict(columns), tuple(keys), is_typed, where, tuple(lacks))


def is_column_name(name: str) -> bool:
    """False for what the table format keeps to itself, and for what cannot be written in a plan or a schema."""
    is_text = bool(name.strip()) and "`" not in name and encodable(name) == name
    return is_text and not is_system_name(name)


def wider_type(left: str, right: str) -> str | None:
    """Whichever of two types takes the values of both; None where neither does."""
    if takes(left, right):
        return left
    return right if takes(right, left) else None


def union_type(left: str, right: str) -> str | None:
    """The narrowest type of the same kind that takes the values of both; None where there is none. Of two decimals it
    may be a third one: DECIMAL(11, 4) for DECIMAL(9, 2) and DECIMAL(9, 4)."""
    wider = wider_type(left, right)
    if wider is not None:
        return wider
    first, second = _parsed(left), _parsed(right)
    if not (isinstance(first, ScalarType) and isinstance(second, ScalarType)):
        return None
    if first.root is not TypeRoot.DECIMAL or second.root is not TypeRoot.DECIMAL:
        return None
    scale = max(first.scale or 0, second.scale or 0)
    whole = max((each.precision or 10) - (each.scale or 0) for each in (first, second))
    return f"DECIMAL({whole + scale}, {scale})" if whole + scale <= DECIMAL_DIGITS_MAX else None


def takes(wider: str, narrower: str) -> bool:
    """Whether a type has every value of another one of its kind."""
    first, second = _parsed(wider), _parsed(narrower)
    if first == second:
        return True
    if not (isinstance(first, ScalarType) and isinstance(second, ScalarType)):
        return False
    return _kind(first) == _kind(second) and possible_loss(second, first) is None


def describe_record(
    format_name: Format, record: RawRecord, where: str, registry: RegistrySettings | None = None
) -> DescribedTable:
    """What one record says; nothing where it is no change."""
    nothing = DescribedTable({}, (), False, where)
    if record.value is None:
        return nothing
    if registry is not None:
        from freshet.pipeline.decode.avro.source_tables import described_avro

        described = described_avro(record, registry, is_envelope=format_name in ENVELOPE_FORMATS)
        return nothing if described is None else DescribedTable(*described, True, where)
    top = json_object(record.value)
    if top is None:
        return nothing
    typed = _types_of(format_name, top)
    keys = _keys_of(format_name, top, record.key)
    if typed is not None:
        return DescribedTable(typed, keys, True, where)
    guessed: dict[str, str] = {}
    for change in changes_of(read_record(format_name, record)):
        for image in (change.image, change.before or {}):
            for name, value in image.items():
                if value is not None and not (format_name == "debezium-unwrapped" and name.startswith("__")):
                    found = _guessed(value)
                    guessed[name] = found if guessed.get(name, found) == found else STRING
    return DescribedTable(guessed, keys, False, where)


def _guessed(value: JsonValue) -> str:
    found = _GUESSED.get(kind_of(value), STRING)
    return STRING if found == BIGINT and not _fits_bigint(value) else found


def _fits_bigint(text: str) -> bool:
    """Whether a whole number has 64 bits. Looks at the digits first: Python refuses to read thousands of them."""
    return len(text.lstrip("-")) <= _BIGINT_DIGITS and -(2**63) <= int(text) < 2**63


def describe_records(
    format_name: Format, records: Iterable[tuple[RawRecord, str]], registry: RegistrySettings | None = None
) -> DescribedTable | None:
    """What several records say together; None where none of them says anything."""
    return joined_tables(describe_record(format_name, record, where, registry) for record, where in records)


def joined_tables(described: Iterable[DescribedTable]) -> DescribedTable | None:
    """What all of them say; None where none says anything."""
    whole: DescribedTable | None = None
    for found in described:
        if not found.is_empty:
            whole = found if whole is None else whole.joined(found)
    return whole


def _types_of(format_name: Format, top: Mapping[str, JsonValue]) -> dict[str, str] | None:
    match format_name:
        case "canal-json":
            types = top.get("mysqlType")
            if not isinstance(types, dict):
                return None
            return {name: sql_type_of_mysql(str(text)) for name, text in types.items()}
        case "debezium-json" | "debezium-unwrapped":
            if format_name == "debezium-unwrapped" and not is_wrapped(top):
                return None  # a row with a column of that name
            schema = top.get("schema")
            members: JsonValue = schema.get("fields") if isinstance(schema, dict) else None
            fields = row_fields(schema) if format_name == "debezium-json" else members
            if not isinstance(fields, list):
                return None
            found = {}
            source = _source_name(members)
            for each in fields:
                name = each.get("field") if isinstance(each, dict) else None
                if isinstance(name, str) and not (format_name == "debezium-unwrapped" and name.startswith("__")):
                    found[name] = sql_type_of_field(each, source)
            return found
        case _:
            return None


def _source_name(members: JsonValue) -> str:
    """What the schema of an envelope calls the struct that says where a change is from."""
    names = (each.get("name") for each in members if isinstance(each, dict) and each.get("field") == "source")
    return str(next(names, ""))


def _keys_of(format_name: Format, top: Mapping[str, JsonValue], key: bytes | None) -> tuple[str, ...]:
    if format_name == "canal-json":
        return _names(top.get("pkNames"))
    if format_name == "maxwell-json":
        named = _names(top.get("primary_key_columns"))
        members = json_object(key) or {}
        return named or tuple(name.removeprefix(_KEY_PREFIX) for name in members if name.startswith(_KEY_PREFIX))
    return tuple(key_image(key) or ())


def _names(value: JsonValue) -> tuple[str, ...]:
    return tuple(str(name) for name in value) if isinstance(value, list) else ()


def _kind(data_type: ScalarType) -> object:
    return next((kind for kind in _KINDS if data_type.root in kind), data_type.root)


@lru_cache(1024)
def _parsed(text: str) -> DataType:
    """Kept: of a hundred tables whose records have no schema, reading types took three quarters of describing them."""
    return with_nullable(parse_sql_type(text), True)


SAMPLE: Final = 200
"""Records whose values are looked at, where types are guessed: each takes 20 µs by the careful path."""
TYPED_SAMPLE: Final = 3
"""The same of records that bring a schema."""

_SHORT: Final = {'"': '"', "\\": "\\", "/": "/", "\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t"}
"""The characters that JSON escapes by one."""
_SHOWN_ESCAPE: Final = re.compile(r"\\(x[0-9a-f]{2}|u[0-9a-f]{4}|U00(?:0[0-9a-f]|10)[0-9a-f]{4}|[nrt\\'])")
"""What `shown_name` writes for characters that cannot be shown."""


def new_names(notes: Mapping[str, int], before: Mapping[str, int], known: Container[str]) -> Iterator[str]:
    """Fields that nothing reads and that were counted since `before`, less those known."""
    for note, count in notes.items():
        if note.startswith(UNKNOWN_NOTE) and count > before.get(note, 0):
            name = note.removeprefix(UNKNOWN_NOTE)
            if name not in known:
                yield name


def records_with(block: RecordBlock, name: str, count: int) -> Iterator[tuple[RawRecord, str]]:
    """The first records of a block in which a member has the name, as notes show it, and their places."""
    values = block.column(raw_records.VALUE).cast(pa.large_binary())
    has_name: pa.Array = pc.match_substring_regex(values, _as_a_member(name)).fill_null(False)
    chosen = np.flatnonzero(has_name.to_numpy(zero_copy_only=False))
    return placed_records(block, chosen[:count])


@lru_cache(256)
def _as_a_member(shown: str) -> str:
    """A pattern of the name in JSON, where any character may be escaped: Python does so with all that are not ASCII,
    others with `/`. It takes 1 ms per MiB, no more than the search for a text."""
    unshown = _SHOWN_ESCAPE.sub(lambda match: match[0].encode().decode("unicode_escape"), shown)
    names = "|".join("".join(map(_any_form, name)) for name in sorted({shown, unshown}))
    return rf'"(?:{names})"[ \t\r\n]*:'


def _any_form(character: str) -> str:
    """A pattern of the character and of all its escapes."""
    units = character.encode("utf-16-be", "surrogatepass").hex()
    hexadecimal = "".join(rf"\\u(?i:{units[at : at + 4]})" for at in range(0, len(units), 4))
    short = rf"|\\{_raw(_SHORT[character])}" if character in _SHORT else ""
    plain = "" if character in '"\\' else f"{_raw(character)}|"
    return f"(?:{plain}{hexadecimal}{short})"


def _raw(character: str) -> str:
    """A pattern of its bytes, which is how patterns are applied to binary values."""
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogatepass"))


def placed_records(block: RecordBlock, indexes: RowIndexes) -> Iterator[tuple[RawRecord, str]]:
    """Some records of a block, and their places."""
    yield from zip(record_block.each_of(block, indexes), record_block.wheres(block, indexes), strict=True)


def described_fields(plan: DecodePlan, block: RecordBlock, names: Iterable[str]) -> DescribedTable | None:
    """What records of the block say of these fields; None where they say nothing that a column could be made of, such
    as a field that has been NULL only, or one whose name differs from a column's in the case of its letters alone."""

    def described(shown: str) -> DescribedTable | None:
        records = first_records_by_id(block) if plan.is_avro else records_with(block, shown, SAMPLE)
        return describe_records(plan.format, records, plan.registry)

    return fields_of(plan, names, described)


def fields_of(
    plan: DecodePlan, names: Iterable[str], described_by: Callable[[str], DescribedTable | None]
) -> DescribedTable | None:
    """The same of what is said of each field where it is asked for."""
    whole: DescribedTable | None = None
    taken = {column.field.name.lower() for column in plan.columns}
    for shown in names:
        described = None if shown.lower() in taken else described_by(shown)
        if described is None:
            continue
        for name, text in described.columns.items():
            if shown_name(name) == shown and is_column_name(name) and name.lower() not in taken:
                one = DescribedTable({name: text}, (), described.is_typed, described.where)
                whole = one if whole is None else whole.joined(one)
    return whole


def first_records_by_id(block: RecordBlock) -> Iterator[tuple[RawRecord, str]]:
    """The first record of each writer schema, by the id in front of it."""
    heads = pc.binary_slice(block.column(raw_records.VALUE), 0, HEAD_BYTES).dictionary_encode()
    firsts = [pc.index(heads.indices, code).as_py() for code in range(len(heads.dictionary))]
    return placed_records(block, np.array(sorted(firsts), np.int64))
