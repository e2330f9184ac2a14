"""The expressions of `select`: what they read, and their casts turned into casts that are tried.

A cast (`CAST(x AS t)`, `x::t`, `int(x)` and its like) becomes TRY_CAST, and the expression gets a condition that
is true when some cast gave NULL for a value that was not NULL: that makes a dead letter naming the column. What is
caught and what is not:

| in the expression | a value that cannot be cast |
|---|---|
| a cast anywhere it is evaluated, also within another cast | dead letter |
| a cast in a branch of CASE, IF, COALESCE, NVL, AND, OR that is not taken | nothing |
| `try_cast`, `try_to_…` | NULL, as written |
| a cast inside a lambda (`transform(a, x -> CAST(x AS INT))`), an implicit cast | dead letter, by `tried` |
| anything else that fails (division by zero, overflow, `to_date` of nonsense) | dead letter, by `tried` |

`tried` catches what is thrown while one column of one row is computed: right for all, and slow where it happens, so
casts that users write are rewritten, and expressions that cannot fail go without. Only what is known never to fail
(`possible_failures`) is left out: texts, comparisons, conditions, casts that lose nothing, arithmetic of floating
point, of decimals whose result has room, and everything tried (`try_…`). A function that is not known here may fail.

Expressions are analysed with ANSI mode on, names case-sensitive and times in UTC, whatever the session says. The Python
API has no syntax tree, hence the walk over Spark's own. Nodes are rebuilt only where a cast is below them, so Spark's
messages keep showing the text that failed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import Column, SparkSession

from freshet._frozen import Frozen
from freshet.pipeline.exceptions import ConfigurationError

_CAST_FUNCTIONS: Final = frozenset({
    "boolean", "tinyint", "smallint", "int", "bigint", "float", "double", "decimal", "date", "timestamp", "binary",
    "string",
})  # fmt: skip
_FIRST_NOT_NULL: Final = frozenset({"coalesce", "nvl", "ifnull"})
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


class SelectExpression(Frozen):
    """One entry of `select`.

    `references` are the names it reads, split at the dots (`_source.lsn` gives two parts); `value` is the expression,
    `lost` the condition that one of its casts lost a value (None: it has none).
    """

    column: str
    text: str
    references: frozenset[tuple[str, ...]]
    value: Column
    lost: Column | None


def parse_select(spark: SparkSession, column: str, text: str, section: str = "select") -> SelectExpression:
    """Parses one expression; raises `ConfigurationError` naming the column, or whatever the section of the file has
    under that name, when it is not SQL."""
    catalyst = _Catalyst(spark)
    try:
        root = catalyst.parse(text)
    except (PySparkException, Py4JJavaError) as error:
        first_line = str(error).strip().splitlines()[0]
        raise ConfigurationError(f"{section}.{column}: not a Spark SQL expression: {text!r}: {first_line}") from error
    references = frozenset(_references(root))
    rewriter = _Rewriter(catalyst)
    tried = rewriter.rewrite(root, (), within_lambda=False)
    lost = catalyst.column(rewriter.lost) if rewriter.lost is not None else None
    return SelectExpression(column, text, references, catalyst.column(tried), lost)


def tried(value: Column) -> Column:
    """The value, NULL where computing it fails; a struct is therefore NULL only where something failed."""
    spark = SparkSession.active()
    jvm: Any = spark._jvm
    utils = jvm.org.apache.spark.sql.classic.ExpressionUtils
    node = utils.expression(value._jc)  # type: ignore[attr-defined]
    return Column(utils.column(jvm.org.apache.spark.sql.catalyst.expressions.TryEval(node)))


def cast_class(spark: SparkSession) -> Any:
    """Spark's class of casts."""
    jvm: Any = spark._jvm
    return jvm.org.apache.spark.sql.catalyst.expressions.Cast


def _references(node: Any) -> Iterator[tuple[str, ...]]:
    kind = _kind(node)
    if kind == "UnresolvedAttribute":
        yield tuple(_python_list(node.nameParts()))
        return
    children = _children(node)
    if kind == "UnresolvedExtractValue" and _kind(children[0]) == "UnresolvedAttribute":
        # m['x'] reads the same as m.x
        parts = _python_list(children[0].nameParts())
        if _kind(children[1]) == "Literal" and children[1].dataType().typeName() == "string":
            yield (*parts, children[1].value().toString())
            return
    for child in children:
        yield from _references(child)


