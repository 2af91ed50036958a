"""A certificate authority for one test session, and servers' certificates of it, made with the `openssl` command."""

import ssl
import subprocess
from dataclasses import dataclass
from pathlib import Path

_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "3")


@dataclass(frozen=True, slots=True)
class Authority:
    """`file` is what a client trusts, by SSL_CERT_FILE; `key` is its own."""

    file: Path
    key: Path

    def server(self, *names: str) -> ssl.SSLContext:
        """What a server needs whose certificate is for these, each `DNS:name` or `IP:address`."""
        stem = self.file.with_name(names[0].replace(":", "_"))
        certificate, key = stem.with_suffix(".server.pem"), stem.with_suffix(".server.key")
        _make(certificate, key, "a server", f"subjectAltName={','.join(names)}", "-CA", self.file, "-CAkey", self.key)
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate, key)
        return context


def new_authority(folder: Path) -> Authority:
    """About 20 ms."""
    authority = Authority(folder / "authority.pem", folder / "authority.key")
    _make(authority.file, authority.key, "an authority", "keyUsage=critical,keyCertSign")
    return authority


def _make(certificate: Path, key: Path, name: str, extension: str, *more: object) -> None:
    command = ["openssl", "req", "-x509", *_NEW_KEY, "-subj", f"/CN={name}", "-addext", extension]
    subprocess.run([*command, "-keyout", key, "-out", certificate, *more], check=True, capture_output=True)
