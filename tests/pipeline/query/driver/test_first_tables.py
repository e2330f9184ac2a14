"""Which table each source reads: the first one, and every other stops the batch."""

from __future__ import annotations

import pytest
import yaml

from freshet.pipeline.config.only_tables import OnlyTables
from freshet.pipeline.decode.outcomes import SeenTable, Tally
from freshet.pipeline.decode.source_table import SourceTable
from freshet.pipeline.exceptions import StoppedByRecordError
from freshet.pipeline.query.driver.batch_check import carried_text, first_tables, tables_after

ORDERS, USERS = SourceTable("shop", "public", "orders"), SourceTable("shop", "public", "users")
SHIPS = SourceTable("shop", "", "ships")  # MySQL and MariaDB have no schema


def test_the_first_table_of_each_source_stays() -> None:
    one = tables_after({}, [SeenTable(0, ORDERS, "t partition 0 offset 5")])
    assert first_tables(carried_text(one)) == one == {0: ORDERS}
    both = tables_after(
        one, [SeenTable(1, SHIPS, "u partition 0 offset 1"), SeenTable(0, ORDERS, "t partition 1 offset 0")]
    )
    assert first_tables(carried_text(both)) == {0: ORDERS, 1: SHIPS}
    assert tables_after(both, []) == both
    assert carried_text({}) is None and first_tables(None) == {}


@pytest.mark.parametrize("known", [{}, {0: ORDERS}])
def test_the_second_one_is_refused_with_both_names_and_what_to_do(known: dict[int, SourceTable]) -> None:
    seen = [SeenTable(0, USERS, "t partition 0 offset 9"), SeenTable(0, ORDERS, "t partition 0 offset 5")]
    with pytest.raises(StoppedByRecordError) as caught:
        tables_after(known, seen)
    text = str(caught.value)
    assert "sources[0]" in text and "shop.public.orders" in text
    assert "shop.public.users (at t partition 0 offset 9)" in text
    assert ("(until now)" in text) == bool(known)


@pytest.mark.parametrize("table", [ORDERS, SHIPS, SourceTable("1", "a.b", "or(ders"), SourceTable("ü", "it's", "true")])
def test_what_a_refusal_advises_takes_that_table(table: SourceTable) -> None:
    only = OnlyTables.model_validate(yaml.safe_load(table.as_only))
    assert only.takes(*table) and not only.takes(*USERS)


def test_tallies_tell_tables() -> None:
    tally = Tally(3, tables=(SeenTable(1, SHIPS, "somewhere"),))
    assert Tally.decode(tally.encode()) == tally
