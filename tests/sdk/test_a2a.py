"""A2A by PyPI a2a-sdk, over both bindings of the card."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable

import httpx
import pytest
from a2a.client import Client, ClientConfig, create_client
from a2a.helpers import get_artifact_text, get_message_text, new_text_message
from a2a.types import CancelTaskRequest, GetTaskRequest, ListTasksRequest, Message, Role, SendMessageRequest, Task
from a2a.types import TaskState
from a2a.utils.errors import InvalidParamsError, TaskNotCancelableError, TaskNotFoundError, UnsupportedOperationError

Conversation = Callable[[Client], Awaitable[None]]


@pytest.fixture(params=["JSONRPC", "HTTP+JSON"])
def talk(sandbox, request: pytest.FixtureRequest) -> Callable[..., None]:
    """Runs a conversation over one binding."""

    def run(conversation: Conversation, key: str = "sandbox-a2a", polling: bool = True) -> None:
        async def whole() -> None:
            http = httpx.AsyncClient(headers={"authorization": f"Bearer {key}", "A2A-Version": "1.0"}, timeout=30)
            config = ClientConfig(
                streaming=False,
                polling=polling,
                httpx_client=http,
                supported_protocol_bindings=[request.param],
                use_client_preference=True,
            )
            async with http, await create_client(sandbox.base("a2a"), config) as client:
                await conversation(client)

        asyncio.run(whole())

    return run


async def send(client: Client, words: str, task: Task | None = None, context: str | None = None) -> Task | Message:
    message = new_text_message(words, role=Role.ROLE_USER)
    if task is not None:
        message.task_id, message.context_id = task.id, task.context_id
    if context is not None:
        message.context_id = context
    async for event in client.send_message(SendMessageRequest(message=message)):
        return event.task if event.HasField("task") else event.message
    raise AssertionError("no answer")


async def until(client: Client, task: Task, *states: TaskState) -> Task:
    end = time.monotonic() + 30
    while task.status.state not in states:
        assert time.monotonic() < end, f"still {task.status}"
        await asyncio.sleep(0.1)
        task = await client.get_task(GetTaskRequest(id=task.id))
    return task


def test_start_poll_and_outputs(talk, sandbox) -> None:
    async def conversation(client: Client) -> None:
        words, context = f"When is high water? {uuid.uuid4()}", str(uuid.uuid4())
        task = await send(client, words, context=context)
        assert task.context_id == context and task.status.state == TaskState.TASK_STATE_SUBMITTED
        assert sandbox.starts("a2a", words) == 1
        listed = await client.list_tasks(ListTasksRequest(context_id=context, history_length=10))
        assert [found.history[0].message_id for found in listed.tasks] == [task.history[0].message_id]
        done = await until(client, task, TaskState.TASK_STATE_COMPLETED)
        report, chart, photo = done.artifacts
        assert "High water comes at 02:30 and at 14:05." in get_artifact_text(report, "")
        assert chart.parts[0].raw.startswith(b"\x89PNG") and chart.parts[0].media_type == "image/png"
        assert httpx.get(photo.parts[0].url).content == chart.parts[0].raw

    talk(conversation)


def test_a_question_is_answered(talk) -> None:
    async def conversation(client: Client) -> None:
        task = await until(client, await send(client, "sandbox:asks"), TaskState.TASK_STATE_INPUT_REQUIRED)
        assert get_message_text(task.status.message).endswith("?")
        done = await until(client, await send(client, "Petrel", task), TaskState.TASK_STATE_COMPLETED)
        assert "Petrel" in get_message_text(done.status.message)
        with pytest.raises(UnsupportedOperationError):
            await send(client, "Late", done)

    talk(conversation)


@pytest.mark.parametrize(
    ("scenario", "state"),
    [
        ("fails", TaskState.TASK_STATE_FAILED),
        ("rejected", TaskState.TASK_STATE_REJECTED),
        ("auth", TaskState.TASK_STATE_AUTH_REQUIRED),
        ("integers", TaskState.TASK_STATE_COMPLETED),
    ],
)
def test_other_states(talk, scenario: str, state: TaskState) -> None:
    async def conversation(client: Client) -> None:
        await until(client, await send(client, f"sandbox:{scenario}"), state)

    talk(conversation)


def test_a_bare_message(talk) -> None:
    async def conversation(client: Client) -> None:
        answer = await send(client, "sandbox:immediate")
        assert isinstance(answer, Message) and answer.role == Role.ROLE_AGENT

    talk(conversation)


def test_a_call_that_waits(talk) -> None:
    async def conversation(client: Client) -> None:
        assert (await send(client, "wait for it")).status.state == TaskState.TASK_STATE_COMPLETED

    talk(conversation, polling=False)


def test_cancel(talk) -> None:
    async def conversation(client: Client) -> None:
        task = await send(client, "sandbox:never_ends")
        cancelled = await client.cancel_task(CancelTaskRequest(id=task.id))
        assert cancelled.status.state == TaskState.TASK_STATE_CANCELED
        with pytest.raises(TaskNotCancelableError):
            await client.cancel_task(CancelTaskRequest(id=task.id))

    talk(conversation)


def test_errors(talk) -> None:
    async def conversation(client: Client) -> None:
        with pytest.raises(TaskNotFoundError):
            await client.get_task(GetTaskRequest(id="none"))
        with pytest.raises(InvalidParamsError):
            await client.list_tasks(ListTasksRequest(page_size=101))

    talk(conversation)


def test_a_bad_key(talk) -> None:
    async def conversation(client: Client) -> None:
        with pytest.raises(Exception, match="401"):
            await client.get_task(GetTaskRequest(id="none"))

    talk(conversation, key="real")
