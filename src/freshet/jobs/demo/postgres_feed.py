"""How the pipelines of the demo read its database themselves, and how far the lake has it."""

from __future__ import annotations

from typing import Final

from freshet.jobs.demo.database_live import DatabaseLive
from freshet.jobs.demo.source_database import SourceDatabase

PIPELINES: Final = ("postgres-database", "postgres-shards")
"""Their files have these names too."""
SLOTS: Final = ("freshet_shop", "freshet_shards")
"""Those of the files."""
_AS_TEXT: Final = (
    "numeric", "interval", "bit(1)", "bit(8)", "json", "jsonb", "time without time zone",
)  # fmt: skip
EXACT: Final = {
    "money": "to_json({0}::numeric)",
    "jsonb[]": "to_json({0}::text[])",
    **dict.fromkeys(_AS_TEXT, "to_json({0}::text)"),
}
"""Types that `to_json` does not show as they are in the lake; `{0}` is the column."""


class PostgresFeed:
    """A `Feed`: the log of the database, a slot for each pipeline."""

    resend = "resend"
    resend_text = "an UPDATE of all customers: rows that were there have what the new column's default says"

    def __init__(self, database: SourceDatabase) -> None:
        server = database.server
        self.environment = {"SHOP_DSN": server.dsn(), "SHOP_PASSWORD": server.password}

    def failure(self) -> str | None:
        """`Feed.failure`: the writer says it."""
        return None

    def begin(self, live: DatabaseLive) -> None:
        """`Feed.begin`."""
        live.until(lambda: live.first_row_s is not None)
        live.say(f"the first rows are in the lake {live.first_row_s:.2f} s after the start of the process")

    def catch_up(self, live: DatabaseLive) -> None:
        """`Feed.catch_up`: what is confirmed to the server is in the lake."""
        end = live.database.position()
        live.database.play("end")  # a transaction behind it, which both slots get
        live.until(lambda: live.database.has_sent(end, SLOTS))
        live.say(f"all changes up to {end} are in the lake")
