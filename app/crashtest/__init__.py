"""A crash matrix: real workers killed and stopped at every point, driven to the end by new ones, and judged."""
