"""Where a catalog is, from what a caller writes for it:

| place | is |
|---|---|
| contains `:` | a URI |
| contains `/`, or begins with `.` or `~` | a path |
| another text | a word: the catalog of that name, else the folder of that name here |

Where a catalog and a folder have the word as their name, it is refused. A path object is a path. The catalogs that have
names are those of `io/catalogs_file`; one holds `warehouse`, or `uri`, and any other options of a catalog.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from typing import TYPE_CHECKING, Final

from freshet._lazy import LazyModule
from freshet.storage.catalogs.registry import METASTORE, URI, WAREHOUSE, is_catalog_option, known_options
from freshet.storage.exceptions import InvalidRequestError
from freshet.storage.io.catalogs_file import CatalogsFile, CatalogText, read_catalogs
from freshet.storage.io.env import absolute_path, is_local_folder
from freshet.storage.io.env_settings import catalog_reference, holds_secret, shown_settings, variable_reference

if TYPE_CHECKING:
    import difflib
else:  # for an error alone
    difflib = LazyModule("difflib")

_LOG: Final = logging.getLogger(__name__)


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


def catalog_named(place: str | PathLike[str] | None, environment: Mapping[str, str]) -> NamedCatalog | None:
    """The catalog that a place names; None for a URI and a path, and for a word that is a folder or nothing yet.

    Raises `InvalidRequestError` where it is a folder too, and for a catalog with an option that there is not.
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
