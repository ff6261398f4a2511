"""The engine `reference`: the paper's lemmas as printed, dense. The specification that `local` is held to."""

from haystream.engines.reference.engine import ReferenceEngine

__all__ = ["ReferenceEngine"]
