"""storage/OPTIONS.md is what the declaration of the options gives, and every option has a text."""

from __future__ import annotations

from pathlib import Path

from freshet.storage.options.declaration import ATTRIBUTES, GROUPS
from tests.kit import option_list

PAGE = Path(__file__).parents[3] / "src" / "freshet" / "storage" / "OPTIONS.md"


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == option_list.markdown(), "run `make reference`"


def test_every_option_is_listed_and_explained() -> None:
    listed = {option.key: text for group in GROUPS for option, text in option_list.declared(group)}
    assert list(listed) == [option.key for option in ATTRIBUTES.values()]
    assert len(listed) > 90
    assert [key for key, text in listed.items() if len(text.split()) < 4] == []
