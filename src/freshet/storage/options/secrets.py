"""Options as they may be shown: passwords and keys are not.

| key | shown |
|---|---|
| of a table: `kafka.*` with password, secret, jaas, token, key or credential in it | `***` |
| of a catalog: with password, secret, token, credential, access key or the like in it, but `env:NAME` | `***` |
| of a catalog: a URI with a user's password | without that |
| other | as it is |
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

HIDDEN: Final = "***"

_SECRET: Final = re.compile(r"kafka\..*(password|secret|jaas|token|\.key|credential|userinfo)", re.IGNORECASE)

_SECRET_SETTING: Final = re.compile(
    r"password|passwd|secret|jaas|(token|credentials?)(?![.-](provider|enabled))|userinfo|authorization"
    r"|(access|account|private|api|sas|encryption)[._-]?key",
    re.IGNORECASE,
)
_IN_URI: Final = re.compile(
    r"(?P<before>//[^/?#@\s:]*:)[^/?#@\s]+(?=@)|(?P<name>(password|secret|token|sslkey)=)[^&;\s]+", re.IGNORECASE
)


def shown_options(options: Mapping[str, str]) -> dict[str, str]:
    """The options of a table, secrets hidden."""
    return {key: HIDDEN if _SECRET.match(key) else value for key, value in options.items()}


def is_secret(key: str, text: str) -> bool:
    """Whether an option of a catalog is a secret, or a URI with one in it."""
    return bool(_SECRET_SETTING.search(key)) or shown_uri(text) != text


def shown_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """The options of a catalog, secrets hidden; names of environment variables are none."""
    return {
        key: HIDDEN if _SECRET_SETTING.search(key) and not text.startswith("env:") else shown_uri(text)
        for key, text in settings.items()
    }


def shown_uri(text: str) -> str:
    """A location without the password in it."""
    return _IN_URI.sub(lambda found: f"{found['before'] or found['name']}{HIDDEN}", text)
