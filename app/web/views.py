"""What more than one route answers with."""

from pydantic import BaseModel


class Started(BaseModel):
    """A run that goes on, and its state."""

    run_id: str
    state: str
