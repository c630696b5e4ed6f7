"""Bad input and a bad world, through the command line: one clear error or a finished cycle, and nothing half-written."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.sandbox.bubblewrap import find_binary
from infra.stack.lifecycle import observe_stack
from tests.e2e.world import ROOT, World, make_world, running, send_traffic
from tests.integration.engine_fixtures import make_tiny_model

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ASK = {"role": "user", "content": "Where is my order 7?"}
LOOK_UP = {"type": "function", "function": {"name": "look_up_order", "parameters": {"type": "object"}}}
FILES = {
    "chat.jsonl": [
        json.dumps({"messages": [ASK, {"role": "assistant", "content": "On its way."}], "tools": [LOOK_UP]}),
        json.dumps(
            {
                "messages": [{"role": "user", "content": "Did 8 ship?"}, {"role": "assistant", "content": "No idea."}],
                "tools": [LOOK_UP],
                "expectations": [
                    {
                        "name": "expected_tool_call",
                        "value": {"name": "look_up_order", "arguments": {"order_id": 8}},
                        "author": "ann",
                    }
                ],
            }
        ),
        '{"messages": [{"role": "user", "content": "cut off in the mid',
    ],
    "run.traj.json": [
        json.dumps({"info": {"mini_version": "2.0", "exit_status": "LimitsExceeded"}, "messages": [ASK], "instance_id": "repo-1"})
    ],
}
NOT_TEXT = b"\x89PNG\r\n\x1a\n\x00\x00\xff\xfe" + bytes(range(256))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    base = make_tiny_model(tmp_path_factory.mktemp("base"), 1)
    with running(make_world(tmp_path_factory.mktemp("everloop"), {"EVERLOOP_BASE_MODEL": str(base)})) as made:
        yield made


def last_line(result: subprocess.CompletedProcess[str]) -> str:
    return result.stderr.rstrip().rsplit("\n", 1)[-1]


def test_without_a_stack_the_error_names_the_server_and_the_next_step(tmp_path: Path) -> None:
    result = make_world(tmp_path / "home", {}).run()
    assert result.returncode == 1
    assert last_line(result).startswith("error: prefect at http://127.0.0.1:")
    assert "everloop up" in last_line(result)
    assert "Traceback" not in result.stdout + result.stderr


def test_an_empty_source_is_a_finished_cycle_with_nothing_to_learn_from(world: World) -> None:
    result = world.run()
    assert result.returncode == 0, result.stderr
    assert "nothing to learn from" in result.stdout
    record = world.cycle()
    assert (record["outcome"], record["traces"]["traces"], record["dataset"]["train_tasks"]) == ("nothing to learn from", 0, 0)


def test_files_in_the_inbox_are_read_and_those_that_cannot_be_are_counted_with_their_reason(world: World) -> None:
    inbox = Path(world.settings.lake_url) / "inbox"
    inbox.mkdir(parents=True)
    for name, lines in FILES.items():
        (inbox / name).write_text("\n".join(lines), encoding="utf-8")
    (inbox / "picture.jsonl").write_bytes(NOT_TEXT)

    result = world.run()

    assert result.returncode == 0, result.stderr
    record = world.cycle()
    assert record["traces"]["traces"] == 3
    assert record["traces"]["rejected"] == sum(record["traces"]["rejected_by_reason"].values()) == 2
    # One failure has a correction: one task, too few to train on.
    assert record["dataset"]["train_tasks"] + record["dataset"]["holdout_tasks"] == 1
    assert record["outcome"] == "nothing to learn from"


def test_a_source_that_is_mostly_broken_fails_loudly_and_is_read_once_it_is_mended(world: World, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    (lake / "inbox").mkdir(parents=True)
    (lake / "inbox" / "picture.jsonl").write_bytes(NOT_TEXT)
    own = {"EVERLOOP_LAKE": str(lake)}

    broken = world.run(own)
    (lake / "inbox" / "picture.jsonl").write_text("\n".join(FILES["chat.jsonl"][:2]), encoding="utf-8")
    mended = world.run(own)

    assert broken.returncode == 1
    assert "1 of 1 records rejected" in last_line(broken)
    assert "picture.jsonl" in last_line(broken)
    assert mended.returncode == 0, mended.stderr
    assert "2 new traces" in mended.stdout + mended.stderr


def test_a_full_disk_is_one_error_and_the_same_command_goes_on_once_there_is_room(world: World, tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    lake.mkdir()
    script = tmp_path / "full.sh"
    run = f'"{world.command()[0]}" -m flows.cli run --config "{world.config}"'
    script.write_text(
        f"mkdir {lake}/inbox && cp {tmp_path}/chat.jsonl {lake}/inbox\n"
        f"head -c 100M /dev/zero > {lake}/filler 2>/dev/null; {run}; echo full=$?\n"
        f"rm {lake}/filler; {run}; echo room=$?\n",
        encoding="utf-8",
    )
    (tmp_path / "chat.jsonl").write_text("\n".join(FILES["chat.jsonl"][:2]), encoding="utf-8")
    bounded = [str(find_binary()), "--dev-bind", "/", "/", "--size", str(8 << 20), "--tmpfs", str(lake)]

    result = subprocess.run(
        [*bounded, "bash", str(script)],
        env={**world.environment, "EVERLOOP_LAKE": str(lake)},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=280,
    )

    assert "full=1" in result.stdout, result.stdout + result.stderr
    assert "room=0" in result.stdout, result.stdout + result.stderr
    (error,) = [line for line in result.stderr.split("\n") if line.startswith("error: ")]
    assert "space" in error
    assert "2 new traces" in result.stdout + result.stderr


def test_a_model_server_that_is_gone_is_an_error_and_no_stage_is_recorded_as_done(world: World) -> None:
    send_traffic(world)
    state = observe_stack(world.settings)
    assert state is not None
    os.kill(state.supervisor.pid, signal.SIGKILL)
    for name, part in state.parts.items():
        if name.startswith("vllm") and part.process is not None:
            os.killpg(part.process.pid, signal.SIGKILL)

    result = world.run()

    assert result.returncode == 1
    assert "everloop up" in last_line(result)
    records = Path(world.settings.lake_url) / "records"
    assert not (records / "post_train").exists()
    assert world.cycle()["outcome"] == "nothing to learn from"
