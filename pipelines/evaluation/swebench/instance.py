"""A SWE-bench instance in the layout of version 5. Owns reading rows, tolerantly; refuses to fetch or run them."""

from typing import Annotated

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field


def _listed(value: object) -> object:
    """Test names come as a list, or as a list in a JSON string."""
    return orjson.loads(value) if isinstance(value, str) else value


TestNames = Annotated[tuple[str, ...], BeforeValidator(_listed)]


class Instance(BaseModel):
    """One row; columns that are not needed here are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)

    instance_id: str = Field(min_length=1)
    repo: str
    base_commit: str
    problem_statement: str
    patch: str
    """The reference fix, as a git diff."""
    test_patch: str
    """The tests that grade it, as a git diff; `eval_script` puts them in place."""
    eval_script: str
    """Bash; brackets the test output with the start and end markers."""
    fail_to_pass: TestNames = Field(alias="FAIL_TO_PASS")
    pass_to_pass: TestNames = Field((), alias="PASS_TO_PASS")
    log_parser: str = "parse_log_pytest"
    eval_type: str = "pass_and_fail"
    image: str = ""
    """Container image of the official harness."""
    version: str = ""
    created_at: str = ""
