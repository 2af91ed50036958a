"""Signatures of the Standard Webhooks: `webhook-signature` is made of the id, the time of the attempt and the body."""

import base64
import binascii
import hashlib
import hmac
import re
import time
from collections.abc import Mapping, Sequence

from transactions import Forbidden, InvalidInput

_PREFIX = "whsec_"
_SECRET_BYTES_MIN = 24
_SECRET_BYTES_MAX = 64
_TOLERANCE_S = 300.0
_WRITE = (
    f"write {_PREFIX} and the base64 of {_SECRET_BYTES_MIN} to {_SECRET_BYTES_MAX} random bytes, "
    f'such as `echo "{_PREFIX}$(openssl rand -base64 32)"` gives.'
)


def keys_of(secret: str | Sequence[str]) -> Sequence[bytes]:
    """The keys of one secret, or of several: in one text separated by spaces, or one by one.

    Raises InvalidInput for a secret that is missing, malformed, too short or too long; it does not show it.
    """
    secrets = secret.split() if isinstance(secret, str) else list(secret)
    if not secrets:
        raise InvalidInput(f"The webhook has no secret to sign with: {_WRITE}")
    return [_key(each, "secret" if n == 1 else f"secret no. {n}") for n, each in enumerate(secrets, 1)]


def _key(secret: str, name: str) -> bytes:
    try:
        if not secret.startswith(_PREFIX):
            raise ValueError
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except (ValueError, binascii.Error):
        raise InvalidInput(f"The {name} of the webhook is none: {_WRITE}") from None
    if not _SECRET_BYTES_MIN <= len(key) <= _SECRET_BYTES_MAX:
        raise InvalidInput(f"The {name} of the webhook has {len(key)} bytes: {_WRITE}")
    return key


def sign(keys: Sequence[bytes], *, webhook_id: str, timestamp: int, body: bytes) -> str:
    """The value of `webhook-signature`: one signature for each key, separated by spaces."""
    content = f"{webhook_id}.{timestamp}.".encode() + body
    return " ".join(f"v1,{base64.b64encode(hmac.digest(key, content, 'sha256')).decode()}" for key in keys)


def verify_webhook(
    headers: Mapping[str, str], body: bytes, secret: str | Sequence[str], *, tolerance_s: float = _TOLERANCE_S
) -> str:
    """For whoever receives a webhook: the `webhook-id`, the same however often it comes; take each id once.

    body: the bytes as they came. Raises Forbidden when no signature is by one of the secrets, or its time is further
    than `tolerance_s` from now.
    """
    keys = keys_of(secret)
    given = {name.lower(): value for name, value in headers.items()}
    webhook_id, at, signatures = (given.get(f"webhook-{name}", "") for name in ("id", "timestamp", "signature"))
    if not webhook_id or "." in webhook_id or not re.fullmatch(r"\d{1,12}", at):
        raise Forbidden("The webhook has no id or time: refuse it with 401.")
    if abs(time.time() - int(at)) > tolerance_s:
        raise Forbidden(f"The webhook is over {tolerance_s:g} s old, or from the future: check both clocks.")
    ours = sign(keys, webhook_id=webhook_id, timestamp=int(at), body=body).split()
    theirs = signatures.split()
    if not any(hmac.compare_digest(mine.encode(), other.encode()) for mine in ours for other in theirs):
        raise Forbidden("The webhook is signed with none of the secrets: check that both sides have the same.")
    return webhook_id


def webhook_id_of(entry_id: str) -> str:
    """The id of an entry's webhook: the same at every attempt, without a full stop."""
    return f"msg_{hashlib.sha256(entry_id.encode()).hexdigest()[:40]}"
