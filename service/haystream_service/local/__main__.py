"""`python -m haystream_service.local` gets a local Kafka ready to start, as `make` does for demo and tests."""

import sys

from haystream_service.local.jars import default_jars_dir, fetch_jars
from haystream_service.local.kafka import keep_classes
from haystream_service.local.process import ServerUnavailable

if __name__ == "__main__":
    if not default_jars_dir().exists():
        sys.stderr.write("fetching Apache Kafka (44 MB, once)\n")
    try:
        fetch_jars()
        keep_classes()
    except ServerUnavailable as problem:
        sys.stderr.write(f"{problem}\n")  # demo and tests say themselves what they do without
