"""docker/: images by their digests, and no password that everybody knows."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

COMPOSE = Path(__file__).parents[2] / "docker" / "compose.yaml"


def test_images_are_named_by_digest() -> None:
    services = yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))["services"]
    images = {service["image"] for service in services.values() if "image" in service}
    assert len(images) == 3
    for image in images:
        assert re.fullmatch(r"[\w./-]+:[\w.-]+@sha256:[0-9a-f]{64}", image), image


def test_there_are_no_default_passwords() -> None:
    for name, text in re.findall(r"^ +(\w*(?:PASSWORD|SECRET)\w*): (.*)$", COMPOSE.read_text("utf-8"), re.MULTILINE):
        assert re.fullmatch(r"\$\{\w+:\?.+\}", text), f"{name}: {text}"
