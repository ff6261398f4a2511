"""Tables become networks."""

import numpy as np
import pytest

from haystream_service.errors import UserError
from haystream_service.study.network import read_network, read_topics


def test_a_table_is_a_network(table):
    network = read_network(table)
    assert len(network.relevant) == 90
    assert network.skipped == {"too_few_participants": 2}
    rows = [line.split(",") for line in table.read_text().splitlines()[1:91]]
    assert network.collection.item_ids == [row[0] for row in rows]
    assert network.relevant.tolist() == [row[4] == "1" for row in rows]
    assert len(network.edges_of(0)) == 2
    assert network.items_on.sum() == pytest.approx(90)

    amount, found = np.zeros(network.edges), np.zeros(network.edges)
    for item in range(90):
        edges = list(network.edges_of(item))
        amount[edges] += 1 / len(edges)
        found[edges] += network.relevant[item] / len(edges)
    assert network.rates == pytest.approx(found / amount)


def test_items_between_more_than_two_can_be_left_out(table):
    network = read_network(table, two_party=True)
    assert len(network.relevant) == 81
    assert network.item_set.tolist() == [network.edges_of(item)[0] for item in range(81)]


def test_every_topic_is_a_query_over_the_same_items(table):
    topics = read_topics(table, "topic")
    assert list(topics) == ["1", "2", "3", "4", "5"]
    assert len({id(network.collection) for network in topics.values()}) == 1
    senders = [int(line.split(",")[2][1:]) for line in table.read_text().splitlines()[1:91]]
    for name, network in topics.items():
        assert network.relevant.tolist() == [sender - 2 == int(name) for sender in senders]


@pytest.mark.parametrize(
    ("content", "column", "said"),
    [
        ("item_id,sender,recipients\nm,a,b\n", "topic", "no column topic"),
        ("item_id,sender,recipients,topic\nm,a,b,\nn,a,b,-1\n", "topic", "names no topic"),
        ("item_id,sender,recipients,topic\n", "topic", "no item to search"),
        ("item_id,sender,recipients\nm,a,b\n", None, "needs a column relevant"),
        ("item_id,sender,recipients,relevant\nm,a,b;c,1\n", None, "no item to search"),
    ],
)
def test_a_table_that_cannot_be_searched_is_said_so(tmp_path, content, column, said):
    path = tmp_path / "mails.csv"
    path.write_text(content)
    with pytest.raises(UserError, match=said):
        read_topics(path, column) if column else read_network(path, two_party=True)
