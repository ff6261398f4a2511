"""Names that the command line offers, in a module that imports nothing heavy."""

from enum import StrEnum


class GraphName(StrEnum):
    """What the engine can be measured on."""

    PREFERENTIAL = "preferential"
    THREADS = "threads-math-sx"
    WEB = "web-notredame"
