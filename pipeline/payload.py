"""One image of a record (the row after, or before, a change): its fields out of the map, into their declared types.

    map ─▶ v{i} VARIANT ─▶ j{i} JSON ─▶ t{i} text ─▶ (TOAST: from `before`, or missing) ─▶ r{i}_1 … r{i}_k carrier

A field is lost when it has a text and its last step is NULL: that is a dead letter. An unchanged TOAST value is taken
from the row before the change if it is really there: a value no longer than a TOAST pointer (18 bytes) was never stored
out of line, so it is what Debezium made up for a NOT NULL column that it did not know.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from freshet.pipeline.formats.flat_json import ADDED_PREFIX
from freshet.pipeline.formats.record import FACTS, IMAGE, PREFIX, Stage
from freshet.pipeline.formats.typed_value import steps_for
from freshet.pipeline.formats.value import Dialect, Leaf, is_json_string, text_of
from freshet.pipeline.mapping import PayloadField
from freshet.pipeline.sql_text import any_of, case, literal, one_of
from freshet.storage.model.data_type import ScalarType, TypeRoot

MISSING: Final = f"{PREFIX}missing"
"""ARRAY<STRING>: payload fields whose value is unavailable and not in `before` either; NULL when there are none."""

FOUND: Final = f"{PREFIX}found"
"""ARRAY<STRING>: payload fields whose unavailable value was taken from `before`."""

UNKNOWN: Final = f"{PREFIX}unknown"
"""ARRAY<STRING>: fields of the record that nothing reads; NULL when there are none."""

_NO_NAMES: Final = "CAST(array() AS ARRAY<STRING>)"
NO_TOAST: Final[Stage] = {MISSING: "CAST(NULL AS ARRAY<STRING>)", FOUND: "CAST(NULL AS ARRAY<STRING>)"}

_TOAST_POINTER_BYTES: Final = 18
_NO_TOAST: Final = frozenset(
    {
        TypeRoot.BOOLEAN, TypeRoot.TINYINT, TypeRoot.SMALLINT, TypeRoot.INT, TypeRoot.BIGINT, TypeRoot.FLOAT,
        TypeRoot.DOUBLE, TypeRoot.DECIMAL, TypeRoot.DATE, TypeRoot.TIME, TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ,
    }
)  # fmt: skip
_NAMED_TYPES: Final = frozenset(
    {TypeRoot.DECIMAL, TypeRoot.DATE, TypeRoot.TIME, TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ}
)
"""Types for which the type name in the record's schema matters."""


@dataclass(frozen=True, slots=True)
class PayloadImage:
    """The columns that hold one image; `tag` keeps the images of one record apart."""

    tag: str
    fields: tuple[PayloadField, ...]

    def variant(self, place: int) -> str:
        return f"{PREFIX}{self.tag}v{place}"

    def json(self, place: int) -> str:
        """The JSON form of the value as it stands in the record."""
        return f"{PREFIX}{self.tag}j{place}"

    def text(self, place: int) -> str:
        return f"{PREFIX}{self.tag}t{place}"

    def result(self, place: int, step: int) -> str:
        return f"{PREFIX}{self.tag}r{place}_{step}"

    def carrier(self, field: str, dialect: Dialect) -> str:
        """The column with the value of a field in its carrier."""
        place = next(place for place, each in enumerate(self.fields) if each.name == field)
        return self.result(place, len(steps_for(self.fields[place].type, dialect)))


@dataclass(frozen=True, slots=True)
class ErrorCase:
    """One way in which a record is a dead letter: SQL texts of the condition and of the reason."""

    condition: str
    column: str | None
    reason: str


def wants_facts(fields: Sequence[PayloadField]) -> bool:
    """True when the types in a record's schema say something about these fields that the declared types do not."""
    return any(field.type.root in _NAMED_TYPES for field in fields)


