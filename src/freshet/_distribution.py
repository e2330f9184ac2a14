"""Which distribution `freshet/__init__.py` comes from: `freshet` on the package index is another project's.

Both have the import name freshet, so the one that is installed later overwrites the `__init__` of the other. Ours is
known by `_DISTRIBUTION`; the packages below it look for that before anything of them is loaded.
"""

from __future__ import annotations

import sys
from typing import Final

DISTRIBUTION: Final = "freshet-lake"
OTHER: Final = "freshet"

_REMEDY: Final = (
    f"only one of them can be installed: pip uninstall {DISTRIBUTION} {OTHER}, then install the one you need "
    f"({DISTRIBUTION} from a clone or from its wheel, not by name)"
)


def installed_version(distribution: str) -> str | None:
    """The version of a distribution, or None where it is not installed."""
    from importlib import metadata

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def check_front_door() -> None:
    """Raises `ImportError` where `freshet/__init__` is not ours."""
    front_door = sys.modules["freshet"]
    if getattr(front_door, "_DISTRIBUTION", None) == DISTRIBUTION:
        return
    path = getattr(front_door, "__file__", None)
    if path is None:
        happened = f"{__file__} has no __init__.py beside it: uninstalling {_other()} removed that of {DISTRIBUTION!r}"
    else:
        happened = f"{_other()} overwrote {path} of {DISTRIBUTION!r}"
    raise ImportError(f"{happened}; {_REMEDY}", name="freshet", path=path)


def overwritten() -> str | None:
    """The error for programs of the other project, where `freshet/__init__` is ours; None if it is not installed."""
    if None in (installed_version(OTHER), installed_version(DISTRIBUTION)):
        return None
    return f"{DISTRIBUTION!r} overwrote freshet/__init__.py of {_other()}; {_REMEDY}"


def _other() -> str:
    found = installed_version(OTHER)
    return f"the distribution {OTHER!r}" + (f" {found}" if found else "")
