"""`surefoot artifacts list|get|diff|sweep`."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from app.acting import Acting
from app.acting.artifacts import SWEPT_AFTER_S
from app.cli.session import ask, fail
from transactions import ArtifactRef, NotFound

group = typer.Typer(no_args_is_help=True, help="What runs saved: list, read, compare; remove what was left behind.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="the artifact's name")]


@group.command("list")
def list_artifacts(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="only versions of this one")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1000)] = 100,
) -> None:
    """Versions, the newest first."""
    rows = ask(lambda who: who.artifacts(name, limit=limit))
    for row in rows:
        at = row["created_at"].strftime("%Y-%m-%d %H:%M:%S %Z")
        print(f"{row['name']}  version {row['version']}  {row['size_bytes']} bytes  {row['media_type']}")
        print(f"  sha256 {row['sha256']}, saved at {at} by run {row['run_id']}")
    if not rows:
        print("no artifacts" if name is None else f"no artifact {name!r}")


@group.command("get")
def get(
    name: Name,
    version: Annotated[int | None, typer.Option(min=1, help="which version; default: the last")] = None,
    out: Annotated[Path | None, typer.Option(help="a file to write; default: standard output")] = None,
) -> None:
    """The bytes of a version, verified against their hash."""

    async def read(who: Acting) -> tuple[ArtifactRef, bytes]:
        wanted = version
        if wanted is None:
            versions = [row["version"] for row in await who.artifacts(name, limit=1000)]
            if not versions:
                raise NotFound(f"No artifact {name!r}: see `surefoot artifacts list`.")
            wanted = max(versions)
        return await who.open_artifact(name, wanted)

    ref, content = ask(read)
    if out is None:
        sys.stdout.buffer.write(content)
        return
    try:
        out.write_bytes(content)
    except OSError as error:
        fail(f"{out} cannot be written ({error.strerror}): choose another file (--out).")
    print(f"{out}: {ref.name} version {ref.version}, {ref.size_bytes} bytes, sha256 {ref.sha256}")


@group.command("diff")
def diff(
    name: Name,
    old: Annotated[int, typer.Argument(min=1, metavar="OLD", help="a version")],
    new: Annotated[int, typer.Argument(min=1, metavar="NEW", help="another")],
) -> None:
    """What is different between two versions."""
    found = ask(lambda who: who.artifact_difference(name, old, new))
    if found.same:
        print("the same bytes")
    elif found.diff is not None:
        print(found.diff)
        if found.cut:
            print("... and more: download both (`surefoot artifacts get`)")
    else:
        for ref in (found.old, found.new):
            print(f"version {ref.version}: {ref.size_bytes} bytes, {ref.media_type}, sha256 {ref.sha256}")
        print(found.why)


@group.command("sweep")
def sweep(
    older_than: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="only what was written so long ago")
    ] = SWEPT_AFTER_S,
) -> None:
    """Remove from the stores outside what was written and never referenced. Workers do it by themselves."""
    done = ask(lambda who: who.sweep_artifacts(older_than_s=older_than))
    for swept in done:
        print(f"{swept.store}: removed {swept.staged} staged and {swept.orphans} unknown objects")
    if not done:
        print("nothing to sweep: artifacts are in Postgres")
