"""A real S3 API server process (moto) for the tests, with one empty bucket per test."""

import os
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError

CREDENTIALS = {"AWS_ACCESS_KEY_ID": "testing", "AWS_SECRET_ACCESS_KEY": "testing", "AWS_REGION": "us-east-1"}
START_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class S3Url:
    """Where a test may write."""

    endpoint: str
    """For EVERLOOP_S3_ENDPOINT_URL."""
    url: str
    """s3://<fresh bucket>/lake"""


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """URL of the server; credentials are in the environment while it runs."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    before = {name: os.environ.get(name) for name in CREDENTIALS}
    os.environ.update(CREDENTIALS)
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        endpoint = f"http://127.0.0.1:{port}"
        _wait_until_up(endpoint, process)
        yield endpoint
    finally:
        process.terminate()
        process.wait(timeout=10)
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@pytest.fixture
def s3_url(s3_endpoint: str) -> S3Url:
    bucket = f"lake-{uuid.uuid4().hex[:12]}"
    boto3.client("s3", endpoint_url=s3_endpoint, region_name="us-east-1").create_bucket(Bucket=bucket)
    return S3Url(s3_endpoint, f"s3://{bucket}/lake")


def _wait_until_up(endpoint: str, process: "subprocess.Popen[bytes]") -> None:
    client = boto3.client("s3", endpoint_url=endpoint, region_name="us-east-1", config=Config(retries={"max_attempts": 0}))
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        assert process.poll() is None, f"the S3 server ended with {process.returncode}"
        try:
            client.list_buckets()
        except BotoCoreError:
            time.sleep(0.1)
        else:
            return
    raise AssertionError(f"no S3 server at {endpoint} after {START_TIMEOUT_S:.0f} s")
