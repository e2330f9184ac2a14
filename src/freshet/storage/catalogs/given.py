"""The options of a catalog, from all places where they are given; the first that names a key wins.

    1  the caller's own      Catalog(warehouse, options=…), catalog: of a pipeline file, --catalog-option,
                             options of the Spark format, catalog_options=… of table_sink and Table.open
    2  the catalog's name    where the place is one: its file, or variables of it
    3  the environment       FRESHET_CATALOG_OPTIONS, a JSON object of texts

What the caller gives is for this catalog: an option that neither it nor its store takes is refused where it is opened.
The environment is for every catalog of the process: of its options each catalog takes its own, and those that no
catalog and no store takes are refused. A secret of the environment is replaced by a reference to it, which travels to
other processes; they need the variable too.

Of a table that is opened by its location they say which catalog claims its ids (`table_at`).

| the options name | ids are claimed |
|---|---|
| no catalog, or a plain folder | by exclusive creates |
| a catalog with options of its own (a lock, a coordination), which has a table at this location | by that catalog |
| such a catalog, which has none there | not at all: the table is read, and a write is refused |

A catalog finds a table by its name; at `<warehouse>/<database>.db/<table>` the location has it.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike, fspath
from types import MappingProxyType
from typing import Final

from freshet._frozen import Frozen
from freshet.storage.catalogs.claims import RefusedClaims, TableClaims
from freshet.storage.catalogs.filesystem import DATABASE_SUFFIX
from freshet.storage.catalogs.metastore import TableName
from freshet.storage.catalogs.registry import (
    JDBC_SCHEME,
    METASTORE,
    URI,
    WAREHOUSE,
    catalog_keys,
    catalog_settings,
    check_options,
    is_catalog_option,
    is_plain_folder,
    known_options,
    metastore_name,
    open_metastore,
    place_of_catalog,
)
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.io.catalogs_file import CatalogsFile, CatalogText, read_catalogs
from freshet.storage.io.env import Env, absolute_path, is_local_folder, open_env, process_environment
from freshet.storage.io.env_settings import (
    EnvSettings,
    catalog_reference,
    holds_secret,
    is_among,
    is_member_reference,
    shown_settings,
    variable_options,
    variable_reference,
)
from freshet.storage.io.registry import option_identity
from freshet.storage.options.secrets import shown_text
from freshet.storage.paths import FILE_SCHEME, canonical_location, scheme_of

CATALOG_OPTIONS_VARIABLE: Final = "FRESHET_CATALOG_OPTIONS"

_LOG: Final = logging.getLogger(__name__)
_IN_NO_PATH: Final = re.compile("[\\0\\ud800-\\udc7f\\udd00-\\udfff]")
"""Of halves of characters those between are bytes of a file's name that are no text."""


def warehouse_folder(warehouse: str | PathLike[str]) -> str:
    """A place as a location; `InvalidRequestError` for what is none."""
    folder = canonical_location(absolute_path(fspath(warehouse))) if isinstance(warehouse, (str, PathLike)) else ""
    is_path = not _IN_NO_PATH.search(folder) and (scheme_of(folder) != FILE_SCHEME or folder.startswith("/"))
    if not is_path:
        raise InvalidRequestError(f"warehouse {warehouse!r}: give a path, for example file:///data/warehouse")
    return folder


def given_catalog(
    place: str | PathLike[str] | None,
    warehouse: str | PathLike[str] | None,
    own: Mapping[str, str],
    environment: Mapping[str, str],
) -> tuple[str | PathLike[str], dict[str, str]]:
    """The warehouse of a catalog and its options, as `place_of_catalog` has them: of catalogs that have a name too, the
    environment included."""
    general = environment_options(environment)
    named = _catalog_named(place, environment)
    if named is not None:
        replaced = {WAREHOUSE} if warehouse is not None else set()
        place, own = None, _over({key: text for key, text in named.options.items() if key not in replaced}, own)
    if place is None or (isinstance(place, str) and place.startswith(JDBC_SCHEME)):
        warehouse = warehouse or own.get(WAREHOUSE) or general.get(WAREHOUSE)
    found, texts = place_of_catalog(place, warehouse, own)
    return found, with_environment(fspath(found), texts, environment)


def absolute_place(place: str) -> str:
    """A place that means the same in every folder: the name of a catalog stays, a path begins at the root.

    Raises `InvalidRequestError` as `_catalog_named` and `absolute_path` do.
    """
    return place if _catalog_named(place, process_environment()) else absolute_path(place)


