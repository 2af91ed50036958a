"""Certificates that clients of a test trust, and a receiver of webhooks that has one."""

from collections.abc import AsyncIterator

import pytest

from tests.certificates import Authority, new_authority
from tests.hooks import HOST
from tests.receiver import Receiver


@pytest.fixture(scope="session")
def an_authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return new_authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def authority(an_authority: Authority, monkeypatch: pytest.MonkeyPatch) -> Authority:
    """One that this process trusts for the time of the test."""
    monkeypatch.setenv("SSL_CERT_FILE", str(an_authority.file))
    return an_authority


@pytest.fixture
async def receiver(authority: Authority) -> AsyncIterator[Receiver]:
    receiver = Receiver()
    async with receiver.listening(authority.server(f"DNS:{HOST}")):
        yield receiver
