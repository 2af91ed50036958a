"""Certificates that clients of a test trust."""

import pytest

from tests.certificates import Authority, new_authority


@pytest.fixture(scope="session")
def an_authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return new_authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture
def authority(an_authority: Authority, monkeypatch: pytest.MonkeyPatch) -> Authority:
    """One that this process trusts for the time of the test."""
    monkeypatch.setenv("SSL_CERT_FILE", str(an_authority.file))
    return an_authority
