"""Options as they may be shown: passwords and keys of a log's client are not.

| key | shown |
|---|---|
| `kafka.*` with password, secret, jaas, token, key or credential in it | `***` |
| other | as it is |
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

HIDDEN: Final = "***"

_SECRET: Final = re.compile(r"kafka\..*(password|secret|jaas|token|\.key|credential|userinfo)", re.IGNORECASE)


def shown_options(options: Mapping[str, str]) -> dict[str, str]:
    """The options, secrets hidden."""
    return {key: HIDDEN if _SECRET.match(key) else value for key, value in options.items()}
