"""Every option has a text on the page of table options; `tests/docs` holds the page to the declaration."""

from __future__ import annotations

from freshet.storage.options.declaration import ATTRIBUTES, GROUPS
from tests.kit import option_list


def test_every_option_is_listed_and_explained() -> None:
    listed = {option.key: text for group in GROUPS for option, text in option_list.declared(group)}
    assert list(listed) == [option.key for option in ATTRIBUTES.values()]
    assert len(listed) > 90
    assert [key for key, text in listed.items() if len(text.split()) < 4] == []
