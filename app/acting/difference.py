"""What is different between two versions of an artifact."""

import difflib
from dataclasses import dataclass
from itertools import islice

from transactions import ArtifactRef

# Of one version: what takes longer to compare than anybody waits is told by sizes and hashes.
_COMPARED_BYTES_MAX = 1024 * 1024
_COMPARED_LINES_MAX = 10_000
DIFF_LINES_MAX = 2_000


@dataclass(frozen=True, slots=True)
class Difference:
    """`diff`: a unified diff where both versions are text that can be compared, else None and `why` says why not.

    `cut`: it has more than DIFF_LINES_MAX lines, and the rest was left out.
    """

    old: ArtifactRef
    new: ArtifactRef
    same: bool
    diff: str | None
    cut: bool = False
    why: str | None = None


def between(before: ArtifactRef, was: bytes, after: ArtifactRef, now: bytes) -> Difference:
    """May take a while: call it in a thread."""
    if before.sha256 == after.sha256:
        return Difference(before, after, same=True, diff="" if _is_text(before) else None)
    texts = [_text(before, was), _text(after, now)]
    if any(text is None for text in texts):
        why = "not both are text that is short enough to compare: compare sizes and hashes, or download them"
        return Difference(before, after, same=False, diff=None, why=why)
    titles = f"{before.name} version {before.version}", f"{after.name} version {after.version}"
    old, new = ((text or "").splitlines() for text in texts)
    found = difflib.unified_diff(old, new, *titles, lineterm="")
    lines = list(islice(found, DIFF_LINES_MAX + 1))
    return Difference(
        before, after, same=False, diff="\n".join(lines[:DIFF_LINES_MAX]), cut=len(lines) > DIFF_LINES_MAX
    )


def _is_text(ref: ArtifactRef) -> bool:
    kind = ref.media_type.partition(";")[0].strip().lower()
    return kind.startswith("text/") or kind.endswith(("json", "xml", "yaml"))


def _text(ref: ArtifactRef, content: bytes) -> str | None:
    if not _is_text(ref) or len(content) > _COMPARED_BYTES_MAX or content.count(b"\n") > _COMPARED_LINES_MAX:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return None
