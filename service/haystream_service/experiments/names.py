"""Names that the command line offers, in a module that imports nothing heavy."""

from enum import StrEnum


class Experiment(StrEnum):
    """The sections of the paper that can be run, and what haystream says of itself."""

    LINE = "line"
    TANZANIA = "tanzania"
    CAVEMAN = "caveman"
    ENRON = "enron"
    CALIBRATION = "calibration"
