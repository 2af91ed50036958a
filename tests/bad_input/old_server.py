"""A server that says it is an old Postgres: as much of the protocol as a client needs to connect."""

import socket
import struct
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress

STARTUP, SSL_REQUEST, GSS_REQUEST = 196608, 80877103, 80877104


def _message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionError
        data += more
    return data


def _answer(connection: socket.socket, version: str) -> None:
    """Refuse encryption, accept whoever it is, say the version, and wait for the goodbye."""
    with connection, suppress(ConnectionError):
        while True:
            (length,) = struct.unpack("!i", _exactly(connection, 4))
            (code,) = struct.unpack("!i", _exactly(connection, length - 4)[:4])
            if code == STARTUP:
                break
            assert code in (SSL_REQUEST, GSS_REQUEST)
            connection.sendall(b"N")
        settings = {"server_version": version, "client_encoding": "UTF8", "server_encoding": "UTF8"}
        connection.sendall(
            _message(b"R", struct.pack("!i", 0))
            + b"".join(_message(b"S", f"{name}\0{value}\0".encode()) for name, value in settings.items())
            + _message(b"K", struct.pack("!ii", 1, 1))
            + _message(b"Z", b"I")
        )
        connection.recv(1024)


@contextmanager
def old_server(version: str) -> Generator[str]:
    """Its URL."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    _answer(listener.accept()[0], version)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"postgresql://postgres@127.0.0.1:{listener.getsockname()[1]}/surefoot"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(5)
