"""Stages, as the guarantees have them."""

from tests.guarantees.conftest import outside, stage

__all__ = ["outside", "stage"]