def image_stages(
    image: PayloadImage, entries: str, dialect: Dialect, *, with_facts: bool, toast: Toast | None
) -> list[Stage]:
    """The stages from the map `entries` to the carriers of all fields."""
    places = range(len(image.fields))
    stages = toast.stages(image, entries) if toast else _value_stages(image, entries)
    if with_facts:
        stages += _fact_stages(image)
    steps = [steps_for(field.type, dialect) for field in image.fields]
    for number in range(1, max((len(each) for each in steps), default=0) + 1):
        stages.append(
            {
                image.result(place, number): steps[place][number - 1](
                    _leaf(image, place, with_facts), image.result(place, number - 1)
                )
                for place in places
                if number <= len(steps[place])
            }
        )
    return [stage for stage in stages if stage]


@dataclass(frozen=True, slots=True)
class Toast:
    """Unchanged TOAST values of updates: `is_update` and `before` are SQL texts."""

    placeholder: str
    is_update: str
    before: str

    def stages(self, image: PayloadImage, entries: str) -> list[Stage]:
        """The raw values, and where one is unavailable, the value of `before` or NULL."""
        places = range(len(image.fields))
        able = self._able(image)
        flag = f"{PREFIX}{image.tag}toast"
        if not able:
            return [*_value_stages(image, entries), NO_TOAST]

        def raw_variant(place: int) -> str:
            return image.variant(place) + "_raw" if place in able else image.variant(place)

        def raw_text(place: int) -> str:
            return image.text(place) + "_raw" if place in able else image.text(place)

        def old(place: int) -> str:
            return f"{self.before}[{literal(image.fields[place].name)}]"

        def really_there(place: int) -> str:
            text = f"CAST({old(place)} AS STRING)"
            return f"(octet_length({text}) > {_TOAST_POINTER_BYTES} AND NOT {self.is_unavailable(text)})"

        def listed(condition: Callable[[int], str]) -> str:
            names = [case([(condition(place), literal(image.fields[place].name))]) for place in able]
            filled = f"array_compact(array({', '.join(names)}))"
            return f"CASE WHEN {flag} THEN nullif({filled}, {_NO_NAMES}) END"

        def settled(place: int, of_old: str, otherwise: str) -> str:
            unavailable = f"{flag} AND {self.is_unavailable(raw_text(place))}"
            return case([(unavailable, f"CASE WHEN {really_there(place)} THEN {of_old} END")], otherwise)

        return [
            {raw_variant(place): f"{entries}[{literal(image.fields[place].name)}]" for place in places},
            {image.json(place): f"to_json({raw_variant(place)})" for place in places},
            {raw_text(place): text_of(image.json(place), raw_variant(place)) for place in places},
            {flag: f"coalesce({self.is_update} AND {any_of([self.is_unavailable(raw_text(p)) for p in able])}, false)"},
            {
                MISSING: listed(
                    lambda p: f"{self.is_unavailable(raw_text(p))} AND NOT coalesce({really_there(p)}, false)"
                ),
                FOUND: listed(lambda p: f"{self.is_unavailable(raw_text(p))} AND {really_there(p)}"),
                **{image.variant(p): settled(p, old(p), raw_variant(p)) for p in able},
                **{image.text(p): settled(p, f"CAST({old(p)} AS STRING)", raw_text(p)) for p in able},
            },
        ]  # fmt: skip

    def raw_variants(self, image: PayloadImage) -> list[str]:
        """The columns with the values as they stand in the record; NULL where the record lacks the field."""
        able = self._able(image)
        return [image.variant(place) + ("_raw" if place in able else "") for place in range(len(image.fields))]

    def _able(self, image: PayloadImage) -> list[int]:
        """Places of the fields whose values may be stored out of line."""
        return [place for place, field in enumerate(image.fields) if field.type.root not in _NO_TOAST]

    def is_unavailable(self, text: str) -> str:
        """True for the placeholder in each form that it takes: text, base64, hex, and within arrays and maps."""
        octets = self.placeholder.encode()
        forms = [
            self.placeholder,
            base64.b64encode(octets).decode(),
            octets.hex(),
            f'["{self.placeholder}"]',
            f'{{"{self.placeholder}":"{self.placeholder}"}}',
            "[" + ",".join(str(octet) for octet in octets) + "]",
        ]
        return one_of(text, forms)


