"""The engine `local`: the linear form on the sparse precision. A verdict costs what its neighbourhood costs."""

from haystream.engines.local.engine import LocalEngine

__all__ = ["LocalEngine"]
