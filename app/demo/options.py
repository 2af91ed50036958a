"""What the reader asked of the demo, checked before anything is started."""

import os
from dataclasses import dataclass
from pathlib import Path

from app.agents.monthly_report.csv_file import parse_month
from app.agents.monthly_report.request import FLIGHTS, ReportRequest, check, read_daily_file
from transactions import InvalidInput

KILLS_MAX = 500


@dataclass(frozen=True, slots=True)
class Options:
    """`kills`: how many random kills, drawn from `seed`; None: the three of the story. `edit`: after the approval."""

    month: str = "2013-08"
    data: Path | None = None
    json: Path | None = None
    hold: bool = False
    edit: bool = False
    kills: int | None = None
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Input:
    """The file to report on and its months, the asked one first: further runs take the next ones."""

    file: Path
    data: str | None
    months: tuple[str, ...]

    def request(self, number: int) -> dict[str, str]:
        """What run `number`, counted from 0, is started with."""
        month = {"month": self.months[number % len(self.months)]}
        return month | ({"data": self.data} if self.data else {})


def checked(options: Options) -> Input:
    """Raises InvalidInput with one sentence that says what to change."""
    if options.kills is not None and not 1 <= options.kills <= KILLS_MAX:
        raise InvalidInput(f"--kills {options.kills}: give a number from 1 to {KILLS_MAX}.")
    if options.kills is None and options.seed is not None:
        raise InvalidInput("--seed chooses random kills: say how many with --kills N.")
    if options.hold and options.kills is not None:
        raise InvalidInput("--hold waits at one point of the story and --kills N kills at random: give one of them.")
    if options.edit and options.kills is not None:
        raise InvalidInput("--edit is a part of the story and --kills N kills at random: give one of them.")
    if options.json is not None:
        check_writable(options.json)
    file = (options.data or FLIGHTS).absolute()
    try:
        month = str(parse_month(options.month))
        request = ReportRequest(month=month, data=str(file))
        check(request)
        months = sorted({f"{row.date:%Y-%m}" for row in read_daily_file(request).rows})
    except ValueError as error:  # BadMonth, BadFile, or a month that the file does not have
        raise InvalidInput(str(error)) from error
    asked = months.index(month)
    data = str(file) if options.data else None
    return Input(file=file, data=data, months=tuple(months[asked:] + months[:asked]))


def check_writable(file: Path) -> None:
    """Raises InvalidInput when `--json` names a file that cannot be written."""
    folder = file.absolute().parent
    place = file if file.exists() else folder
    if file.is_dir() or not folder.is_dir() or not os.access(place, os.W_OK):
        raise InvalidInput(f"--json {file} cannot be written: name a file in a folder that is there and yours.")