def lost_fields(image: PayloadImage, dialect: Dialect, is_delete: str) -> list[ErrorCase]:
    """A case per field whose value does not fit; a deletion needs its vital fields only."""
    cases = []
    for place, field in enumerate(image.fields):
        condition = f"{image.text(place)} IS NOT NULL AND {image.carrier(field.name, dialect)} IS NULL"
        if not field.is_vital:
            condition += f" AND NOT {is_delete}"
        reason = literal(f"the value of field {field.name} does not fit {field.type}{_hint(field.type, dialect)}")
        cases.append(ErrorCase(condition, field.column, reason))
    return cases


def unknown_fields(image: PayloadImage, toast: Toast | None, also_known: Sequence[str], *, ignore_added: bool) -> Stage:
    """The fields of the image that nothing reads.

    As long as the map is no larger than the number of fields found in it there are none: comparing the names takes
    6 µs per record, counting what was found nothing that can be measured.
    """
    raw = toast.raw_variants(image) if toast else [image.variant(place) for place in range(len(image.fields))]
    found = [f"CAST({variant} IS NOT NULL AS INT)" for variant in raw]
    found += [f"CAST(map_contains_key({IMAGE}, {literal(field)}) AS INT)" for field in also_known]
    known = ", ".join(literal(field) for field in (*(field.name for field in image.fields), *also_known))
    names = f"array_except(map_keys({IMAGE}), array({known}))"
    if ignore_added:
        names = f"filter({names}, x -> NOT startswith(x, '{ADDED_PREFIX}'))"
    listed = f"nullif({names}, {_NO_NAMES})"
    return {UNKNOWN: f"CASE WHEN size({IMAGE}) > {' + '.join(found) or '0'} THEN {listed} END"}


def first_error(cases: Sequence[ErrorCase]) -> str:
    """The first case that holds, as STRUCT<column, reason>; NULL when none does."""
    branches = []
    for each in cases:
        column = literal(each.column) if each.column else "CAST(NULL AS STRING)"
        branches.append((each.condition, f"struct({column} AS column, {each.reason} AS reason)"))
    return case(branches, "CAST(NULL AS STRUCT<column: STRING, reason: STRING>)")


def _value_stages(image: PayloadImage, entries: str) -> list[Stage]:
    places = range(len(image.fields))
    return [
        {image.variant(place): f"{entries}[{literal(image.fields[place].name)}]" for place in places},
        {image.json(place): f"to_json({image.variant(place)})" for place in places},
        {image.text(place): text_of(image.json(place), image.variant(place)) for place in places},
    ]


def _leaf(image: PayloadImage, place: int, with_facts: bool) -> Leaf:
    leaf = Leaf(image.text(place), image.variant(place), is_json_string(image.json(place)))
    if not with_facts or image.fields[place].type.root not in _NAMED_TYPES:
        return leaf
    return replace(leaf, schema_name=f"{PREFIX}{image.tag}n{place}", schema_scale=f"{PREFIX}{image.tag}s{place}")


def _fact_stages(image: PayloadImage) -> list[Stage]:
    positions: Stage = {}
    facts: Stage = {}
    for place, field in enumerate(image.fields):
        if field.type.root not in _NAMED_TYPES:
            continue
        at = f"{PREFIX}{image.tag}p{place}"
        positions[at] = f"CAST(array_position({FACTS}.field, {literal(field.name)}) AS INT) - 1"
        facts[f"{PREFIX}{image.tag}n{place}"] = (
            f"CASE WHEN {FACTS} IS NOT NULL THEN coalesce(get({FACTS}.name, {at}), '') END"
        )
        facts[f"{PREFIX}{image.tag}s{place}"] = f"get({FACTS}.parameters.scale, {at})"
    return [positions, facts]


def _hint(data_type: object, dialect: Dialect) -> str:
    if not isinstance(data_type, ScalarType):
        return ""
    if data_type.root in (TypeRoot.DATE, TypeRoot.TIME, TypeRoot.TIMESTAMP, TypeRoot.TIMESTAMP_LTZ):
        return " (numbers need time_precision_mode)" if dialect.numeric_times == "isostring" else ""
    return " (exactly)" if data_type.root is TypeRoot.DECIMAL else ""
