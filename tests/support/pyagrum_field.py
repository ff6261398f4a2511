"""A second exact inference in the paper's Markov random field, by pyAgrum: some hundred times as slow as ours."""

import warnings
from typing import Any

import numpy as np

from haystream_service.study.models import mrf


def inferred(participants: int, pairs: np.ndarray, factors: np.ndarray) -> mrf.Marginals:
    """The marginals, with shapes as for `mrf.enumerated`."""
    gum = _pyagrum()
    field = gum.MarkovRandomField()
    for v in range(participants):
        field.add(gum.RangeVariable(str(v), "", 0, 1))
    for (u, v), factor in zip(pairs.tolist(), factors.tolist(), strict=True):
        # A tensor's first variable is the one that varies fastest.
        field.addFactor([str(v), str(u)]).fillWith(factor)
    inference = gum.ShaferShenoyMRFInference(field)
    for u, v in pairs.tolist():
        inference.addJointTarget({u, v})
    inference.makeInference()
    joint = np.empty((len(pairs), 4))
    for e, (u, v) in enumerate(pairs.tolist()):
        both = inference.jointPosterior({u, v})
        values = both.toarray()  # its axes are in the reverse of the order of its names
        joint[e] = (values.T if both.names[0] == str(u) else values).ravel()
    return mrf.Marginals(mrf.means_of(participants, pairs, joint), joint)


def _pyagrum() -> Any:
    with warnings.catch_warnings():
        # Its wrapper warns while it is loaded, and crashes the process where warnings are errors. The second
        # part is loaded when the first of its classes is made.
        warnings.simplefilter("ignore")
        import pyagrum

        pyagrum.MarkovRandomField()
    return pyagrum
