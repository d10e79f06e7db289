"""A real A2A agent on the official Python SDK, for tests that need a server we did not write.

It speaks protocol 1.0 over JSON-RPC (`/rpc`) and HTTP+JSON (`/rest`), both on one card. A message chooses what
becomes of it with `peer:<word>`:

    immediate   a bare Message and no task
    long        works until it is cancelled
    ask         one question, then an echo of the answer
    ask_twice   two questions, then an echo of both answers
    url         a file by URL (a PNG under `/files`)
    bytes       the same file inline
    chunks      a text artifact in five appended pieces
    data        a data part
    status      the answer only in the final status message, no artifact
    sign_in     auth required; goes on by itself after `--pace` seconds
    fail        failed, with a reason
    reject      rejected, with a reason
    crash       the agent raises

Without a word it works for `--pace` seconds and hands over a short text.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import struct
import zlib

import uvicorn
from a2a.helpers import new_data_part, new_raw_part, new_task_from_user_message, new_text_message, new_text_part
from a2a.helpers import new_url_part
from a2a.server.agent_execution import AgentExecutor, RequestContext
from a2a.server.events import EventQueue
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes, create_rest_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Message, Part, Role
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

QUESTIONS = ["Which colour should it have?", "And which size?"]
CHUNKS = ["The ", "tide ", "turns ", "twice ", "a day.\n"]


def picture(width: int = 32, height: int = 24) -> bytes:
    """A PNG with a gradient."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    rows = b"".join(b"\0" + bytes(v for x in range(width) for v in (x * 8, y * 10, 128)) for y in range(height))
    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


PICTURE = picture()


def directive(text: str) -> str:
    """The word after `peer:`, or nothing."""
    found = re.search(r"peer:([a-z_]+)", text)
    return found.group(1) if found else ""


def words_of(message: Message) -> str:
    """The text parts of a message, joined."""
    return "\n".join(part.text for part in message.parts if part.HasField("text"))


