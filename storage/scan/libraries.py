"""Libraries that can take rows over but are not needed otherwise; they are loaded when somebody asks for them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from freshet.storage.exceptions import InvalidRequestError


def optional_library(name: str, asked_by: str) -> Any:
    """The module; `InvalidRequestError` says what to install when it is not there."""
    try:
        return import_module(name)
    except ImportError as error:
        raise InvalidRequestError(
            f"{asked_by} needs {name}, which cannot be imported ({error}); install it with: pip install {name}"
        ) from error
