"""Runway by PyPI runwayml."""

from __future__ import annotations

import uuid

import httpx
import pytest
import runwayml
from conftest import checked


@pytest.fixture
def client(sandbox) -> runwayml.RunwayML:
    return runwayml.RunwayML(api_key="sandbox-runway", base_url=sandbox.base("runway"), max_retries=0)


def start(client: runwayml.RunwayML, words: str) -> str:
    return client.text_to_video.create(model="gen4.5", prompt_text=words, ratio="1280:720", duration=5).id


def ended(client: runwayml.RunwayML, until, task: str):
    look = lambda: checked(client.tasks.retrieve(task))  # noqa: E731
    return until(look, lambda task: task.status in ("SUCCEEDED", "FAILED", "CANCELLED"))


def test_start_poll_and_output(client, until, sandbox) -> None:
    marker = f"a paper boat {uuid.uuid4()}"
    task = start(client, marker)
    assert client.tasks.retrieve(task).status in ("PENDING", "RUNNING")
    done = ended(client, until, task)
    assert done.status == "SUCCEEDED" and len(done.output) == 1
    film = httpx.get(done.output[0])
    assert (film.headers["content-type"], film.content[4:8]) == ("video/mp4", b"ftyp")
    assert sandbox.starts("runway", marker) == 1


def test_a_picture_to_start_from(client, until) -> None:
    task = client.image_to_video.create(
        model="gen4.5", prompt_text="waves", prompt_image="https://example.com/a.png", ratio="1280:720", duration=5
    )
    assert ended(client, until, task.id).status == "SUCCEEDED"


def test_moderation(client, until) -> None:
    failed = ended(client, until, start(client, "sandbox:moderated"))
    assert failed.status == "FAILED" and failed.failure_code.startswith("SAFETY")


def test_cancel(client) -> None:
    task = start(client, "sandbox:never_ends")
    client.tasks.delete(task)
    with pytest.raises(runwayml.NotFoundError):
        client.tasks.retrieve(task)


def test_the_account(client) -> None:
    account = checked(client.organization.retrieve())
    assert account.credit_balance > 0 and account.tier.models


def test_a_bad_key(sandbox) -> None:
    bad = runwayml.RunwayML(api_key="key_real", base_url=sandbox.base("runway"), max_retries=0)
    with pytest.raises(runwayml.AuthenticationError):
        bad.organization.retrieve()