def with_environment(warehouse: str, own: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """The options of the catalog of a warehouse: the caller's own, over those of the environment that it takes."""
    return _over(taken_options(warehouse, environment_options(environment), own), own)


def options_for_others(location: str, own: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """The options by which a library that is not ours reaches the store of a location.

    It may know what `env:NAME` stands for, but no other reference: in its place is the value, which is not to be shown.
    """
    found = with_environment(location, own, environment)
    members = [key for key, text in found.items() if is_member_reference(text)]
    return found | EnvSettings.of(found).resolved(members, environment)


def taken_options(
    warehouse: str, general: Mapping[str, str], own: Mapping[str, str] = MappingProxyType({})
) -> dict[str, str]:
    """The options that the catalog of this warehouse and its store take, of those for several catalogs; which catalog
    it is, its own options say first."""
    decides = own if METASTORE in own or URI in own else {**general, **own}
    taken = catalog_keys(warehouse, metastore_name(decides))
    skipped = (METASTORE,) if decides is own else ()
    return {key: text for key, text in general.items() if is_among(key, taken) and key not in skipped}


def _over(general: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """The options, of keys that mean the same those of `own`."""
    named = {option_identity(key) for key in own}
    return {key: text for key, text in general.items() if option_identity(key) not in named} | dict(own)


def environment_options(environment: Mapping[str, str]) -> dict[str, str]:
    """The options of the variable, secrets as references to it."""
    variable = CATALOG_OPTIONS_VARIABLE
    found = variable_options(variable, environment)
    for key in found:
        if key != WAREHOUSE and not is_catalog_option(key):
            raise InvalidRequestError(
                f"option {key} in the environment variable {variable}: no catalog and no store takes it; leave it out",
                option=key,
            )
    return {key: variable_reference(variable, key) if holds_secret(key, text) else text for key, text in found.items()}


@dataclass(frozen=True, slots=True)
class NamedCatalog:
    """A catalog that has a name. Secrets among its options are references to where they are written."""

    name: str
    options: Mapping[str, str] = field(repr=False)
    shown: Mapping[str, str]
    """The options as they are written, secrets hidden."""
    source: str
    """Where it is written: the file, or the environment."""

    @property
    def place(self) -> str:
        """What a list of catalogs says of it, without secrets."""
        return self.shown.get(WAREHOUSE) or self.shown.get(URI, "")


def is_word(place: object) -> bool:
    """Whether a place is neither a URI nor a path."""
    return (
        isinstance(place, str)
        and place.strip() != ""
        and not any(each in place for each in ":/")
        and not place.startswith((".", "~"))
    )


def _catalog_named(place: str | PathLike[str] | None, environment: Mapping[str, str]) -> NamedCatalog | None:
    """The catalog that a place names; None for a URI and a path, and for a word that is a folder or nothing yet.

    Raises `InvalidRequestError` where it is a folder too, and for a catalog with an option that there is not.

    | place | is |
    |---|---|
    | contains `:` | a URI |
    | contains `/`, or begins with `.` or `~` | a path |
    | another text | a word: the catalog of that name, else the folder of that name here |

    Where a catalog and a folder have the word as their name, it is refused. A path object is a path. The catalogs that
    have names are those of `io/catalogs_file`; one holds `warehouse`, or `uri`, and any other options of a catalog.
    """
    if not isinstance(place, str) or not is_word(place):
        return None
    file = read_catalogs(environment)
    text = file.find(place)
    if text is None:
        return None
    catalog = _named(text, file)
    if is_local_folder(place):
        raise InvalidRequestError(
            f"{place!r} is a catalog ({catalog.place}, in {catalog.source}) and a folder ({absolute_path(place)}): "
            f"write ./{place} for the folder; for the catalog call from elsewhere, or rename one of them"
        )
    if file.is_open_to_others and any(
        holds_secret(key, each) for key, each in text.options.items() if key not in text.variables
    ):
        _LOG.warning(
            "%s holds secrets and can be read by other users of this machine: chmod 600 %s", file.path, file.path
        )
    return catalog


def named_catalogs(environment: Mapping[str, str]) -> list[NamedCatalog]:
    """All of them, sorted by name; also those with options that there are not."""
    file = read_catalogs(environment)
    return [_seen(file.catalogs[name], file) for name in sorted(file.catalogs)]


def _named(text: CatalogText, file: CatalogsFile) -> NamedCatalog:
    catalog = _seen(text, file)
    for key in text.options:
        if key not in (WAREHOUSE, METASTORE, URI) and not is_catalog_option(key):
            close = difflib.get_close_matches(key, known_options(), n=1)
            nearest = f" (did you mean {close[0]!r}?)" if close else ""
            where = f"the environment variable {text.variables[key]}" if key in text.variables else catalog.source
            raise InvalidRequestError(
                f"catalog {text.name} in {where}: there is no option {key} of a catalog or a store{nearest}", option=key
            )
    if not catalog.place:
        raise InvalidRequestError(
            f"catalog {text.name} in {catalog.source} says neither its {WAREHOUSE} nor the {URI} of its database"
        )
    warehouse = text.options.get(WAREHOUSE, "/")
    if is_word(warehouse) or warehouse.startswith("."):
        raise InvalidRequestError(
            f"catalog {text.name} in {catalog.source}: its {WAREHOUSE} is a URI, or a path that begins with / or ~, "
            f"not {warehouse!r}",
            option=WAREHOUSE,
        )
    return catalog


def _seen(text: CatalogText, file: CatalogsFile) -> NamedCatalog:
    options = {key: _reference(key, text) if holds_secret(key, each) else each for key, each in text.options.items()}
    has_file = file.path is not None and len(text.variables) < len(text.options)
    return NamedCatalog(
        text.name, options, shown_settings(text.options), str(file.path) if has_file else "the environment"
    )


def _reference(key: str, text: CatalogText) -> str:
    return variable_reference(text.variables[key]) if key in text.variables else catalog_reference(text.name, key)


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
    warehouse, name = _place_in_warehouse(place)
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


def _place_in_warehouse(location: str) -> tuple[str, TableName | None]:
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
