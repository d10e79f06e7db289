"""Claude Managed Agents by PyPI anthropic."""

from __future__ import annotations

import shutil
import subprocess
import uuid
from pathlib import Path

import anthropic
import pytest
from conftest import checked

AGENT, ENVIRONMENT = "agent_sandbox", "env_sandbox"


@pytest.fixture
def client(sandbox) -> anthropic.Anthropic:
    return anthropic.Anthropic(api_key="sandbox-claude", base_url=sandbox.base("claude_managed_agents"), max_retries=0)


def start(client: anthropic.Anthropic, words: str, **more):
    session = client.beta.sessions.create(
        agent=AGENT, environment_id=ENVIRONMENT, metadata={"job_id": str(uuid.uuid4()), "attempt": "1"}, **more
    )
    checked(session)
    client.beta.sessions.events.send(
        session.id, events=[{"type": "user.message", "content": [{"type": "text", "text": words}]}]
    )
    return session


def stopped(client: anthropic.Anthropic, until, session):
    """The newest idle event of a session that has come to rest."""
    until(lambda: client.beta.sessions.retrieve(session.id).status, lambda status: status in ("idle", "terminated"))
    page = client.beta.sessions.events.list(session.id, types=["session.status_idle"], order="desc", limit=1)
    return checked(page.data[0])


def test_start_poll_and_outputs(client, until, sandbox, tmp_path: Path) -> None:
    marker = f"Fix the flaky test {uuid.uuid4()}"
    session = start(client, marker)
    assert (session.type, session.status, session.agent.version) == ("session", "idle", 3)
    assert sandbox.starts("claude_managed_agents", marker) == 1
    idle = stopped(client, until, session)
    assert idle.stop_reason.type == "end_turn"
    done = checked(client.beta.sessions.retrieve(session.id))
    assert (done.usage.input_tokens, done.usage.output_tokens) == (9100, 2600)
    assert done.usage.list_cost is not None and int(done.usage.list_cost.amount) > 0
    kinds = {checked(event).type for event in client.beta.sessions.events.list(session.id, limit=3)}
    assert {"user.message", "agent.message", "agent.tool_use", "session.usage", "session.status_idle"} <= kinds
    files = until(lambda: client.beta.files.list(scope_id=session.id).data, lambda files: len(files) == 2)
    patch = next(checked(file) for file in files if file.filename == "changes.patch")
    assert patch.scope is not None and patch.scope.id == session.id and patch.downloadable
    body = client.beta.files.download(patch.id).read()
    assert len(body) == patch.size_bytes
    applied(tmp_path, body)


def applied(folder: Path, patch: bytes) -> None:
    """Applies the patch with git to the file that it was made for."""
    git = shutil.which("git")
    assert git, "git is needed to try the patch"
    found = "".join(
        line[1:] + "\n"
        for line in patch.decode().split("diff --git")[1].splitlines()[3:]
        if line[:1] in ("-", " ") and not line.startswith("---")
    )
    (folder / "src").mkdir()
    (folder / "src/retry.py").write_text(found)
    (folder / "changes.patch").write_bytes(patch)
    subprocess.run([git, "apply", "--verbose", "changes.patch"], cwd=folder, check=True)
    assert "sleep=time.sleep" in (folder / "src/retry.py").read_text()
    assert (folder / "tests/test_retry.py").exists()


@pytest.mark.parametrize("result", ["allow", "deny"])
def test_a_permission(client, until, result: str) -> None:
    session = start(client, "Fix it sandbox:asks")
    reason = stopped(client, until, session).stop_reason
    assert reason.type == "requires_action"
    asked = next(iter(client.beta.sessions.events.list(session.id, types=["agent.tool_use"], order="desc")))
    assert (asked.id, asked.evaluated_permission, asked.name) == (reason.event_ids[0], "ask", "bash")
    sent = client.beta.sessions.events.send(
        session.id, events=[{"type": "user.tool_confirmation", "tool_use_id": asked.id, "result": result}]
    )
    assert checked(sent).data is not None and sent.data[0].type == "user.tool_confirmation"
    assert stopped(client, until, session).stop_reason.type == "end_turn"


def test_a_question_by_a_custom_tool(client, until) -> None:
    session = start(client, "Fix it sandbox:asks_text")
    reason = stopped(client, until, session).stop_reason
    asked = checked(next(iter(client.beta.sessions.events.list(session.id, types=["agent.custom_tool_use"]))))
    assert (asked.name, asked.id) == ("ask_human", reason.event_ids[0])
    answer = {
        "type": "user.custom_tool_result",
        "custom_tool_use_id": asked.id,
        "content": [{"type": "text", "text": "test_patience"}],
    }
    client.beta.sessions.events.send(session.id, events=[answer])
    assert stopped(client, until, session).stop_reason.type == "end_turn"
    spoken = client.beta.sessions.events.list(session.id, types=["agent.message"], order="desc", limit=1).data[0]
    assert "test_patience" in spoken.content[0].text


