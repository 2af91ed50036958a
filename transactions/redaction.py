"""Take secrets out of what others say, before it is shown, stored or logged."""

import re
from collections.abc import Sequence


class Redactor:
    """Takes secrets and signatures out of what others say, also where JSON or a URL has escaped some of it.

    What it gives is as long as what it was given, so nothing moves to where it would not have been kept.
    """

    def __init__(self, secrets: Sequence[str]) -> None:
        longest_first = sorted({secret for secret in secrets if secret}, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(_spellings, longest_first)) or "(?!)")

    def __call__(self, text: str) -> str:
        return self._pattern.sub(lambda match: "[secret]".ljust(len(match[0]), "*"), text)


def _spellings(secret: str) -> str:
    return "".join(
        char if char.isalnum() else rf"(?:\\?{re.escape(char)}|\\u(?i:{ord(char):04x})|%(?i:{ord(char):02x}))"
        for char in secret
    )
