"""The world outside: a warehouse that keeps its reservations in a file, and knows no idempotency keys."""

import json
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel


class Reservation(BaseModel):
    number: int
    reference: str
    order_id: int


@dataclass(frozen=True, slots=True)
class Warehouse:
    """Each `reserve` is one more line; `find` looks one up by its reference."""

    file: Path

    def reserve(self, reference: str, order_id: int) -> Reservation:
        reservation = Reservation(number=len(self._lines()) + 1, reference=reference, order_id=order_id)
        with self.file.open("a", encoding="utf-8") as file:
            file.write(reservation.model_dump_json() + "\n")
        return reservation

    def find(self, reference: str) -> Reservation | None:
        found = (Reservation.model_validate(json.loads(line)) for line in self._lines())
        return next((reservation for reservation in found if reservation.reference == reference), None)

    def _lines(self) -> list[str]:
        return self.file.read_text(encoding="utf-8").splitlines() if self.file.exists() else []
