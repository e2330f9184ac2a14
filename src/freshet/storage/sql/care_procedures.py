"""The procedures of CALL that look after tags, manifests, marks of partitions, whole tables, and a catalog."""

from __future__ import annotations

from freshet.storage.sql.arguments import Arguments, done, partitions_of, table_of, with_options
from freshet.storage.sql.literals import moment_ms
from freshet.storage.sql.refusals import refused
from freshet.storage.sql.result import SqlResult, given
from freshet.storage.sql.session import SqlSession


def expire_tags(session: SqlSession, given_: Arguments) -> SqlResult:
    """Tags whose time is over, and those that were made before `older_than`."""
    text = given_.get("older_than")
    moment = None if text is None else moment_ms(text, session.engine.zone)
    gone = table_of(session, given_["table"]).tags.expire(older_than=moment)
    return given({"expired_tags": [each.tag.name for each in gone] or ["No expired tags."]})


def trigger_tag_automatic_creation(session: SqlSession, given_: Arguments) -> SqlResult:
    """Tags that are due; then those whose time is over go, as after a commit."""
    table = table_of(session, given_["table"])
    table.tags.create_due()
    if table.options.tag_time_expire_enabled:
        table.tags.expire()
    return done()


def compact_manifest(session: SqlSession, given_: Arguments) -> SqlResult:
    """In one snapshot; a dry run changes nothing."""
    table = with_options(table_of(session, given_["table"]), given_.get("options"))
    table.compact_manifests(dry_run=bool(given_.get("dry_run")))
    return done()


def mark_partition_done(session: SqlSession, given_: Arguments) -> SqlResult:
    """The partitions are checked before the first is marked."""
    table = table_of(session, given_["table"])
    table.mark_partition_done(*filter(None, partitions_of(table, given_["partitions"])))
    return done()


def purge_files(session: SqlSession, given_: Arguments) -> SqlResult:
    """Orphans of a day and more go with the rest."""
    table_of(session, given_["table"]).purge()
    return given({"result": ["Success"]})


def repair(session: SqlSession, given_: Arguments) -> SqlResult:
    """Tables, with commas between, whose files the catalog does not know."""
    names = [each.strip() for each in given_["database_or_table"].split(",")]
    for name in names:
        if "." not in name:
            raise refused(
                f"CALL sys.repair({name!r})",
                "databases are not searched; name tables: 'shop.orders,shop.items'",
            )
    for name in names:
        session.catalog.register_table(name.replace("`", ""))
    return done()