def test_cancel(client) -> None:
    session = start(client, "sandbox:never_ends")
    assert client.beta.sessions.retrieve(session.id).status == "running"
    with pytest.raises(anthropic.ConflictError):
        client.beta.sessions.archive(session.id)
    client.beta.sessions.events.send(session.id, events=[{"type": "user.interrupt"}])
    archived = client.beta.sessions.archive(session.id)
    assert archived.status == "terminated" and archived.archived_at is not None
    with pytest.raises(anthropic.ConflictError):
        client.beta.sessions.events.send(session.id, events=[{"type": "user.interrupt"}])
    assert client.beta.sessions.delete(session.id).type == "session_deleted"
    with pytest.raises(anthropic.NotFoundError):
        client.beta.sessions.retrieve(session.id)


def test_a_budget(client, until) -> None:
    limit = {"type": "limit", "max_list_cost": {"amount": "500", "currency": "USD"}}
    session = start(client, "sandbox:budget", budget=limit)
    assert stopped(client, until, session).stop_reason.type == "budget_reached"
    raised = {"type": "limit", "max_list_cost": {"amount": "2500", "currency": "USD"}}
    assert client.beta.sessions.update(session.id, budget=raised).status == "running"
    assert stopped(client, until, session).stop_reason.type == "end_turn"


@pytest.mark.parametrize(
    ("scenario", "reason"), [("fails", "retries_exhausted"), ("refuses", "refusal"), ("empty", "end_turn")]
)
def test_other_ends(client, until, scenario: str, reason: str) -> None:
    session = start(client, f"sandbox:{scenario}")
    assert stopped_for(client, until, session) == reason
    for event in client.beta.sessions.events.list(session.id, types=["session.error"]):
        assert checked(event).error.type == "model_overloaded_error"
        assert event.error.retry_status.type in ("retrying", "exhausted")


def stopped_for(client, until, session) -> str:
    look = lambda: client.beta.sessions.events.list(session.id, types=["session.status_idle"]).data  # noqa: E731
    return until(look, lambda events: len(events) > 0)[0].stop_reason.type


def test_a_lost_start_is_found(client) -> None:
    first, second = (start(client, "sandbox:never_ends") for _ in range(2))
    listed = client.beta.sessions.list(agent_id=AGENT, created_at_gte=first.created_at, order="desc", limit=1)
    found = [session.id for session in listed if session.metadata in (first.metadata, second.metadata)]
    assert found == [second.id, first.id], "two pages of one"


def test_an_upload_is_mounted(client) -> None:
    upload = checked(client.beta.files.upload(file=("brief.txt", b"hello", "text/plain")))
    assert (upload.filename, upload.size_bytes, upload.mime_type) == ("brief.txt", 5, "text/plain")
    session = client.beta.sessions.create(
        agent={"type": "agent", "id": AGENT, "version": 2},
        environment_id=ENVIRONMENT,
        resources=[
            {"type": "file", "file_id": upload.id},
            {"type": "github_repository", "url": "https://github.com/acme/demo", "authorization_token": "ghp_FAKE"},
        ],
    )
    assert [checked(resource).type for resource in session.resources] == ["file", "github_repository"]
    copy = client.beta.files.list(scope_id=session.id).data[0]
    with pytest.raises(anthropic.BadRequestError) as refused:
        client.beta.files.download(copy.id)
    assert refused.value.error_code == "file_not_downloadable"


def test_what_was_set_up_once(client) -> None:
    assert checked(client.beta.agents.retrieve(AGENT)).version == 3
    assert checked(client.beta.environments.retrieve(ENVIRONMENT)).config.type == "cloud"
    assert len([checked(model) for model in client.models.list(limit=1)]) == 2
    with pytest.raises(anthropic.NotFoundError):
        client.beta.agents.retrieve("agent_other")


def test_a_bad_key(sandbox) -> None:
    bad = anthropic.Anthropic(api_key="sk-ant-real", base_url=sandbox.base("claude_managed_agents"), max_retries=0)
    with pytest.raises(anthropic.AuthenticationError) as refused:
        bad.beta.sessions.list(limit=1)
    assert refused.value.request_id.startswith("req_")


def test_a_rate_limit_is_waited_out(sandbox, until) -> None:
    patient = anthropic.Anthropic(api_key="sandbox-claude", base_url=sandbox.base("claude_managed_agents"))
    session = start(patient, f"sandbox:rate_limited {uuid.uuid4()}")
    assert stopped(patient, until, session).stop_reason.type == "end_turn"