class _Rewriter:
    """One walk over one expression; `lost` collects the condition."""

    def __init__(self, catalyst: _Catalyst) -> None:
        self._catalyst = catalyst
        self.lost: Any = None

    def rewrite(self, node: Any, guards: Sequence[Any], *, within_lambda: bool) -> Any:
        """The node with its casts tried; `guards` are the conditions under which it is evaluated."""
        children = _children(node)
        target = self._cast_target(node, children)
        if target is None:
            within_lambda = within_lambda or _kind(node) == "LambdaFunction"
            rewritten = [
                self.rewrite(child, [*guards, *self._guards(node, children, index)], within_lambda=within_lambda)
                for index, child in enumerate(children)
            ]
            changed = any(new is not old for new, old in zip(rewritten, children, strict=True))
            return self._catalyst.with_children(node, rewritten) if changed else node
        child = self.rewrite(children[0], guards, within_lambda=within_lambda)
        cast = self._catalyst.cast(child, target, "ANSI" if within_lambda else "TRY")
        if not within_lambda:
            self._note_loss(child, cast, guards)
        return cast

    def _cast_target(self, node: Any, children: Sequence[Any]) -> Any | None:
        """The type that a node casts to; None when it is no cast, or one that is tried already."""
        kind = _kind(node)
        if kind == "Cast":
            return None if node.evalMode().toString() == "TRY" else node.dataType()
        if kind == "UnresolvedFunction" and len(children) == 1 and _function(node) in _CAST_FUNCTIONS:
            return self._catalyst.data_type(_function(node))
        return None

    def _guards(self, node: Any, children: Sequence[Any], index: int) -> list[Any]:
        """The conditions that a node adds for one of its children to be evaluated at all."""
        catalyst, kind = self._catalyst, _kind(node)
        function = _function(node) if kind == "UnresolvedFunction" else ""
        if kind == "CaseWhen":
            conditions = [children[at] for at in range(0, index - 1 + index % 2, 2)]
            if index % 2 == 1:
                return [*(catalyst.is_not(c, "true") for c in conditions[:-1]), conditions[-1]]
            return [catalyst.is_not(c, "true") for c in conditions]
        if function == "if" and index > 0:
            return [children[0] if index == 1 else catalyst.is_not(children[0], "true")]
        if function in _FIRST_NOT_NULL:
            return [catalyst.is_null(child) for child in children[:index]]
        if function == "nvl2" and index > 0:
            missing = catalyst.is_null(children[0])
            return [catalyst.is_not(missing, "true") if index == 1 else missing]
        if kind in ("And", "Or") and index == 1:
            return [catalyst.is_not(children[0], "false" if kind == "And" else "true")]
        return []

    def _note_loss(self, child: Any, cast: Any, guards: Sequence[Any]) -> None:
        catalyst = self._catalyst
        condition = catalyst.both(catalyst.is_not(catalyst.is_null(child), "true"), catalyst.is_null(cast))
        for guard in reversed(guards):
            tried = _Rewriter(catalyst).rewrite(guard, (), within_lambda=False)
            condition = catalyst.both(catalyst.is_true(tried), condition)
        self.lost = condition if self.lost is None else catalyst.either(self.lost, condition)


class _Catalyst:
    """The few constructors of Spark's expression tree that are needed here."""

    def __init__(self, spark: SparkSession) -> None:
        jvm: Any = spark._jvm
        self._jvm = jvm
        self._session: Any = spark._jsparkSession
        self._expressions: Any = jvm.org.apache.spark.sql.catalyst.expressions

    def parse(self, text: str) -> Any:
        return self._session.sessionState().sqlParser().parseExpression(text)

    def data_type(self, text: str) -> Any:
        return self._session.sessionState().sqlParser().parseDataType(text)

    def column(self, node: Any) -> Column:
        return Column(self._jvm.org.apache.spark.sql.classic.ExpressionUtils.column(node))

    def with_children(self, node: Any, children: Sequence[Any]) -> Any:
        return node.withNewChildren(self._jvm.PythonUtils.toSeq(list(children)))

    def cast(self, child: Any, target: Any, mode: str) -> Any:
        modes = self._expressions.EvalMode
        zone = self._jvm.scala.Option.empty()
        return self._expressions.Cast(child, target, zone, modes.TRY() if mode == "TRY" else modes.ANSI())

    def is_null(self, node: Any) -> Any:
        return self._expressions.IsNull(node)

    def is_true(self, node: Any) -> Any:
        return self._expressions.EqualNullSafe(node, self.parse("true"))

    def is_not(self, node: Any, constant: str) -> Any:
        return self._expressions.Not(self._expressions.EqualNullSafe(node, self.parse(constant)))

    def both(self, left: Any, right: Any) -> Any:
        return self._expressions.And(left, right)

    def either(self, left: Any, right: Any) -> Any:
        return self._expressions.Or(left, right)


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _function(node: Any) -> str:
    return str(_python_list(node.nameParts())[-1]).lower()


def _children(node: Any) -> list[Any]:
    return _python_list(node.children())


def _python_list(sequence: Any) -> list[Any]:
    return [sequence.apply(index) for index in range(sequence.length())]


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
