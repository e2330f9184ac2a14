"""The options of a catalog, from all places where they are given; the first that names a key wins.

    1  the caller's own      Catalog(warehouse, options=…), catalog: of a pipeline file, --catalog-option,
                             options of the Spark format, catalog_options=… of table_sink and Table.open
    2  the catalog's name    where the place is one: its file, or variables of it (`named`)
    3  the environment       FRESHET_CATALOG_OPTIONS, a JSON object of texts

What the caller gives is for this catalog: an option that neither it nor its store takes is refused where it is opened.
The environment is for every catalog of the process: of its options each catalog takes its own, and those that no
catalog and no store takes are refused. A secret of the environment is replaced by a reference to it, which travels to
other processes; they need the variable too.
"""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike, fspath
from types import MappingProxyType
from typing import Final

from freshet.storage.catalogs.named import catalog_named
from freshet.storage.catalogs.registry import (
    JDBC_SCHEME,
    METASTORE,
    URI,
    WAREHOUSE,
    catalog_keys,
    is_catalog_option,
    metastore_name,
    place_of_catalog,
)
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.io.env import absolute_path, process_environment
from freshet.storage.io.env_settings import (
    EnvSettings,
    holds_secret,
    is_among,
    is_member_reference,
    variable_options,
    variable_reference,
)
from freshet.storage.io.registry import option_identity

CATALOG_OPTIONS_VARIABLE: Final = "FRESHET_CATALOG_OPTIONS"


def given_catalog(
    place: str | PathLike[str] | None,
    warehouse: str | PathLike[str] | None,
    own: Mapping[str, str],
    environment: Mapping[str, str],
) -> tuple[str | PathLike[str], dict[str, str]]:
    """The warehouse of a catalog and its options, as `place_of_catalog` has them: of catalogs that have a name too, the
    environment included."""
    general = environment_options(environment)
    named = catalog_named(place, environment)
    if named is not None:
        replaced = {WAREHOUSE} if warehouse is not None else set()
        place, own = None, _over({key: text for key, text in named.options.items() if key not in replaced}, own)
    if place is None or (isinstance(place, str) and place.startswith(JDBC_SCHEME)):
        warehouse = warehouse or own.get(WAREHOUSE) or general.get(WAREHOUSE)
    found, texts = place_of_catalog(place, warehouse, own)
    return found, with_environment(fspath(found), texts, environment)


def absolute_place(place: str) -> str:
    """A place that means the same in every folder: the name of a catalog stays, a path begins at the root.

    Raises `InvalidRequestError` as `catalog_named` and `absolute_path` do.
    """
    return place if catalog_named(place, process_environment()) else absolute_path(place)


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
    """Of options for several catalogs, those that the catalog of this warehouse and its store take; which catalog it
    is, its own options say first."""
    decides = own if METASTORE in own or URI in own else {**general, **own}
    taken = catalog_keys(warehouse, metastore_name(decides))
    skipped = (METASTORE,) if decides is own else ()
    return {key: text for key, text in general.items() if is_among(key, taken) and key not in skipped}


def _over(general: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    """The options, of keys that mean the same those of `own`."""
    named = {option_identity(key) for key in own}
    return {key: text for key, text in general.items() if option_identity(key) not in named} | dict(own)


def environment_options(environment: Mapping[str, str]) -> dict[str, str]:
    """Those of the variable, secrets as references to it."""
    variable = CATALOG_OPTIONS_VARIABLE
    found = variable_options(variable, environment)
    for key in found:
        if key != WAREHOUSE and not is_catalog_option(key):
            raise InvalidRequestError(
                f"option {key} in the environment variable {variable}: no catalog and no store takes it; leave it out",
                option=key,
            )
    return {key: variable_reference(variable, key) if holds_secret(key, text) else text for key, text in found.items()}
