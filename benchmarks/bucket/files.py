#!/usr/bin/env python3
"""One object a file, as programs do it today: boto3 with threads. A step of run.py, in a process of its own.

    files.py put DIR PREFIX THREADS [NAME]      every file below DIR, each as an object; or only this one
    files.py get PREFIX THREADS < NAMES         these objects, whole
    files.py stream NAME                        one object, in one request
    files.py remove PREFIX                      every object below it

Server, bucket and credentials are in the environment. Prints the seconds without the start of Python, and the bytes.
"""

import concurrent.futures
import os
import sys
import time
from pathlib import Path

import boto3
from botocore.config import Config

PIECE_BYTES = 8 << 20
BUCKET = os.environ["BUCKET"]
CONNECTIONS = 32
# One for all threads, which boto3 allows; making one takes a third of a second.
CLIENT = boto3.client("s3", config=Config(max_pool_connections=CONNECTIONS, s3={"addressing_style": "path"}))


def put(file, name, storage_class):
    with open(file, "rb") as body:
        CLIENT.put_object(Bucket=BUCKET, Key=name, Body=body, **({"StorageClass": storage_class} if storage_class else {}))
        return body.tell()


def get(name):
    return len(CLIENT.get_object(Bucket=BUCKET, Key=name)["Body"].read())


def stream(name):
    body = CLIENT.get_object(Bucket=BUCKET, Key=name)["Body"]
    return sum(len(piece) for piece in iter(lambda: body.read(PIECE_BYTES), b""))


def remove(prefix):
    removed = 0
    for page in CLIENT.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=f"{prefix}/"):
        names = [{"Key": found["Key"]} for found in page.get("Contents", [])]
        removed += len(names)
        if names:
            CLIENT.delete_objects(Bucket=BUCKET, Delete={"Objects": names, "Quiet": True})
    return removed


def on_threads(threads, work, items):
    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        return sum(pool.map(work, items))


def main(step, *arguments):
    start = time.monotonic()
    if step == "put":
        root, prefix, threads = Path(arguments[0]), arguments[1], int(arguments[2])
        files = [root / name for name in arguments[3:]] or sorted(path for path in root.rglob("*") if path.is_file())
        storage_class = os.environ.get("STORAGE_CLASS")
        total = on_threads(threads, lambda file: put(file, f"{prefix}/{file.relative_to(root)}", storage_class), files)
    elif step == "get":
        prefix, threads = arguments[0], int(arguments[1])
        names = [f"{prefix}/{line.rstrip()}" for line in sys.stdin]
        start = time.monotonic()
        total = on_threads(threads, get, names)
    elif step in ("stream", "remove"):
        total = {"stream": stream, "remove": remove}[step](arguments[0])
    else:
        sys.exit(f"no step {step}")
    print(f"seconds={time.monotonic() - start:.6f} bytes={total}")


if __name__ == "__main__":
    main(*sys.argv[1:])
