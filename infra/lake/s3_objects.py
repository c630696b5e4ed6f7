"""Single objects of a lake on S3, or on a server that speaks its API with If-None-Match and If-Match.

boto3 and status codes, not fsspec: what a failed condition raises there depends on the file system's version.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from infra.lake.objects import ObjectInfo, StoredObject
from pipelines.errors import ArtifactError, ConfigError, InfrastructureError

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import PutObjectRequestTypeDef

PRECONDITION_FAILED = 412
CONFLICT = 409
"""Another conditional write of the same key is under way: as good as lost, the read-back tells."""


def endpoint_url(setting: str) -> str | None:
    """The S3 API server to talk to: the setting, else AWS_ENDPOINT_URL, else None for AWS itself."""
    return setting or os.environ.get("AWS_ENDPOINT_URL") or None


def region() -> str:
    return os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"


class S3Objects:
    """Objects under s3://bucket/prefix."""

    def __init__(self, url: str, *, endpoint: str | None) -> None:
        parts = urlsplit(url)
        if not parts.netloc:
            raise ConfigError(f"lake {url!r} names no bucket; expected s3://bucket/prefix")
        self.bucket = parts.netloc
        self.prefix = parts.path.strip("/")
        self.root = f"s3://{self.bucket}/{self.prefix}".rstrip("/")
        self.client = _client(endpoint)

    def get(self, path: str) -> StoredObject | None:
        with _S3Errors(self.root, f"reading {path}"):
            try:
                answer = self.client.get_object(Bucket=self.bucket, Key=self._key(path))
                return StoredObject(answer["Body"].read(), answer["ETag"])
            except self.client.exceptions.NoSuchKey:
                return None

    def put_if_absent(self, path: str, data: bytes) -> bool:
        return self._put(path, data, {"Bucket": self.bucket, "Key": self._key(path), "Body": data, "IfNoneMatch": "*"})

    def replace(self, path: str, data: bytes, *, expected_etag: str) -> bool:
        return self._put(path, data, {"Bucket": self.bucket, "Key": self._key(path), "Body": data, "IfMatch": expected_etag})

    def upload(self, source: Path, path: str) -> None:
        with _S3Errors(self.root, f"writing {path}"):
            self.client.upload_file(str(source), self.bucket, self._key(path))

    def download(self, path: str, target: Path) -> None:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _S3Errors(self.root, f"reading {path}"):
            self.client.download_file(self.bucket, self._key(path), str(target))

    def list_files(self, prefix: str) -> list[ObjectInfo]:
        found: list[ObjectInfo] = []
        with _S3Errors(self.root, f"listing {prefix}"):
            pages = self.client.get_paginator("list_objects_v2").paginate(
                Bucket=self.bucket, Prefix=self._key(prefix).rstrip("/") + "/"
            )
            for page in pages:
                for item in page.get("Contents", []):
                    path = item["Key"][len(self.prefix) :].lstrip("/")
                    if not path.endswith("/") and not path.rpartition("/")[2].startswith("."):
                        found.append(ObjectInfo(path, item["Size"], item["ETag"].strip('"')))
        return sorted(found, key=lambda info: info.path)

    def _key(self, path: str) -> str:
        return f"{self.prefix}/{path}" if self.prefix else path

    def _put(self, path: str, data: bytes, request: "PutObjectRequestTypeDef") -> bool:
        """A retried request whose first try succeeded fails its condition too: read back before calling it lost."""
        from botocore.exceptions import ClientError

        with _S3Errors(self.root, f"writing {path}"):
            try:
                self.client.put_object(**request)
            except ClientError as error:
                if status_of(error) not in {PRECONDITION_FAILED, CONFLICT, 404} or _is_missing_bucket(error):
                    raise
                current = self.get(path)
                return current is not None and current.data == data
        return True


def status_of(error: Exception) -> int:
    """HTTP status of a botocore ClientError; 0 when it carries none."""
    response = getattr(error, "response", {})
    return int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def _is_missing_bucket(error: BaseException | None) -> bool:
    code: str = getattr(error, "response", {}).get("Error", {}).get("Code", "")
    return code == "NoSuchBucket"


class _S3Errors:
    """Turn botocore's errors into one InfrastructureError (ArtifactError for a missing object) that says what to check."""

    def __init__(self, root: str, action: str) -> None:
        self.root, self.action = root, action

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        from boto3.exceptions import S3UploadFailedError
        from botocore.exceptions import BotoCoreError, ClientError

        is_missing = isinstance(error, ClientError) and status_of(error) == 404 and not _is_missing_bucket(error)
        if is_missing and self.action.startswith("reading"):
            raise ArtifactError(f"lake {self.root}: nothing there while {self.action}") from error
        if isinstance(error, BotoCoreError | ClientError | S3UploadFailedError):
            raise InfrastructureError(
                f"lake {self.root}: {error} while {self.action}; "
                "check EVERLOOP_S3_ENDPOINT_URL, the bucket and the AWS_* credentials"
            ) from error


def _client(endpoint: str | None) -> "S3Client":
    import boto3
    from botocore.config import Config

    config = Config(
        retries={"mode": "standard", "max_attempts": 5},
        connect_timeout=10,
        read_timeout=60,
        s3={"addressing_style": "path" if endpoint else "auto"},
        # Servers other than AWS may not know the newer trailing checksums.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
    )
    return boto3.client("s3", endpoint_url=endpoint, region_name=region(), config=config)