class Peer(AgentExecutor):
    """Does what the first message of a task asks for."""

    def __init__(self, base: str, pace: float) -> None:
        self.base = base
        self.pace = pace
        self.stops: dict[str, asyncio.Event] = {}
        self.said: dict[str, list[str]] = {}

    async def execute(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Handles one message: the first of a task or an answer to its question."""
        message = context.message
        assert message is not None
        if context.current_task is None and directive(words_of(message)) == "immediate":
            text = f"At once: {words_of(message)}"
            answer = new_text_message(text, context_id=context.context_id, role=Role.ROLE_AGENT)
            await event_queue.enqueue_event(answer)
            return
        task = context.current_task
        if task is None:
            task = new_task_from_user_message(message)
            await event_queue.enqueue_event(task)
        # Every message counts, also one that was sent before: the SDK's history would hold it only once.
        said = self.said.setdefault(task.id, [])
        said.append(words_of(message))
        updater = TaskUpdater(event_queue, task.id, task.context_id)
        await self.work(updater, directive(said[0]), list(said))

    async def work(self, updater: TaskUpdater, word: str, said: list[str]) -> None:
        """Goes through the states that `word` stands for."""

        def agent_says(text: str) -> Message:
            return updater.new_agent_message([new_text_part(text)])

        if word == "reject":
            await updater.reject(agent_says("This agent does not take such work."))
            return
        questions = {"ask": QUESTIONS[:1], "ask_twice": QUESTIONS}.get(word, [])
        if len(said) <= len(questions):
            await updater.requires_input(agent_says(questions[len(said) - 1]))
            return
        if word == "sign_in":
            await updater.requires_auth(agent_says(f"Please sign in at {self.base}/sign-in"))
            await asyncio.sleep(self.pace)
        await updater.start_work(agent_says("Working on it."))
        if word == "crash":
            raise RuntimeError("the agent fell over")
        if word == "long":
            stop = self.stops.setdefault(updater.task_id, asyncio.Event())
            await stop.wait()
            return
        await asyncio.sleep(self.pace)
        if word == "fail":
            await updater.failed(agent_says("The oven is broken."))
            return
        await self.hand_over(updater, word, said)
        await updater.complete(agent_says("The answer is 42.") if word == "status" else None)

    async def hand_over(self, updater: TaskUpdater, word: str, said: list[str]) -> None:
        """Adds the artifacts of a task."""
        if word == "chunks":
            for number, piece in enumerate(CHUNKS):
                await updater.add_artifact(
                    [new_text_part(piece)],
                    artifact_id="tide",
                    name="tide.txt",
                    append=number > 0,
                    last_chunk=number + 1 == len(CHUNKS),
                )
            return
        parts: dict[str, list[Part]] = {
            "url": [new_url_part(f"{self.base}/files/picture.png", media_type="image/png", filename="picture.png")],
            "bytes": [new_raw_part(PICTURE, media_type="image/png", filename="picture.png")],
            "data": [new_data_part({"count": 3, "items": ["a", "b"]})],
            "status": [],
        }
        text = "Answers: " + ", ".join(said[1:]) if len(said) > 1 else f"Done: {said[0]}"
        chosen = parts.get(word, [new_text_part(text)])
        if chosen:
            await updater.add_artifact(chosen, name="result")

    async def cancel(self, context: RequestContext, event_queue: EventQueue) -> None:
        """Stops a task."""
        assert context.task_id is not None and context.context_id is not None
        stop = self.stops.pop(context.task_id, None)
        if stop is not None:
            stop.set()
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


class TokenGate:
    """Refuses every request without the token, except for the card."""

    def __init__(self, app, token: str) -> None:  # noqa: ANN001
        self.app = app
        self.token = token

    async def __call__(self, scope, receive, send) -> None:  # noqa: ANN001
        if scope["type"] == "http" and not scope["path"].startswith(("/.well-known/", "/files/")):
            if Request(scope).headers.get("authorization") != f"Bearer {self.token}":
                refusal = JSONResponse({"error": "unauthorized"}, 401, {"WWW-Authenticate": "Bearer"})
                await refusal(scope, receive, send)
                return
        await self.app(scope, receive, send)


def application(base: str, pace: float, token: str | None = None) -> Starlette:
    """The agent as an ASGI application that is reached at `base`."""
    card = AgentCard(
        name="Peer",
        description="Does as it is told, for tests.",
        version="1.0.0",
        supported_interfaces=[
            AgentInterface(url=f"{base}/rpc", protocol_binding="JSONRPC", protocol_version="1.0"),
            AgentInterface(url=f"{base}/rest", protocol_binding="HTTP+JSON", protocol_version="1.0"),
        ],
        capabilities=AgentCapabilities(streaming=True, push_notifications=False),
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain", "image/png"],
        skills=[AgentSkill(id="obey", name="Obey", description="Follows peer: words.", tags=["test"])],
    )
    handler = DefaultRequestHandler(
        agent_executor=Peer(base, pace), task_store=InMemoryTaskStore(), agent_card=card
    )

    async def file(request: Request) -> Response:
        if request.path_params["name"] != "picture.png":
            return Response(status_code=404)
        return Response(PICTURE, media_type="image/png")

    # The SDK's routes end with one for any tenant, which would take the files too.
    routes = [
        Route("/files/{name}", file),
        *create_agent_card_routes(card),
        *create_jsonrpc_routes(handler, "/rpc"),
        *create_rest_routes(handler, path_prefix="/rest"),
    ]
    return Starlette(routes=routes, middleware=[Middleware(TokenGate, token=token)] if token else [])


class Server(uvicorn.Server):
    """Says when it listens."""

    async def startup(self, sockets=None) -> None:  # noqa: ANN001
        await super().startup(sockets)
        print("ready", flush=True)


def main() -> None:
    """Serves until it is told to stop."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--pace", type=float, default=0.5, help="seconds that a task works")
    parser.add_argument("--token", help="a bearer token that every call must carry")
    options = parser.parse_args()
    base = f"http://{options.host}:{options.port}"
    app = application(base, options.pace, options.token)
    Server(uvicorn.Config(app, options.host, options.port, log_level="warning", access_log=False)).run()


if __name__ == "__main__":
    main()
