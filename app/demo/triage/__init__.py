"""The demo of the second agent: three kinds of systems, each killed right after it has done what it was asked."""
