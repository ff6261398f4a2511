"""The script's smoothed cousin: participants' rates are shrunk to their contacts' before pairs' are to theirs."""

import numpy as np

from haystream_service.study.models.base import Build, Floats, Options
from haystream_service.study.models.participant_rate import PARTICIPANT_RATE, ParticipantRate
from haystream_service.study.network import Network


class NeighbourRate(ParticipantRate):
    """r_u = (k_p s_u + y_u) / (k_p + n_u), s_u the mean over u's contacts of their `participant-rate`."""

    def __init__(self, network: Network, options: Options) -> None:
        super().__init__(network, options)
        self._degree = network.collection.graph.degree

    def rates(self) -> Floats:
        """The participants' rates, twice smoothed, shape (participants,)."""
        rate, people = super().rates(), len(self._degree)
        around = np.bincount(self._tail, rate[self._head], people) + np.bincount(
            self._head, rate[self._tail], people
        )
        return self._smoothed(around / self._degree)


NEIGHBOUR_RATE = Build(NeighbourRate, PARTICIPANT_RATE.defaults)
