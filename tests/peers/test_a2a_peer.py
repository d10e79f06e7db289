"""The peer, driven by the official SDK's own client over both bindings."""

from __future__ import annotations

import asyncio
import re
import socket
import subprocess
import sys
import uuid
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import httpx
import pytest
from a2a.client import Client, ClientConfig, create_client
from a2a.helpers import get_artifact_text, get_message_text, new_text_message
from a2a.types import CancelTaskRequest, GetTaskRequest, ListTasksRequest, Message, Role, SendMessageRequest, Task
from a2a.types import TaskState
from a2a.utils.errors import A2AError, TaskNotCancelableError

import a2a_peer

HERE = Path(__file__).parent


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.fixture(scope="session")
def peer() -> Iterator[str]:
    port = free_port()
    command = [sys.executable, str(HERE / "a2a_peer.py"), "--port", str(port), "--pace", "0.2"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield f"http://127.0.0.1:{port}"
        process.terminate()


@pytest.fixture(params=["JSONRPC", "HTTP+JSON"])
def talk(peer: str, request: pytest.FixtureRequest) -> Callable[[Callable[[Client], Awaitable[None]]], None]:
    """Runs a conversation with the peer over one binding."""

    def run(conversation: Callable[[Client], Awaitable[None]]) -> None:
        async def whole() -> None:
            config = ClientConfig(
                streaming=False, polling=True, supported_protocol_bindings=[request.param], use_client_preference=True
            )
            async with await create_client(peer, config) as client:
                await asyncio.wait_for(conversation(client), 20)

        asyncio.run(whole())

    return run


async def send(client: Client, text: str, task: Task | None = None, context: str | None = None) -> Task | Message:
    message = new_text_message(text, role=Role.ROLE_USER)
    if task is not None:
        message.task_id, message.context_id = task.id, task.context_id
    if context is not None:
        message.context_id = context
    async for event in client.send_message(SendMessageRequest(message=message)):
        return event.task if event.HasField("task") else event.message
    raise AssertionError("no answer")


async def until(client: Client, task: Task, *states: TaskState) -> Task:
    while task.status.state not in states:
        await asyncio.sleep(0.02)
        task = await client.get_task(GetTaskRequest(id=task.id))
    return task


def test_it_answers_at_once(talk) -> None:
    async def conversation(client: Client) -> None:
        answer = await send(client, "peer:immediate hello")
        assert isinstance(answer, Message)
        assert get_message_text(answer) == "At once: peer:immediate hello"

    talk(conversation)


def test_a_task_runs_to_its_end_and_is_listed_under_our_context(talk) -> None:
    async def conversation(client: Client) -> None:
        context = str(uuid.uuid4())
        task = await send(client, "count the boats", context=context)
        assert isinstance(task, Task) and task.context_id == context
        assert task.status.state in (TaskState.TASK_STATE_SUBMITTED, TaskState.TASK_STATE_WORKING)
        done = await until(client, task, TaskState.TASK_STATE_COMPLETED)
        assert get_artifact_text(done.artifacts[0]) == "Done: count the boats"
        listed = await client.list_tasks(ListTasksRequest(context_id=context))
        assert [found.id for found in listed.tasks] == [task.id]

    talk(conversation)


@pytest.mark.parametrize(("word", "questions"), [("ask", 1), ("ask_twice", 2)])
def test_it_asks_and_takes_answers(talk, word: str, questions: int) -> None:
    async def conversation(client: Client) -> None:
        task = await send(client, f"peer:{word} paint the boat")
        answers = ["blue", "small"][:questions]
        for question, answer in zip(a2a_peer.QUESTIONS, answers):
            task = await until(client, task, TaskState.TASK_STATE_INPUT_REQUIRED)
            assert get_message_text(task.status.message) == question
            task = await send(client, answer, task)
        done = await until(client, task, TaskState.TASK_STATE_COMPLETED)
        assert get_artifact_text(done.artifacts[0]) == "Answers: " + ", ".join(answers)

    talk(conversation)


def test_an_answer_sent_twice_answers_the_next_question_too(talk) -> None:
    async def conversation(client: Client) -> None:
        task = await send(client, "peer:ask_twice paint the boat")
        task = await until(client, task, TaskState.TASK_STATE_INPUT_REQUIRED)
        answer = new_text_message("blue", task_id=task.id, context_id=task.context_id, role=Role.ROLE_USER)
        for _ in range(2):
            async for _event in client.send_message(SendMessageRequest(message=answer)):
                pass
        done = await until(client, task, TaskState.TASK_STATE_COMPLETED)
        assert get_artifact_text(done.artifacts[0]) == "Answers: blue, blue"

    talk(conversation)


def test_files_come_by_url_and_by_bytes(talk, peer: str) -> None:
    async def conversation(client: Client) -> None:
        for word in ("url", "bytes"):
            task = await send(client, f"peer:{word}")
            done = await until(client, task, TaskState.TASK_STATE_COMPLETED)
            part = done.artifacts[0].parts[0]
            assert (part.media_type, part.filename) == ("image/png", "picture.png")
            body = httpx.get(part.url).content if word == "url" else part.raw
            assert body == a2a_peer.PICTURE and body.startswith(b"\x89PNG")

    talk(conversation)


def test_chunks_are_parts_of_one_artifact(talk) -> None:
    async def conversation(client: Client) -> None:
        done = await until(client, await send(client, "peer:chunks"), TaskState.TASK_STATE_COMPLETED)
        assert len(done.artifacts) == 1
        assert [part.text for part in done.artifacts[0].parts] == a2a_peer.CHUNKS

    talk(conversation)


def test_an_answer_may_stand_in_the_status_alone(talk) -> None:
    async def conversation(client: Client) -> None:
        done = await until(client, await send(client, "peer:status"), TaskState.TASK_STATE_COMPLETED)
        assert not done.artifacts
        assert get_message_text(done.status.message) == "The answer is 42."

    talk(conversation)


@pytest.mark.parametrize(
    ("word", "state", "reason"),
    [
        ("fail", TaskState.TASK_STATE_FAILED, "oven"),
        ("reject", TaskState.TASK_STATE_REJECTED, "does not take"),
        ("crash", TaskState.TASK_STATE_FAILED, ""),
    ],
)
def test_bad_ends(talk, word: str, state: TaskState, reason: str) -> None:
    async def conversation(client: Client) -> None:
        ended = await until(client, await send(client, f"peer:{word}"), state)
        assert re.search(reason, get_message_text(ended.status.message))

    talk(conversation)


def test_signing_in_needs_no_further_message(talk) -> None:
    async def conversation(client: Client) -> None:
        task = await send(client, "peer:sign_in")
        waiting = await until(client, task, TaskState.TASK_STATE_AUTH_REQUIRED, TaskState.TASK_STATE_COMPLETED)
        assert waiting.status.state == TaskState.TASK_STATE_AUTH_REQUIRED
        assert "/sign-in" in get_message_text(waiting.status.message)
        await until(client, waiting, TaskState.TASK_STATE_COMPLETED)

    talk(conversation)


def test_a_long_task_is_cancelled_once(talk) -> None:
    async def conversation(client: Client) -> None:
        task = await until(client, await send(client, "peer:long"), TaskState.TASK_STATE_WORKING)
        await client.cancel_task(CancelTaskRequest(id=task.id))
        await until(client, task, TaskState.TASK_STATE_CANCELED)
        with pytest.raises(TaskNotCancelableError):
            await client.cancel_task(CancelTaskRequest(id=task.id))

    talk(conversation)


def test_a_token_is_asked_for() -> None:
    port = free_port()
    command = [sys.executable, str(HERE / "a2a_peer.py"), "--port", str(port), "--token", "sandbox-peer"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        base = f"http://127.0.0.1:{port}"
        card = httpx.get(f"{base}/.well-known/agent-card.json").json()
        assert [face["protocolBinding"] for face in card["supportedInterfaces"]] == ["JSONRPC", "HTTP+JSON"]
        headers = {"A2A-Version": "1.0"}
        refused = httpx.get(f"{base}/rest/tasks", headers=headers)
        assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
        allowed = httpx.get(f"{base}/rest/tasks", headers=headers | {"authorization": "Bearer sandbox-peer"})
        assert allowed.json()["tasks"] == []
        process.terminate()


def test_an_unknown_task_is_an_error_of_the_protocol(talk) -> None:
    async def conversation(client: Client) -> None:
        with pytest.raises(A2AError, match="not found"):
            await client.get_task(GetTaskRequest(id="none"))

    talk(conversation)
