"""HTTP for people and programs."""
