"""Fixtures of the end-to-end tests."""

import uuid

import boto3
import pytest

from tests.integration.s3_fixtures import S3Url, s3_endpoint

__all__ = ["module_s3_url", "s3_endpoint"]


@pytest.fixture(scope="module")
def module_s3_url(s3_endpoint: str) -> S3Url:
    """A fresh bucket for the module."""
    bucket = f"lake-{uuid.uuid4().hex[:12]}"
    boto3.client("s3", endpoint_url=s3_endpoint, region_name="us-east-1").create_bucket(Bucket=bucket)
    return S3Url(s3_endpoint, f"s3://{bucket}/lake")
