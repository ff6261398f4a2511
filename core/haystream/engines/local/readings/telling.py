"""What readers are told of a posterior: what has moved, everything, or that something is as without data."""

import numpy as np

from haystream.engines.contract import Moved
from haystream.engines.local.inverse.precision import Precision
from haystream.engines.local.readings.announce import At, mark_edges_of, tell_edges, tell_people
from haystream.engines.local.readings.readings import LocalReadings
from haystream.engines.local.solves.budget import COMMON_SHIFT, LEAST_SCALE
from haystream.engines.local.state.columns import Columns
from haystream.memory.arrays import Floats, Ints, Switches, mark_all, members_of, take_all
from haystream.memory.overlay import entries, put_all, put_rows, rows
from haystream.models.base import Model, without_data


def told_at(columns: Columns, readings: LocalReadings) -> At:
    """The common quantities at which readings are compared with what readers were told."""
    rounded, reference = readings.rounded_common(), columns.state.people.reference.item()
    least = min(rounded.mean_shift, reference - COMMON_SHIFT)
    most = max(rounded.mean_shift, reference + COMMON_SHIFT)
    variance = max(rounded.variance, readings.known_common().variance)
    return At(least, most, variance, max(rounded.scale, LEAST_SCALE))


def tell_moved(columns: Columns, readings: LocalReadings) -> Moved:
    """What has moved by more than may wait: readers are told of it, and `readings.before` what they were told."""
    state, before, at = columns.state, readings.before, told_at(columns, readings)
    rooms = state.rooms
    tell_people(state, at)
    tell_edges(state, at.scale)
    for note, told, rows_before in (
        (before.note_people, rooms.people, rooms.rows_before),
        (before.note_edges, rooms.edges, rooms.covariances_before),
    ):
        which = members_of(told).copy()
        note(which, rows_before[: len(which)].copy())
    before.settled()
    return Moved(*(np.sort(take_all(marked)) for marked in (rooms.people, rooms.edges, state.news.stale)))


def tell_all(columns: Columns, readings: LocalReadings) -> Moved:
    """Everybody and every edge: readers are told of all as if it were new, at common quantities that are rounded
    anew."""
    told, everyone, edges = columns.state.news.told, columns.everyone(), columns.everywhere()
    readings.concentrations.settled()
    readings.take_step()
    put_rows(told.people, everyone, np.column_stack(readings.given_common(everyone)))
    put_all(told.covariance, edges, readings.covariances(edges))
    readings.before.settled(lost=True)
    return Moved(everyone, edges, edges)


def last_told(
    columns: Columns, readings: LocalReadings, participants: Ints, edges: Ints
) -> tuple[Floats, Floats, Floats, Floats]:
    """X, O and V of these participants and the covariances of these edges, as readers were told; of one who has not
    been told of yet, what there is to tell."""
    last = columns.state.news.told
    mean, reach, variance = rows(last.people, participants).T.copy()
    covariance = entries(last.covariance, edges)
    new, between = np.isinf(mean), np.isinf(covariance)
    if new.any():
        mean[new], reach[new], variance[new] = readings.given_common(participants[new])
    if between.any():
        covariance[between] = readings.covariances(edges[between])
    return mean, reach, variance, covariance


def leave(
    columns: Columns,
    readings: LocalReadings,
    precision: Precision,
    model: Model,
    participants: Ints,
    edges: Ints,
) -> tuple[Switches, Switches]:
    """Which of these are as without data, shape (k,) each: readers were told of them as such, from now on.

    Scores are made of what readers are told, so that they are made again where that is not what they were told.
    """
    state, at = columns.state, told_at(columns, readings)
    people, tolerance = state.people, state.tolerances.told

    def prior(which: Ints) -> tuple[Floats, Floats]:
        return people.prior_mean[which], precision.inverse_diagonal[which]

    values = without_data(model, *prior(participants))
    mean, reach, spread = readings.given_common(participants)
    off_mean, off_reach = mean - values[0], reach - values[1]
    off_spread = spread - values[2] + at.variance * (reach * reach - values[1] * values[1])
    off = [off_mean + at.least_shift * off_reach, off_mean + at.most_shift * off_reach]
    off += [at.scale * off_spread, at.scale * off_reach]
    left = np.abs(off).max(axis=0) <= tolerance  # as `tell_people` compares
    _tell_people_without_data(columns, readings, participants[left], np.column_stack(values)[left])

    D, other = (model.scale(*prior(ends[edges])) for ends in (state.edges.tail, state.edges.head))
    covariance = D * other * precision.inverse_edge[edges]
    same = at.scale * np.abs(readings.covariances(edges) - covariance) <= tolerance
    edges_left = same & (state.data.n[edges] == 0.0)
    _tell_edges_without_data(columns, readings, edges[edges_left], covariance[edges_left])
    return left, edges_left


def _tell_people_without_data(
    columns: Columns, readings: LocalReadings, participants: Ints, values: Floats
) -> None:
    news, before = columns.state.news, readings.before
    was = rows(news.told.people, participants)
    new = (was != values).any(axis=1)
    before.begin()
    before.note_people(participants[new], was[new])
    put_rows(news.told.people, participants[new], values[new])
    mark_edges_of(columns.state, participants[new], columns.edge_count)


def _tell_edges_without_data(columns: Columns, readings: LocalReadings, edges: Ints, covariance: Floats) -> None:
    news, before = columns.state.news, readings.before
    was = entries(news.told.covariance, edges)
    new = was != covariance
    before.begin()
    before.note_edges(edges[new], was[new])
    put_all(news.told.covariance, edges[new], covariance[new])
    mark_all(news.stale, edges[new])
