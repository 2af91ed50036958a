"""What a monthly report is started with, and the check that it can succeed before a run is started."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from app.agents.monthly_report.csv_file import DailyFile, parse_daily_figures, parse_month, read_content

DATA = Path(__file__).parent / "data"
FLIGHTS = DATA / "ny_flights_2013_daily.csv"
WEATHER = DATA / "ny_weather_2013_daily.csv"


class ReportRequest(BaseModel):
    """`month` is `YYYY-MM`. `data`: a CSV of daily figures on the worker's machine, else the bundled one.

    `notes`: a folder of Markdown notes to look for explanations in. `weather` likewise is a daily CSV.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    month: str = Field(max_length=7)
    data: str | None = Field(default=None, max_length=4096)
    weather: str | None = Field(default=None, max_length=4096)
    notes: str | None = Field(default=None, max_length=4096)

    @property
    def data_path(self) -> Path:
        return Path(self.data) if self.data else FLIGHTS

    @property
    def weather_path(self) -> Path | None:
        """The bundled weather belongs to the bundled flights only."""
        if self.weather:
            return Path(self.weather)
        return None if self.data else WEATHER

    @property
    def notes_path(self) -> Path | None:
        return Path(self.notes) if self.notes else None


def read_daily_file(request: ReportRequest) -> DailyFile:
    """The request's file, parsed. Raises BadFile."""
    path = request.data_path
    return parse_daily_figures(path.name, read_content(path))


def check(request: ReportRequest) -> None:
    """Raises ValueError (BadMonth, BadFile) with one sentence when the report cannot be made."""
    month = parse_month(request.month)
    months = _months(request)
    if str(month) not in months:
        raise ValueError(f"{request.data_path.name} has no data for {month}: choose one of {', '.join(months)}.")


def _months(request: ReportRequest) -> list[str]:
    """The months that the file has rows of. The bundled file is known to be good, so it is not parsed for this."""
    if request.data is None:
        return sorted({line[:7] for line in FLIGHTS.read_text(encoding="utf-8").splitlines()[1:]})
    return sorted({f"{row.date:%Y-%m}" for row in read_daily_file(request).rows})


def prompt(request: ReportRequest) -> str:
    """The task, in the words the model gets."""
    return (
        f"Analyse {request.month}, find what explains it, prepare a report, publish it after a manager approves, "
        "and tell the team. Take every figure from the tools, none from memory. Ask for the publication and for "
        "telling the team in the same response, in that order."
    )
