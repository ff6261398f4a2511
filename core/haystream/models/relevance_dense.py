"""Third and fourth moments of relevances by sequential Bayes linear joints (section 4.1.1), for Lemma 3.

Dense, for graphs of up to a few hundred edges of interest.
"""

from itertools import product

import numpy as np

from haystream.memory.arrays import Flags, Floats, Longs

ROWS_AT_ONCE = 20_000


class Joints:
    """The prior moments of the paper's model (`models.base.Moments`), from those of pairs.

    `ends`: (edges, 2). `first`: E[P | z] = a/(a + b) for z = 00, 01, 10, 11.
    """

    common_variance = 0.0

    def __init__(
        self,
        ends: Longs,
        first: Floats,
        *,
        mean: Floats,
        covariance: Floats,
        edge_mean: Floats,
        noise: Floats,
        bound: Flags,
    ) -> None:
        self._ends = ends
        self._first = first
        self.mean = mean
        self.covariance = covariance
        self.edge_mean = edge_mean
        self.noise = noise
        self.bound = bound

    def with_participants(self, edges: Longs) -> Floats:
        """Cov(Z_k, P_e) for everyone, shape (m, len(edges)): Z_k comes last in the joint."""
        m = len(self.mean)
        k, e = (a.ravel() for a in np.meshgrid(np.arange(m), edges, indexing="ij"))
        ends = self._ends[e]
        expected = np.empty(len(e))
        inside = (ends == k[:, None]).any(axis=1)
        for rows, order in ((inside, ends), (~inside, np.column_stack([ends, k]))):
            for part in chunks(np.flatnonzero(rows)):
                z, p = self._joint(order[part])
                z_k = values_of(k[part], order[part], z)
                expected[part] = (p * z_k * self._given(e[part], order[part], z)).sum(axis=1)
        return (expected - self.mean[k] * self.edge_mean[e]).reshape(m, len(edges))

    def between(self, first: Longs, second: Longs) -> Floats:
        """Cov(P_e, P_f), shape (len(first), len(second)), for each unordered pair of edges once."""
        e, f = (a.ravel() for a in np.meshgrid(first, second, indexing="ij"))
        pairs, place = np.unique(np.sort(np.column_stack([e, f]), axis=1), axis=0, return_inverse=True)
        e, f = pairs.T
        expected = np.empty(len(e))
        same = e == f
        expected[same] = self.edge_mean[e[same]] - self.noise[e[same]]  # E[P²] = E[P] - E[P(1-P)]
        meet = (self._ends[e][:, :, None] == self._ends[f][:, None, :]).any(axis=(1, 2)) & ~same
        for part in chunks(np.flatnonzero(meet)):
            expected[part] = self._product(e[part], f[part], self._orders_meeting(e[part], f[part]))
        for part in chunks(np.flatnonzero(~meet & ~same)):
            both = np.column_stack([self._ends[e[part]], self._ends[f[part]]])
            orders = [both[:, order] for order in ([0, 1, 2, 3], [0, 1, 3, 2], [2, 3, 0, 1], [2, 3, 1, 0])]
            expected[part] = self._product(e[part], f[part], orders)
        covariance = expected - self.edge_mean[e] * self.edge_mean[f]
        return np.asarray(covariance[place.ravel()]).reshape(len(first), len(second))

    def _orders_meeting(self, e: Longs, f: Longs) -> list[Longs]:
        """Two edges that share a participant: one's two ends, then the other's remaining end; both ways."""
        orders = []
        for one, other in ((self._ends[e], self._ends[f]), (self._ends[f], self._ends[e])):
            shared = (other[:, :1] == one).any(axis=1)
            orders.append(np.column_stack([one, np.where(shared, other[:, 1], other[:, 0])]))
        return orders

    def _product(self, e: Longs, f: Longs, orders: list[Longs]) -> Floats:
        """E[P_e P_f]. The order of the joint matters a little where it is not linear: the mean over orders."""
        total = np.zeros(len(e))
        for order in orders:
            z, p = self._joint(order)
            total += (p * self._given(e, order, z) * self._given(f, order, z)).sum(axis=1)
        return total / len(orders)

    def _given(self, edges: Longs, order: Longs, z: Floats) -> Floats:
        """E[P_e | z_u, z_v] = a/(a + b) in every state, shape (len(edges), 2^k)."""
        ends = self._ends[edges]
        state = 2 * values_of(ends[:, 0], order, z) + values_of(ends[:, 1], order, z)
        return np.asarray(self._first[state.astype(np.int64)])

    def _joint(self, order: Longs) -> tuple[Floats, Floats]:
        """The sequential Bayes linear joint of section 4.1.1, for rows of k different participants.

        P(z_j | z_1 … z_(j-1)) is the constrained adjusted expectation of Z_j. Returns the states, shape
        (2^k, k), and their probabilities, shape (rows, 2^k).
        """
        z = np.array(list(product((0.0, 1.0), repeat=order.shape[1])))
        p = np.ones((len(order), len(z)))
        for j in range(order.shape[1]):
            before, this = order[:, :j], order[:, j]
            expected = np.repeat(self.mean[this][:, None], len(z), axis=1)
            if j:
                variance = self.covariance[before[:, :, None], before[:, None, :]]
                gain = np.linalg.solve(variance, self.covariance[before, this[:, None]][:, :, None])
                expected += ((z[None, :, :j] - self.mean[before][:, None, :]) @ gain)[:, :, 0]
            expected = np.clip(expected, 0.0, 1.0)
            p *= np.where(z[:, j] == 1.0, expected, 1.0 - expected)
        return z, p


def values_of(who: Longs, order: Longs, z: Floats) -> Floats:
    """The value of participant who[i] in every state of the joint over order[i], shape (len(who), 2^k)."""
    return np.asarray(z.T[(order == who[:, None]).argmax(axis=1)])


def chunks(rows: Longs) -> list[Longs]:
    """Rows in parts that keep the joints of one part within some tens of megabytes."""
    return [rows[i : i + ROWS_AT_ONCE] for i in range(0, len(rows), ROWS_AT_ONCE)]
