"""Rules of `expect` that the decoder computes: what each makes of a record, against predicates in plain Python."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from freshet.pipeline.decode.decoder import RecordDecoder
from freshet.pipeline.decode.planning import plan_decoding
from freshet.pipeline.exceptions import ConfigurationError
from tests.pipeline.binlog_records import canal
from tests.pipeline.records import TOAST, change, decoder_of, pipeline_of, run

COLUMNS = {"id": "BIGINT", "amount": "INT", "note": "STRING"}
POSITIVE = {"amount_positive": {"sql": "amount >= 0"}}
GOOD = {"id": 1, "amount": 5, "note": "a"}
BAD = {"id": 1, "amount": -5, "note": "a"}
QUARANTINED = "quarantine amount: amount_positive"


def shown(expect: Mapping[str, Any], *records: Any, columns: Mapping[str, str] = COLUMNS, **source: Any) -> list[str]:
    config = pipeline_of(columns, expect=expect, **source)
    careful = RecordDecoder(plan_decoding(config, 0), is_careful=True)
    found = run(decoder_of(config), list(records)).shown
    assert run(careful, list(records)).shown == found
    return found


def rule(sql: str, action: str = "quarantine") -> dict[str, Any]:
    return {"rule": {"sql": sql, "or": action}}


CREATED: dict[str, tuple[str, dict[str, Any], str]] = {
    "holds": ("amount >= 0", GOOD, "+I(1, 5, a)"),
    "is broken": ("amount >= 0", BAD, "quarantine amount: rule"),
    "NULL passes": ("amount >= 0", {"id": 1}, "+I(1, None, None)"),
    "NULL of one side of AND": ("amount >= 0 AND note = 'a'", {"id": 1, "note": "b"}, "quarantine None: rule"),
    "NULL of one side of OR": ("amount >= 0 OR note = 'a'", {"id": 1, "note": "b"}, "+I(1, None, b)"),
    "NULL is asked for": ("amount IS NOT NULL", {"id": 1}, "quarantine amount: rule"),
    "a value of a list": ("note IN ('a', 'b')", {**GOOD, "note": "c"}, "quarantine note: rule"),
    "a function": ("length(note) <= 3", {**GOOD, "note": "four"}, "quarantine note: rule"),
    "a cast that fails": ("CAST(note AS INT) > 0", GOOD, "quarantine note: rule"),
    "a cast that is tried": ("TRY_CAST(note AS INT) > 0", GOOD, "+I(1, 5, a)"),
    "a division by zero": ("10 / amount > 1", {**GOOD, "amount": 0}, "quarantine amount: rule"),
    "a constant": ("1 > 2", GOOD, "quarantine None: rule"),
    "a quoted name": ("`amount` > 9", GOOD, "quarantine amount: rule"),
}


@pytest.mark.parametrize("case", CREATED)
def test_a_row_breaks_a_rule_where_it_is_false_or_cannot_be_computed(case: str) -> None:
    sql, row, wanted = CREATED[case]
    assert shown(rule(sql), change("c", None, row)) == [wanted]


@pytest.mark.parametrize("action", ["quarantine", "drop", "stop"])
def test_only_what_is_quarantined_keeps_its_bytes(action: str) -> None:
    record = change("c", None, BAD)
    decoder = decoder_of(pipeline_of(COLUMNS, expect=rule("amount >= 0", action)))
    (((row,),), tally) = (run(decoder, [record]).rows, None)
    kept = None if row["_raw_value"] is None else json.loads(row["_raw_value"])
    assert kept == (record if action == "quarantine" else None)
    assert (row["_reason"], row["_column"], row["_offset"], tally) == ("rule", "amount", 0, None)


BY_KIND: dict[str, tuple[Any, dict[str, str], str]] = {
    "an update": (change("u", None, BAD), {}, QUARANTINED),
    "an update that was bad before": (change("u", BAD, GOOD), {"changelog-producer": "input"},
                                      "-U(1, -5, a); +U(1, 5, a)"),
    "an update that becomes bad": (change("u", GOOD, BAD), {"changelog-producer": "input"}, QUARANTINED),
    "a deletion": (change("d", BAD), {}, "-D(1, -5, a)"),
    "a deletion of the key alone": (change("d", {"id": 1}), {}, "-D(1, None, None)"),
    "a change of the key": (change("u", BAD, {**GOOD, "id": 2}), {}, "-D(1, None, None); +I(2, 5, a)"),
    "a change of the key to a bad row": (change("u", GOOD, {**BAD, "id": 2}), {}, QUARANTINED),
    "a value that stays": (change("u", None, {"id": 1, "amount": 3, "note": TOAST}), {}, "+U(1, 3, None) keep 2"),
}  # fmt: skip


@pytest.mark.parametrize("case", BY_KIND)
def test_what_takes_a_row_away_is_not_judged_and_a_record_is_judged_as_a_whole(case: str) -> None:
    record, options, wanted = BY_KIND[case]
    rules = {**POSITIVE, "has_note": {"sql": "note IS NOT NULL"}}
    assert shown(rules, record, options=options) == [wanted]


def test_rows_with_kinds_that_are_deletions_are_not_judged() -> None:
    def row(kind: str) -> dict[str, Any]:
        return {**BAD, "kind": kind}

    found = shown(
        POSITIVE, row("+I"), row("-U"), row("+U"), row("-D"), columns={**COLUMNS, "kind": "STRING"}, format="row-kind",
        options={"rowkind.field": "kind"},
    )  # fmt: skip
    assert found == [QUARANTINED, "-U(1, -5, a, -U)", QUARANTINED, "-D(1, -5, a, -D)"]


def test_messages_of_several_rows_are_quarantined_as_a_whole_and_once() -> None:
    columns = {"id": "BIGINT", "amount": "INT"}
    good, bad = {"id": "1", "amount": "5"}, {"id": "2", "amount": "-5"}
    records = [canal("INSERT", [good]), canal("INSERT", [good, bad, bad]), canal("DELETE", [bad])]
    found = shown(POSITIVE, *records, columns=columns, format="canal-json")
    assert found == ["+I(1, 5)", QUARANTINED, "-D(2, -5)"]


def test_a_record_counts_for_the_most_severe_rule_that_it_breaks() -> None:
    rules = {
        "dropped": {"sql": "amount > 0", "or": "drop"}, "kept": {"sql": "amount > 1"},
        "later": {"sql": "amount > 1"}, "stopping": {"sql": "amount > 2", "or": "stop"},
    }  # fmt: skip
    found = shown(rules, *(change("c", None, {**GOOD, "amount": amount}) for amount in (3, 2)))
    assert found == ["+I(1, 3, a)", "stop amount: stopping"]
    del rules["stopping"]
    found = shown(rules, *(change("c", None, {**GOOD, "amount": amount}) for amount in (2, 1, 0)))
    assert found == ["+I(1, 2, a)", "quarantine amount: kept", "quarantine amount: kept"]
    assert shown({"dropped": rules["dropped"]}, change("c", None, {**GOOD, "amount": 0})) == ["drop amount: dropped"]


def test_a_record_that_cannot_be_a_row_is_a_dead_letter_whatever_is_expected() -> None:
    found = shown(
        {**POSITIVE, "id_there": {"sql": "id IS NOT NULL", "or": "stop"}},
        change("c", None, {**BAD, "amount": "x"}), change("c", None, {**BAD, "id": None}),
    )  # fmt: skip
    assert [text.partition(":")[0] for text in found] == ["dead amount", "dead id"]


def test_rules_read_the_columns_of_the_table_with_what_select_makes_of_them() -> None:
    expect = {"total": {"sql": "total > 10 AND source = 'x'"}}
    select = {"id": "id", "total": "a * b", "source": "_topic"}
    columns = {"id": "BIGINT", "total": "BIGINT", "source": "STRING"}
    row = {"id": 1, "a": 3, "b": 3}
    config = pipeline_of(columns, expect=expect, select=select, schema={"a": "INT", "b": "INT"})
    assert run(decoder_of(config), [change("c", None, row)]).shown == ["quarantine None: total"]


def test_a_rule_waits_for_sources_that_fill_its_columns() -> None:
    config = pipeline_of(COLUMNS, expect=POSITIVE, select={"id": "id", "note": "note"})
    assert plan_decoding(config, 0).rules == ()
    assert run(decoder_of(config), [change("c", None, BAD)]).shown == ["+I(1, None, a)"]


REFUSED = {
    "unknown": ("amout > 0", "expect.rule: 'amout > 0' reads amout, which is no column of the table (did you mean"),
    "metadata": ("_offset > 0", "reads _offset, which is no column"),
    "a number": ("amount + 1", "expect.rule: 'amount + 1' is INT, and a rule is a condition"),
    "a text": ("note", "is STRING, and a rule is a condition"),
    "NULL": ("NULL", "is NULL, and a rule is a condition"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_condition_over_the_columns_is_refused(case: str) -> None:
    sql, wanted = REFUSED[case]
    with pytest.raises(ConfigurationError) as caught:
        plan_decoding(pipeline_of(COLUMNS, expect=rule(sql)), 0)
    assert wanted in str(caught.value)


def _or(left: bool | None, right: bool | None) -> bool | None:
    return True if left or right else None if None in (left, right) else False


ORACLE: dict[str, tuple[str, Callable[[Any, Any], bool | None]]] = {
    "positive": ("amount >= 0", lambda amount, note: None if amount is None else amount >= 0),
    "short": ("length(note) < 3", lambda amount, note: None if note is None else len(note) < 3),
    "present": (
        "note IS NOT NULL OR amount > 5",
        lambda amount, note: _or(note is not None, None if amount is None else amount > 5),
    ),
    "divides": ("10 % amount = 0", lambda amount, note: None if amount is None else amount != 0 and 10 % amount == 0),
}
SEVERITY = ("stop", "quarantine", "drop")
RULES: tuple[dict[str, str], ...] = (
    {"positive": "drop", "short": "quarantine", "present": "stop", "divides": "drop"},
    {"divides": "quarantine", "present": "quarantine", "short": "stop", "positive": "stop"},
    {"short": "drop"},
)
ROWS = st.lists(
    st.tuples(
        st.sampled_from(["c", "u", "d", "r"]),
        st.one_of(st.none(), st.integers(-3, 12), st.sampled_from([99, 100, 2**31 - 1])),
        st.one_of(st.none(), st.sampled_from(["", "x", "ab", "äbc"])),
    ),
    min_size=5,
    max_size=30,
)


@settings(max_examples=25)
@given(ROWS, st.sampled_from(RULES))
def test_records_are_refused_as_predicates_in_python_say(
    rows: list[tuple[str, Any, Any]], rules: dict[str, str]
) -> None:
    expect = {name: {"sql": ORACLE[name][0], "or": action} for name, action in rules.items()}
    records, wanted = [], []
    for number, (op, amount, note) in enumerate(rows):
        row = {"id": number, "amount": amount, "note": note}
        records.append(change(op, row if op == "d" else None, None if op == "d" else row))
        broken = [name for name in rules if ORACLE[name][1](amount, note) is False] if op != "d" else []
        first = min(broken, key=lambda name: SEVERITY.index(rules[name]), default=None)
        wanted.append(None if first is None else (rules[first], first))
    found = run(decoder_of(pipeline_of(COLUMNS, expect=expect)), records).shown
    given_back = [
        (text.partition(" ")[0], text.rpartition(": ")[2]) if text.startswith(SEVERITY) else None for text in found
    ]
    assert given_back == wanted
