"""Writer schemas: what a datum holds and what its fields mean.

Avro's encoding depends on the physical types alone. So datums are read by a schema of the same encoding that has no
names, defaults and logical types (`WriterSchema.physical`), in which

| the writer's | is read as |
|---|---|
| a named type that is used again | the type itself, unless it contains itself |
| enum | int, the index of the symbol |
| a union of more than null and one type | each branch in a record of one field, whose name says which it is |

What the types mean is in the nodes: the names of Connect and Debezium (`connect.name`) and Avro's logical types, as the
facts that the schema next to JSON payloads gives.

Source: the Avro specification 1.12; Confluent's AvroData for the annotations of Connect.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Final

from freshet.pipeline.decode.change import Facts
from freshet.pipeline.decode.convert.decimals import CONNECT_DECIMAL
from freshet.pipeline.decode.dialect import BYTES, STRING, Fact
from freshet.pipeline.decode.json_value import JsonValue

_PRIMITIVE: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_LOGICAL: Final[Mapping[tuple[str, str], str]] = {
    ("int", "date"): "org.apache.kafka.connect.data.Date",
    ("int", "time-millis"): "org.apache.kafka.connect.data.Time",
    ("long", "time-micros"): "io.debezium.time.MicroTime",
    **{
        ("long", f"{local}timestamp-{unit}"): name
        for local in ("", "local-")
        for unit, name in (
            ("millis", "org.apache.kafka.connect.data.Timestamp"),
            ("micros", "io.debezium.time.MicroTimestamp"),
            ("nanos", "io.debezium.time.NanoTimestamp"),
        )
    },
}
"""Avro's logical types as Connect and Debezium name them. A logical type on another type is none, as Avro has it."""

_FACT_KINDS: Final = {"bytes": BYTES, "fixed": BYTES, "string": STRING, "enum": STRING}
_UUID_BYTES: Final = 16
_SCALE_MAX: Final = 9999
BRANCH: Final = "b"
"""Begins the name of the field in a branch of a union; the number of the branch follows."""


class SchemaError(ValueError):
    """A text is no Avro schema."""


@dataclass(slots=True, eq=False)
class Node:
    """A type. `is_nullable` for the other type of a union with null, whose branch is `null_at`."""

    kind: str
    name: str = ""
    """The name of its meaning, as `Fact` has it."""
    is_nullable: bool = False
    null_at: int = 0
    scale: int | None = None
    """The scale of a decimal; None of all else."""
    precision: int | None = None
    """The precision of a decimal whose schema has it."""
    is_uuid: bool = False
    size: int = 0
    symbols: Sequence[str] = ()
    item: Node | None = None
    """The items of an array or a map."""
    fields: dict[str, Node] = field(default_factory=dict)
    branches: tuple[Node, ...] = ()
    """The branches of a union of more than null and one type."""

    @property
    def is_decimal(self) -> bool:
        """True for bytes that are the unscaled number."""
        return self.scale is not None

    @property
    def fact(self) -> Fact:
        """What the type says of values; of several branches, what the only one that says something says."""
        if self.kind == "union":
            said = [replace(branch.fact, kind="") for branch in self.branches]
            said = [fact for fact in said if fact != Fact("")]
            return said[0] if len(said) == 1 else Fact("")
        items = self.item.fact if self.kind == "array" and self.item is not None else None
        return Fact(self.name, self.scale, items, "" if self.is_uuid else _FACT_KINDS.get(self.kind, ""))

    @property
    def facts(self) -> Facts:
        """The facts of the fields of a record."""
        return {name: each.fact for name, each in self.fields.items()}


@dataclass(frozen=True, slots=True, eq=False)
class WriterSchema:
    """A schema as datums are read by it."""

    root: Node
    physical: JsonValue
    """The schema, as JSON has it."""
    is_columnar: bool
    """Whether columns of Arrow can be made of it: no type contains itself, no record is empty, no union has several
    types besides null."""


def parse_schema(text: str, references: Sequence[str] = ()) -> WriterSchema:
    """A schema, with those that it refers to; raises `SchemaError`."""
    names: dict[str, Node] = {}
    try:
        for each in references:
            _SchemaParser(names).node(json.loads(each), "")
        root = _SchemaParser(names).node(json.loads(text), "")
        writer = _PhysicalWriter()
        return WriterSchema(root, writer.of(root), writer.is_columnar)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise SchemaError(str(error) or type(error).__name__) from error
    except RecursionError as error:
        raise SchemaError("nested too deep") from error


