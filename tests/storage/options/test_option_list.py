"""storage/OPTIONS.md is what the declaration of the options gives, and every option has a text."""

from __future__ import annotations

from pathlib import Path

from freshet.storage.options.core import CoreOptions
from tests.kit import option_list

PAGE = Path(__file__).parents[3] / "src" / "freshet" / "storage" / "OPTIONS.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == option_list.markdown(), "run `make reference`"


def test_every_option_is_listed_and_explained() -> None:
    listed = {key: text for _, key, text in option_list._declared()}
    declared = {field.alias for field in CoreOptions.model_fields.values() if not str(field.alias).startswith(" ")}
    assert set(listed) == declared
    assert len(declared) > 90
    assert [key for key, text in listed.items() if len(text.split()) < 4] == []
