"""The command catalogs: the names that commands take for a warehouse, and where those catalogs are."""

from __future__ import annotations

from collections.abc import Mapping

from freshet.pipeline.commands.arguments import AsJson
from freshet.pipeline.commands.output import print_facts, print_json
from freshet.storage.catalog import NamedCatalog, known_catalogs


def catalogs(as_json: AsJson = False) -> None:
    """List the catalogs that have names, and where they are.

    A name is written where a command takes WAREHOUSE: `freshet read lake shop.orders`. They are in
    ~/.config/freshet/catalogs.yaml (FRESHET_CATALOGS_FILE names another file), as
    `lake: {warehouse: "s3://bucket/lake", s3.endpoint: "https://…"}`, or in environment variables such as
    FRESHET_CATALOG__LAKE__WAREHOUSE. Secrets are not shown.
    """
    known = known_catalogs()
    if as_json:
        print_json([{"catalog": each.name, **_facts(each), "options": _rest(each)} for each in known])
        return
    facts = [{"catalog": each.name, **_facts(each), "options": _line(_rest(each))} for each in known]
    header = {"catalog": "catalog", "place": "place", "options": "options", "source": "from"}
    print_facts(facts, as_json=False, header=header)


def _facts(catalog: NamedCatalog) -> dict[str, str]:
    return {"place": catalog.place, "source": catalog.source}


def _rest(catalog: NamedCatalog) -> dict[str, str]:
    return {key: text for key, text in catalog.shown.items() if text != catalog.place}


def _line(options: Mapping[str, str]) -> str:
    return ", ".join(f"{key}={text}" for key, text in options.items()) or "-"
