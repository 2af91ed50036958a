"""The same small agent and the same kills on other frameworks. See README.md beside this file."""
