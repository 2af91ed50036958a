"""The mail server: where it is, how it is spoken to, and what its troubles mean."""

import base64
import ipaddress
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from urllib.parse import unquote, urlsplit

import aiosmtplib

from outbox.outcomes import Undelivered
from transactions import InvalidInput, failures
from transactions.failures import FailureClass
from transactions.redaction import Redactor

_PORTS: Mapping[str, int] = MappingProxyType({"smtp": 25, "smtps": 465, "smtp+starttls": 587})
_WRITE = "write smtp://host:port, smtps://user:password@host:port or smtp+starttls://user:password@host:port."


@dataclass(frozen=True, slots=True)
class SmtpServer:
    """Where mail goes; `sender` is the From address. See `from_url`.

    tls: from the first byte. starttls: the session turns to TLS, or ends before anything is said in it. With neither,
    TLS is taken when the server offers it. Certificates are checked against the system's, or those of SSL_CERT_FILE.
    timeout_s: from connecting to the answer for the first recipient, and again for each further one; after this long
    in all no further one is begun, and the rest comes with the next attempt.
    """

    host: str
    port: int
    sender: str
    tls: bool = False
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    timeout_s: float = 20.0
    starttls: bool = False

    def __post_init__(self) -> None:
        if self.user is not None and not (self.tls or self.starttls or _is_loopback(self.host)):
            raise InvalidInput(
                f"The password for the mail server {self.host} would be sent in the clear: "
                "write smtps:// or smtp+starttls:// instead of smtp:// in SUREFOOT_SMTP_URL."
            )

    @classmethod
    def from_url(cls, url: str, *, sender: str) -> "SmtpServer":
        """`smtp://`, `smtps://` (TLS from the first byte) or `smtp+starttls://`, then `[user:password@]host[:port]`.

        Raises InvalidInput for a URL of another shape, and for a password that would be sent in the clear.
        """
        try:
            parts = urlsplit(url)
            scheme, host, port = parts.scheme, parts.hostname, parts.port
        except ValueError:
            parts, scheme, host, port = None, "", None, None
        if parts is None or scheme not in _PORTS or not host:
            raise InvalidInput(f"SUREFOOT_SMTP_URL is not the URL of a mail server: {_WRITE}")
        if (parts.username is None) != (parts.password is None):
            raise InvalidInput(f"SUREFOOT_SMTP_URL has a user or a password without the other: {_WRITE}")
        return cls(
            host,
            port or _PORTS[scheme],
            sender,
            tls=scheme == "smtps",
            user=unquote(parts.username) if parts.username is not None else None,
            password=unquote(parts.password) if parts.password is not None else None,
            starttls=scheme == "smtp+starttls",
        )

    def client(self) -> aiosmtplib.SMTP:
        """A client that is not connected; connecting includes TLS and the login."""
        return aiosmtplib.SMTP(
            hostname=self.host,
            port=self.port,
            username=self.user,
            password=self.password,
            use_tls=self.tls,
            start_tls=False if self.tls else (True if self.starttls else None),
            timeout=self.timeout_s,
        )

    def redacted(self, text: str) -> str:
        """What a server said, without the password, however it was sent."""
        if not self.password:
            return text
        sent = (self.password, f"\0{self.user}\0{self.password}")
        return Redactor([self.password, *(base64.b64encode(plain.encode()).decode() for plain in sent)])(text)


def said(code: int, text: str, server: SmtpServer) -> str:
    """A refusal in words."""
    return f"the mail server said {code} {server.redacted(text)}"


def session_trouble(error: Exception, server: SmtpServer) -> Undelivered:
    """Why a session ended that was not over: for good when it would end so every time."""
    if isinstance(error, aiosmtplib.SMTPResponseException):
        final = error.code >= 500
        why = said(error.code, error.message, server)
        if isinstance(error, aiosmtplib.SMTPAuthenticationError):
            kind = FailureClass.PERMISSION if final else FailureClass.TRANSIENT
            why = f"the login failed ({kind}): {why}"
            why += "; correct user and password in SUREFOOT_SMTP_URL and redrive it" if final else ""
        return Undelivered(why, final=final)
    failure = failures.of(error)
    reason = server.redacted(failure.reason)
    if any(isinstance(link, ssl.SSLCertVerificationError) for link in (error, error.__cause__)):
        return Undelivered(f"{reason}: renew the server's certificate, or name its authority in SSL_CERT_FILE")
    if type(error) in (aiosmtplib.SMTPException, aiosmtplib.SMTPNotSupported):  # it does not offer what is required
        advice = "have the server offer it, or correct SUREFOOT_SMTP_URL, and redrive it"
        return Undelivered(f"{reason} ({FailureClass.PERMISSION}): {advice}", final=True)
    return Undelivered(f"{reason} ({failure.kind})")


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
