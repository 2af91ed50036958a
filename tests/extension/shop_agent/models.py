"""The shop's own tables, as its own SQLAlchemy models."""

from sqlalchemy import ForeignKey, MetaData
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

metadata = MetaData()


class Base(DeclarativeBase):
    metadata = metadata


class Order(Base):
    __tablename__ = "shop_orders"

    id: Mapped[int] = mapped_column(primary_key=True)
    customer: Mapped[str]
    run_id: Mapped[str]
    lines: Mapped[list["Line"]] = relationship(back_populates="order")


class Line(Base):
    __tablename__ = "shop_lines"

    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[int] = mapped_column(ForeignKey("shop_orders.id"))
    item: Mapped[str]
    quantity: Mapped[int]
    order: Mapped[Order] = relationship(back_populates="lines")
