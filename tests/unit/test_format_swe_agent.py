import json
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.traces.formats import detect, parse_file
from pipelines.traces.model import Outcome, Rejection, Role, Trace, Usage
from pipelines.traces.table import trace_from_row, trace_to_row
from tests.unit.samples import sample_files


def parse(*records: object) -> list[Trace | Rejection]:
    return list(parse_file("\n".join(json.dumps(record) for record in records).encode(), location="somewhere"))


def only(*records: object) -> Trace:
    (trace,) = parse(*records)
    assert isinstance(trace, Trace), trace
    assert trace.source.format == "swe_agent"
    assert trace_from_row(trace_to_row(trace)) == trace
    return trace


def sample(name: str) -> Trace:
    (path,) = [path for path in sample_files("swe-agent-traj") if path.name == name]
    return only(json.loads(Path(path).read_bytes()))


def run(history: object = None, **info: object) -> dict[str, object]:
    history = [{"role": "user", "content": "fix it", "agent": "main"}] if history is None else history
    return {"environment": "main", "trajectory": [], "history": history, "info": info}


def test_a_function_calling_run_keeps_calls_results_and_where_it_ran() -> None:
    trace = sample("function_calling.traj")
    assert [message.role for message in trace.messages] == [Role.SYSTEM, Role.USER, *[Role.ASSISTANT, Role.TOOL] * 11]
    calls = [call for message in trace.messages for call in message.tool_calls]
    assert [call.name for call in calls][:4] == ["create", "edit", "bash", "bash"]
    assert calls[0].raw_arguments == '{"filename":"reproduce.py"}'
    assert trace.messages[3].tool_call_id == calls[0].id == "call_cyI71DYnRdoLHWwtZgIaW2wr"
    assert [message.tool_call_id for message in trace.messages if message.role is Role.TOOL] == [call.id for call in calls]
    assert (trace.outcome, trace.usage, trace.model) == (Outcome.UNKNOWN, Usage(), "gpt-4o")
    assert trace.id.startswith("marshmallow-code__marshmallow-1867-")
    submission = trace.attributes.pop("submission")
    assert submission.strip().startswith("diff --git a/src/marshmallow/fields.py")
    assert trace.attributes == {
        "exit_status": "submitted",
        "instance_id": "marshmallow-code__marshmallow-1867",
        "repository": "testbed",
        "base_commit": "bfd2593d4b416122e30cdefe0c72d322ef471611",
        "image": "swebench/sweb.eval.x86_64.marshmallow-code_1776_marshmallow-1867:latest",
        "cwd": "/testbed",
        "environment": "main",
        "num_model_calls": "11",
    }


def test_a_thought_action_run_leaves_its_demonstration_out_and_keeps_commands_as_text() -> None:
    trace = sample("v0.6_thought_action.traj")
    assert [message.role for message in trace.messages] == [
        Role.SYSTEM,
        Role.USER,
        *[Role.ASSISTANT, Role.USER] * 11,
        Role.ASSISTANT,
    ]
    assert "Here is a demonstration" not in (trace.messages[1].content or "")
    assert (trace.messages[2].content or "").endswith("```\ncreate reproduce_bug.py\n```")
    assert (trace.usage.input_tokens, trace.usage.output_tokens, trace.attributes["cost_usd"]) == (122612, 1369, "1.26719")
    assert (trace.model, trace.attributes["cwd"]) == (None, "/pydicom__pydicom")


def test_a_submission_is_no_success_and_every_other_exit_is_a_failure() -> None:
    outcomes = {
        status: only(run(exit_status=status)).outcome for status in ("submitted", None, "submitted (exit_cost)", "exit_context")
    }
    assert outcomes == {
        "submitted": Outcome.UNKNOWN,
        None: Outcome.UNKNOWN,
        "submitted (exit_cost)": Outcome.FAILURE,
        "exit_context": Outcome.FAILURE,
    }


def test_a_replay_config_in_a_string_names_repository_and_commit() -> None:
    repo = {"github_url": "https://github.com/x/y", "base_commit": "abc", "type": "github"}
    config = {"env": {"repo": repo}, "agent": {"model": {"name": "m"}}, "problem_statement": {"id": "x__y-1"}}
    trace = only({**run(), "replay_config": json.dumps(config)})
    assert (trace.attributes["repository"], trace.attributes["base_commit"], trace.model) == (repo["github_url"], "abc", "m")


def test_turns_of_sub_agents_are_left_out() -> None:
    history = [
        {"role": "system", "content": "you fix", "agent": "primary"},
        {"role": "user", "content": "summarize", "agent": "summarizer"},
        {"role": "assistant", "content": [{"type": "text", "text": "done"}], "agent": "primary"},
    ]
    assert [message.content for message in only(run(history)).messages] == ["you fix", "done"]


def test_each_attempt_is_a_run_of_its_own() -> None:
    second = run([{"role": "user", "content": "again", "agent": "main"}], exit_status="exit_error")
    results = parse({"attempts": [run(exit_status="submitted"), second], **run(exit_status="submitted")})
    assert [result.messages[0].content for result in results if isinstance(result, Trace)] == ["fix it", "again"]
    assert [result.outcome for result in results if isinstance(result, Trace)] == [Outcome.UNKNOWN, Outcome.FAILURE]


def test_steps_stand_in_for_a_history_that_was_stripped() -> None:
    step = {"action": "ls", "observation": "a.py", "response": "look\n```\nls\n```", "thought": "look"}
    trace = only({"environment": "main", "trajectory": [step], "info": {}})
    assert [(message.role, message.content) for message in trace.messages] == [
        (Role.ASSISTANT, "look\n```\nls\n```"),
        (Role.USER, "a.py"),
    ]


def test_other_formats_are_left_alone() -> None:
    assert detect({"info": {"mini_version": "2"}, "messages": [], "trajectory_format": "mini-swe-agent-1"}) == "mini_swe_agent"
    assert detect({"trajectory": [], "info": {}}) is None


def test_nesting_that_cannot_be_stored_is_refused() -> None:
    (rejection,) = parse({**run(), "trajectory": json.loads("[" * 300 + "]" * 300)})
    assert isinstance(rejection, Rejection)
    assert rejection.detail == "no JSON: nested too deeply: more than 100 levels"


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["submitted", "user", "tool", "main", "{", "{}"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["role", "content", "agent", "is_demo", "env", "repo", "model", "id", "state"]), inner)
    ),
    max_leaves=8,
)
PLACES = st.sampled_from(["history", "trajectory", "info", "replay_config", "environment", "attempts"])


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(PLACES, VALUES, max_size=3), st.dictionaries(st.sampled_from(["exit_status", "model_stats"]), VALUES))
def test_mangled_runs_are_traces_or_rejections(changes: dict[str, object], info: dict[str, object]) -> None:
    for result in parse({**run(**info), **changes}):
        assert isinstance(result, Rejection) or trace_from_row(trace_to_row(result)) == result
