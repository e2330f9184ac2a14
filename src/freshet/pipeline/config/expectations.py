"""What is expected of the rows of a table, rule by rule: `expect` of a pipeline file.

    expect: {amount_positive: {sql: "amount >= 0", or: quarantine, share: 0.01}}

A rule is a condition over the columns of the table. A row breaks it where the condition is false, or cannot be
computed; one that gives NULL passes, as a CHECK of SQL has it. Rows that take something away (-U, -D) are not judged: a
deletion that was held back would leave its row in the table for good.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

ACTIONS: Final = ("stop", "quarantine", "drop")
"""What becomes of a record that breaks a rule, the most severe first: of several rules this decides, then the order of
the file."""
SHARE_RECORDS_MIN: Final = 100
"""`share` says nothing about smaller batches."""
NAME_MAX: Final = 60
_NAME: Final = re.compile(rf"[A-Za-z_][A-Za-z0-9_]{{0,{NAME_MAX - 1}}}")


class Expectation(BaseModel):
    """One rule."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, hide_input_in_errors=True)

    sql: str = Field(min_length=1)
    """A condition of Spark SQL over the columns of the table."""
    action: Literal["stop", "quarantine", "drop"] = Field(default="quarantine", alias="or")
    """quarantine: the record becomes a dead letter; drop: it is counted alone; stop: nothing of the batch is
    committed."""
    share: float | None = Field(default=None, ge=0, le=1)
    """Of the records of a batch: more that break the rule stop the run; judged from `SHARE_RECORDS_MIN` records on."""

    @model_validator(mode="after")
    def _has_one_end(self) -> Expectation:
        if self.action == "stop" and self.share is not None:
            raise ValueError("share goes with drop and quarantine: stop ends the run at the first record")
        return self

    def is_exceeded(self, broken: int, records: int) -> bool:
        """True where so many of the records of a batch are more than `share` allows."""
        return self.share is not None and records >= SHARE_RECORDS_MIN and broken > self.share * records


def _named(rules: dict[str, Expectation]) -> dict[str, Expectation]:
    for name in rules:
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"{name!r} is no name of a rule: up to {NAME_MAX} letters, digits and _, such as amount_positive"
            )
    return rules


Expectations = Annotated[dict[str, Expectation], AfterValidator(_named)]
"""Rules by their names."""


def by_severity(rules: Mapping[str, Expectation]) -> list[tuple[str, Expectation]]:
    """The rules in the order in which they decide over a record that breaks several."""
    return sorted(rules.items(), key=lambda item: ACTIONS.index(item[1].action))