class _SchemaParser:
    def __init__(self, names: dict[str, Node]) -> None:
        self._names = names

    def node(self, schema: JsonValue, namespace: str) -> Node:
        if isinstance(schema, str):
            return self._named(schema, namespace)
        if isinstance(schema, list):
            return self._union(schema, namespace)
        kind = schema["type"]
        if not isinstance(kind, str):
            return self.node(kind, namespace)
        if kind in ("record", "error", "enum", "fixed"):
            return self._definition(schema, kind, namespace)
        if kind in ("array", "map"):
            return Node(kind, item=self.node(schema["items" if kind == "array" else "values"], namespace))
        found = self._named(kind, namespace)
        return _annotated(Node(kind), schema) if kind in _PRIMITIVE else found

    def _named(self, name: str, namespace: str) -> Node:
        if name in _PRIMITIVE:
            return Node(name)
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        found = self._names.get(full) or self._names.get(name)
        if found is None:
            raise SchemaError(f"the type {full} is not known")
        return found

    def _union(self, schemas: Sequence[JsonValue], namespace: str) -> Node:
        branches = tuple(self.node(each, namespace) for each in schemas)
        others = [each for each in branches if each.kind != "null"]
        if len(branches) == 2 and len(others) == 1 and others[0].kind != "union":
            null_at = 0 if branches[0].kind == "null" else 1
            return _nullable(others[0], null_at)
        return Node("union", is_nullable=len(others) < len(branches), branches=branches)

    def _definition(self, schema: Mapping[str, JsonValue], kind: str, namespace: str) -> Node:
        given = str(schema["name"])
        outer, _, _ = given.rpartition(".")
        space = outer or str(schema.get("namespace") or "") or namespace
        full = given if outer or not space else f"{space}.{given}"
        if kind == "fixed":
            node = _annotated(Node("fixed", size=int(schema["size"])), schema)
        elif kind == "enum":
            node = Node("enum", symbols=tuple(map(str, schema["symbols"])))
        else:
            node = Node("record", name=_connect_name(schema))
        self._names[full] = node
        if node.kind == "record":
            for each in schema["fields"]:
                node.fields[str(each["name"])] = self.node(each["type"], space)
        return node


def _nullable(node: Node, null_at: int) -> Node:
    """The type with NULL; its fields are those of the type itself, which may not be complete yet."""
    return replace(node, is_nullable=True, null_at=null_at)


def _annotated(node: Node, schema: Mapping[str, JsonValue]) -> Node:
    logical = schema.get("logicalType")
    node.name = _connect_name(schema) or _LOGICAL.get((node.kind, str(logical)), "")
    if node.kind in ("bytes", "fixed") and (logical == "decimal" or node.name == CONNECT_DECIMAL):
        parameters = schema.get("connect.parameters")
        given = schema.get("scale", parameters.get("scale") if isinstance(parameters, Mapping) else None)
        scale = int(given or 0)
        if abs(scale) <= _SCALE_MAX:
            node.name, node.scale = CONNECT_DECIMAL, scale
            of_connect = parameters.get("connect.decimal.precision") if isinstance(parameters, Mapping) else None
            precision = str(schema.get("precision", of_connect) or "")
            node.precision = int(precision) if precision.isdecimal() else None
    elif node.kind == "fixed" and logical == "uuid" and node.size == _UUID_BYTES:
        node.is_uuid = True
    return node


def _connect_name(schema: Mapping[str, JsonValue]) -> str:
    name = schema.get("connect.name")
    return name if isinstance(name, str) else ""


class _PhysicalWriter:
    """Writes the schema that datums are read by; every record and fixed gets a name of its own."""

    def __init__(self) -> None:
        self.is_columnar = True
        self._numbers: Iterator[int] = count()
        self._open: dict[int, str] = {}
        """Names of the records that the present place is in, by their fields, which nullable ones share."""

    def of(self, node: Node) -> JsonValue:
        found = self._bare(node)
        if not node.is_nullable or node.kind == "union":
            return found
        return ["null", found] if node.null_at == 0 else [found, "null"]

    def _bare(self, node: Node) -> JsonValue:
        match node.kind:
            case "record":
                return self._record(node)
            case "array":
                return {"type": "array", "items": self._item(node)}
            case "map":
                return {"type": "map", "values": self._item(node)}
            case "enum":
                return "int"
            case "fixed":
                return {"type": "fixed", "name": self._name(), "size": node.size}
            case "union":
                self.is_columnar = False
                return [self._branch(number, each) for number, each in enumerate(node.branches)]
            case kind:
                return kind

    def _item(self, node: Node) -> JsonValue:
        assert node.item is not None
        return self.of(node.item)

    def _record(self, node: Node) -> JsonValue:
        known = self._open.get(id(node.fields))
        if known is not None:
            self.is_columnar = False
            return known
        name = self._open[id(node.fields)] = self._name()
        self.is_columnar &= bool(node.fields)
        members = [{"name": f"f{index}", "type": self.of(each)} for index, each in enumerate(node.fields.values())]
        del self._open[id(node.fields)]
        return {"type": "record", "name": name, "fields": members}

    def _branch(self, number: int, node: Node) -> JsonValue:
        if node.kind == "null":
            return "null"
        return {
            "type": "record", "name": self._name(), "fields": [{"name": f"{BRANCH}{number}", "type": self.of(node)}],
        }  # fmt: skip

    def _name(self) -> str:
        return f"n{next(self._numbers)}"
