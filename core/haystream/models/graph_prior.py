"""The prior of the participants' variables, dense, as the paper prints it (section 5.2.2)."""

import numpy as np
from scipy import sparse

from haystream.collection.graph import Graph
from haystream.errors import Code, Rejected
from haystream.events import Covariance, Prior
from haystream.memory.arrays import Floats


def dense_covariance(graph: Graph, covariance: Covariance) -> Floats:
    """An explicit Σ in the graph's numbering, shape (m, m)."""
    place = {name: i for i, name in enumerate(covariance.participants)}
    missing = [name for name in graph.participants if name not in place]
    if missing:
        raise Rejected(Code.UNSUPPORTED, f"prior.covariance does not name participant {missing[0]!r}")
    order = [place[name] for name in graph.participants]
    return np.asarray(covariance.rows, dtype=np.float64)[np.ix_(order, order)]


def dense_precision(graph: Graph, correlation: float) -> Floats:
    """Q as a dense matrix, shape (m, m), as the paper prints it."""
    m, tail, head = len(graph), graph.tail, graph.head
    off = -correlation / np.maximum(graph.degree[tail], graph.degree[head])
    upper = sparse.coo_array((off, (tail, head)), shape=(m, m)).toarray()
    return np.eye(m) + upper + upper.T


def prior_means(graph: Graph, prior: Prior, begin: int = 0) -> Floats:
    """E[Z] of participants begin … end: the common mean, or the participant's own."""
    means = np.full(len(graph) - begin, prior.mean)
    for name, mean in prior.participants.items():
        index = graph.participant(name)
        if index is not None and begin <= index < len(graph):
            means[index - begin] = mean
    return means
