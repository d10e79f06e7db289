"""The official SDKs of the vendors against a running sandbox.

Start one (`longhaul sandbox`, or `cargo run -p longhaul-sandbox --example sandbox`) and say where it is:

    LONGHAUL_SANDBOX=http://127.0.0.1:7071 python -m pytest tests/sdk
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

import httpx
import pytest

T = TypeVar("T")


class Sandbox:
    """Where the stand-ins are, and what they noted."""

    def __init__(self, url: str) -> None:
        self.url = url.rstrip("/")

    def base(self, vendor: str) -> str:
        """Base URL of a vendor."""
        return f"{self.url}/{vendor}"

    def starts(self, vendor: str, marker: str) -> int:
        """How many paid starts a vendor took whose marker holds these words."""
        report = httpx.get(f"{self.url}/_control/starts", params={"vendor": vendor}).raise_for_status().json()
        return sum(count for words, count in report["by_marker"].items() if marker in words)


@pytest.fixture(scope="session")
def sandbox() -> Sandbox:
    """The sandbox that LONGHAUL_SANDBOX names; without one nothing can be proven, so nothing passes."""
    url = os.environ.get("LONGHAUL_SANDBOX")
    if not url:
        pytest.exit("LONGHAUL_SANDBOX is not set: start a sandbox and name its address", returncode=2)
    box = Sandbox(url)
    httpx.get(box.url).raise_for_status()
    return box


@pytest.fixture(scope="session")
def until() -> Callable[[Callable[[], T], Callable[[T], bool]], T]:
    """Polls until something holds, for half a minute at most."""

    def poll(look: Callable[[], T], holds: Callable[[T], bool]) -> T:
        end = time.monotonic() + 30
        while not holds(seen := look()):
            assert time.monotonic() < end, f"still {seen!r}"
            time.sleep(0.1)
        return seen

    return poll


def checked(shape: T) -> T:
    """Holds a shape that an SDK read to the SDK's own types: on reading it lets wrong ones pass."""
    kind = type(shape)
    kind.model_validate(shape.model_dump(mode="json", by_alias=True, exclude_unset=True))
    return shape
