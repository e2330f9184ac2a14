"""The names under which a projection has what it needs of a row: of the one itself, or of the other of its record."""

from __future__ import annotations

from typing import Final

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the customary name

from freshet._frozen import Frozen
from freshet.pipeline.decode.change import DELETE, UPDATE_BEFORE
from freshet.pipeline.decode.outcome_batches import OTHER_PREFIX
from freshet.pipeline.decode.outcomes import DATA_PREFIX, KIND, TAG, TAG_DATA, UNAVAILABLE
from freshet.pipeline.decode.raw_records import PREFIX


class Row(Frozen):
    """One of the two; `prefix` is that of the columns which say what the other row has."""

    prefix: str = ""

    @property
    def kind(self) -> Column:
        return kept(self.prefix + KIND)

    @property
    def is_delete(self) -> Column:
        return self.kind == F.lit(DELETE)

    @property
    def is_retract(self) -> Column:
        return self.is_delete | (self.kind == F.lit(UPDATE_BEFORE))

    @property
    def exists(self) -> Column:
        """True where there is such a row; only rows of the table have another one."""
        return self.kind.isNotNull() if self.prefix else kept(TAG) == F.lit(TAG_DATA)

    @property
    def error(self) -> str:
        return f"{PREFIX}{self.prefix}error"

    def computed(self, index: int) -> str:
        return f"{PREFIX}{self.prefix}e{index}"

    def lost(self, index: int) -> str:
        return f"{PREFIX}{self.prefix}l{index}"

    def tried(self, index: int) -> str:
        return f"{PREFIX}{self.prefix}t{index}"

    def value(self, index: int) -> str:
        return f"{PREFIX}{self.prefix}w{index}"

    def judged(self, number: int) -> str:
        """The value of a rule, and whether a cast of it was lost; NULL where it failed."""
        return f"{PREFIX}{self.prefix}j{number}"

    def data(self, index: int) -> Column:
        return kept(f"{self.prefix}{DATA_PREFIX}{index}")

    def stays(self, index: int) -> Column:
        """True where the stored value of the column is kept (unchanged TOAST)."""
        unavailable = kept(self.prefix + UNAVAILABLE)
        return F.coalesce(F.array_contains(F.split(unavailable, ","), F.lit(str(index))), F.lit(False))


SELF: Final = Row()
OTHER: Final = Row(OTHER_PREFIX)


def kept(name: str) -> Column:
    """A column of the decoder: expressions do not see it under this name."""
    return F.col(PREFIX + name)
