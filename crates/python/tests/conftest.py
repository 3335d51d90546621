"""What the tests share: a small store whose contents say which key they are of."""

import hashlib
import os

import granulo
import pytest


def content_of(key: str) -> bytes:
    """From 0 to 5,000 bytes, determined by the key."""
    digest = hashlib.sha256(key.encode()).digest()
    return (digest * 160)[: int.from_bytes(digest[:2], "little") % 5000]


def write_files(path, keys) -> None:
    with granulo.Store(path, "a") as store, store.batch() as batch:
        for key in keys:
            batch.put(key, content_of(key))


KEYS = [f"{group}/{number:04d}.bin" for group in ("cats", "dogs", "owls") for number in range(200)]


def pytest_sessionfinish(session):
    """With ``GRANULO_REQUIRE_ALL``, what would be skipped fails, as in the other tests of granulo."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("GRANULO_REQUIRE_ALL") and reporter and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(scope="session")
def home(tmp_path_factory):
    """A store of 600 files; only read."""
    path = tmp_path_factory.mktemp("store") / "s"
    write_files(path, KEYS)
    return path


@pytest.fixture
def store(home):
    return granulo.Store(home)
