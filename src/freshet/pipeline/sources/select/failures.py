"""What may fail while an expression is computed, by Spark's analysed tree, under ANSI rules.

Only what is known never to fail is left out: texts, comparisons, conditions, casts that lose nothing, arithmetic of
floating point, of decimals whose result has room, and everything tried (`try_…`). A function that is not known here
may fail.
"""

from __future__ import annotations

from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

_TOTAL: Final = frozenset({
    "Alias", "And", "Ascii", "AttributeReference", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor",
    "CaseWhen", "Coalesce", "Concat", "ConcatWs", "Contains", "CreateArray", "CreateNamedStruct", "DateAdd",
    "DateDiff", "DateSub", "DayOfMonth", "DayOfWeek", "DayOfYear", "EndsWith", "EqualNullSafe", "EqualTo",
    "GetMapValue", "GetStructField", "Greatest", "GreaterThan", "GreaterThanOrEqual", "Hour", "If", "In", "InitCap",
    "IsNaN", "IsNotNull", "IsNull", "Least", "Length", "LessThan", "LessThanOrEqual", "Like", "Literal", "Lower",
    "Md5", "Minute", "Month", "Murmur3Hash", "Not", "Or", "Quarter", "Second", "Sha1", "Sha2", "Size", "SoundEx",
    "StartsWith", "StringInstr", "StringLPad", "StringRPad", "StringReplace", "StringRepeat", "StringReverse",
    "StringSplit", "StringTranslate", "StringTrim", "StringTrimLeft", "StringTrimRight", "Substring", "TryEval",
    "UnixMicros", "UnixMillis", "UnixSeconds", "Upper", "WeekDay", "WeekOfYear", "XxHash64", "Year",
})  # fmt: skip
"""Nodes that give a value, or NULL, whatever their children give."""

_ARITHMETIC: Final = frozenset({"Add", "Subtract", "Multiply"})
_DIVISIONS: Final = frozenset({"Divide", "IntegralDivide", "Remainder", "Pmod"})
_INDEXED: Final = frozenset({"GetArrayItem", "ElementAt", "Elt"})
OUT_OF_RANGE: Final = "a number out of range"
DIVISION: Final = "a division by zero"
NO_INDEX: Final = "an index that is not there"
_DECIMAL_MAX: Final = 38


def possible_failures(node: Any, catalyst_cast: Any) -> tuple[str, ...]:
    """What may fail in a resolved expression, in words for people, each once; empty where nothing can.

    `catalyst_cast` is Spark's class of casts, which knows those that lose nothing.
    """
    found: dict[str, None] = {}
    _collect(node, catalyst_cast, found)
    return tuple(found)


def _collect(node: Any, catalyst_cast: Any, found: dict[str, None]) -> None:
    kind = str(node.getClass().getSimpleName())
    if kind == "TryEval" or (node.foldable() and _is_computed(node)):
        return
    if _is_replaceable(node):
        _collect(node.replacement(), catalyst_cast, found)
        return
    children = node.children()
    cause = None if kind in _TOTAL else _cause(node, kind, children, catalyst_cast)
    if cause is not None:
        found.setdefault(cause)
    for index in range(children.length()):
        _collect(children.apply(index), catalyst_cast, found)


def _cause(node: Any, kind: str, children: Any, catalyst_cast: Any) -> str | None:
    if kind == "Cast":
        child = children.apply(0).dataType()
        if node.evalMode().toString() == "TRY" or catalyst_cast.canUpCast(child, node.dataType()):
            return None
        return f"a value that is no {node.dataType().sql()}"
    if kind in _ARITHMETIC:
        return None if _is_tried(node) or _has_room(node.dataType()) else OUT_OF_RANGE
    if kind in _DIVISIONS:
        return None if _is_tried(node) else DIVISION
    if kind in _INDEXED:
        return NO_INDEX
    if kind in ("UnaryMinus", "Abs"):
        return None if _has_room(node.dataType()) else OUT_OF_RANGE
    return f"an error in {node.prettyName()}"


def _is_computed(constant: Any) -> bool:
    """True where a constant expression has a value: 1 / 0 has none."""
    try:
        constant.eval(None)
    except (Py4JJavaError, PySparkException):
        return False
    return True


def _is_tried(node: Any) -> bool:
    return bool(node.evalMode().toString() == "TRY")


def _has_room(data_type: Any) -> bool:
    """Floating point has infinities; the result of decimal arithmetic has the digits it needs, up to 38."""
    name = str(data_type.typeName())
    if name in ("double", "float"):
        return True
    return name.startswith("decimal") and data_type.precision() < _DECIMAL_MAX


def _is_replaceable(node: Any) -> bool:
    """True for what Spark replaces by other expressions before it runs, such as nvl or try_add."""
    return any(str(each.getSimpleName()) == "RuntimeReplaceable" for each in node.getClass().getInterfaces())
