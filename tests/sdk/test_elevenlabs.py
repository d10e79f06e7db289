"""ElevenLabs by PyPI elevenlabs."""

from __future__ import annotations

import uuid

import pytest
from elevenlabs.client import ElevenLabs
from elevenlabs.core.api_error import ApiError

VOICE = "JBFqnCBsd6RMkjVDRZzb"


@pytest.fixture
def client(sandbox) -> ElevenLabs:
    return ElevenLabs(api_key="sandbox-elevenlabs", base_url=sandbox.base("elevenlabs"))


def speak(client: ElevenLabs, words: str, form: str = "mp3_44100_128") -> bytes:
    pieces = client.text_to_speech.convert(
        VOICE, text=words, model_id="eleven_multilingual_v2", output_format=form
    )
    return b"".join(pieces)


def test_speech_in_the_answer(client, sandbox) -> None:
    words = f"The tide turns twice a day. {uuid.uuid4()}"
    sound = speak(client, words)
    assert sound[:2] == b"\xff\xfb" or sound[:3] == b"ID3"
    assert sandbox.starts("elevenlabs", words) == 1


def test_a_lost_answer_is_found_in_the_history(client) -> None:
    words = f"A message in a bottle. {uuid.uuid4()}"
    sound = speak(client, words)
    history = client.history.list(page_size=100)
    item = next(item for item in history.history if item.text == words)
    assert item.character_count_change_to - item.character_count_change_from == len(words)
    assert b"".join(client.history.get_audio(item.history_item_id)) == sound
    assert client.history.get(item.history_item_id).voice_id == VOICE
    client.history.delete(item.history_item_id)
    with pytest.raises(ApiError):
        client.history.get(item.history_item_id)


def test_the_account(client) -> None:
    account = client.user.subscription.get()
    assert account.character_limit > account.character_count >= 0
    assert any(model.model_id == "eleven_multilingual_v2" for model in client.models.list())


def test_a_bad_key(sandbox) -> None:
    bad = ElevenLabs(api_key="xi-real", base_url=sandbox.base("elevenlabs"))
    with pytest.raises(ApiError) as refused:
        bad.user.subscription.get()
    assert refused.value.status_code == 401
