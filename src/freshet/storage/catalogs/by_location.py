"""A table that is opened by its location: which catalog claims its ids, by the options that are given with it.

| the options name | ids are claimed |
|---|---|
| no catalog, or a plain folder | by exclusive creates |
| a catalog with options of its own (a lock, a coordination), which has a table at this location | by that catalog |
| such a catalog, which has none there | not at all: the table is read, and a write is refused |

A catalog finds a table by its name; at `<warehouse>/<database>.db/<table>` the location has it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from freshet._frozen import Frozen
from freshet.storage.catalogs.claims import RefusedClaims, TableClaims
from freshet.storage.catalogs.filesystem import DATABASE_SUFFIX
from freshet.storage.catalogs.given import environment_options, with_environment
from freshet.storage.catalogs.metastore import TableName
from freshet.storage.catalogs.registry import (
    METASTORE,
    WAREHOUSE,
    catalog_settings,
    check_options,
    is_plain_folder,
    open_metastore,
)
from freshet.storage.io.env import Env, open_env, process_environment
from freshet.storage.io.env_settings import EnvSettings
from freshet.storage.options.secrets import shown_text
from freshet.storage.paths import canonical_location


class TableAt(Frozen):
    """How the table at a location is reached. `name` is what its catalog calls it, None where no catalog knows it;
    `claims` are None for the exclusive creates of a plain folder."""

    env: Env
    name: str | None = None
    claims: TableClaims | None = None


def table_at(location: str, own: Mapping[str, str]) -> TableAt:
    """The table at a location, by catalog options of the caller and of the environment; it need not be there."""
    place = canonical_location(location)
    given = {key: text for key, text in own.items() if key != WAREHOUSE}
    environment = process_environment()
    options = with_environment(place, given, environment)
    warehouse, name = _named(place)
    said = own.get(WAREHOUSE) or environment_options(environment).get(WAREHOUSE)
    if said is not None:
        warehouse = canonical_location(said)
    if is_plain_folder(options):
        env = open_env(location, EnvSettings.of({key: text for key, text in options.items() if key != METASTORE}))
        check_options(env, place, options)
        return TableAt(env)
    env = open_env(location, catalog_settings(warehouse, options))
    found = open_metastore(env, warehouse, options).find_table(name) if name else None
    if found is None or found.location != place:
        return TableAt(env, claims=RefusedClaims(_WHY_REFUSED.format(location=shown_text(place))))
    return TableAt(env, str(name), found.claims)


def _named(location: str) -> tuple[str, TableName | None]:
    """The warehouse and the name that a location has in it; without a name where it is not laid out so."""
    above, _, table = location.rpartition("/")
    warehouse, _, folder = above.rpartition("/")
    if not (warehouse and table and folder.endswith(DATABASE_SUFFIX)):
        return above, None
    return warehouse, TableName(folder.removesuffix(DATABASE_SUFFIX), table)


_WHY_REFUSED: Final = (
    "{location} was opened by its location, and the catalog of the options given has no table there: a write would go "
    "around its lock. Open the table by its name, with Catalog(warehouse, options=…).table('database.table'), or leave "
    "the options of the catalog out where the table is in none"
)
