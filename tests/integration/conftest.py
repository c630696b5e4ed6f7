"""Fixtures of the integration tests: every server is a real process of this session."""

from tests.integration.engine_fixtures import rollout_replica, tiny_models
from tests.integration.mlflow_fixtures import dead_settings, mlflow_settings, mlflow_url, upstream
from tests.integration.s3_fixtures import s3_endpoint, s3_url
from tests.integration.stack_fixtures import stack

__all__ = [
    "dead_settings",
    "mlflow_settings",
    "mlflow_url",
    "rollout_replica",
    "s3_endpoint",
    "s3_url",
    "stack",
    "tiny_models",
    "upstream",
]
