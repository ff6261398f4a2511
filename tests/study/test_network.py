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
    topics = read_topics(table, ["topic"])["topic"]
    assert list(topics) == ["1", "2", "3", "4", "5"]
    assert len({id(network.collection) for network in topics.values()}) == 1
    senders = [int(line.split(",")[2][1:]) for line in table.read_text().splitlines()[1:91]]
    for name, network in topics.items():
        assert network.relevant.tolist() == [sender - 2 == int(name) for sender in senders]


def test_a_column_of_yes_and_no_is_one_query(tmp_path):
    path = tmp_path / "mails.csv"
    cells = ["1,True,7,0", "0,,8,0", ",FALSE,7,1", "1,true,,1"]
    rows = [f"m{number},a,b,{cell}" for number, cell in enumerate(cells)]
    path.write_text("\n".join(["item_id,sender,recipients,bug,hr,topic,relevant", *rows]) + "\n")
    queries = read_topics(path, ["bug", "hr", "topic", "relevant"])
    found = {name: network.relevant.astype(int).tolist() for of in queries.values() for name, network in of.items()}
    assert found == {
        "bug": [1, 0, 0, 1],
        "hr": [1, 0, 0, 1],
        "topic=7": [1, 0, 1, 0],
        "topic=8": [0, 1, 0, 0],
        "relevant": [0, 0, 1, 1],
    }
    assert list(queries) == ["bug", "hr", "topic", "relevant"]
    assert len({id(network.collection) for of in queries.values() for network in of.values()}) == 1


@pytest.mark.parametrize(
    ("content", "column", "said"),
    [
        ("item_id,sender,recipients\nm,a,b\n", "topic", "no column topic"),
        ("item_id,sender,recipients,topic\nm,a,b,\nn,a,b,-1\n", "topic", "names no topic"),
        ("item_id,sender,recipients,topic\nm,a,b,0\nn,a,b,no\n", "topic", "names no topic in its column topic"),
        ("item_id,sender,recipients,topic\n", "topic", "no item to search"),
        ("item_id,sender,recipients\nm,a,b\n", None, "needs a column relevant"),
        ("item_id,sender,recipients,relevant\nm,a,b;c,1\n", None, "no item to search"),
    ],
)
def test_a_table_that_cannot_be_searched_is_said_so(tmp_path, content, column, said):
    path = tmp_path / "mails.csv"
    path.write_text(content)
    with pytest.raises(UserError, match=said):
        read_topics(path, [column]) if column else read_network(path, two_party=True)
