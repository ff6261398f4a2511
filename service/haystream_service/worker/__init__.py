"""The worker: decode, fold, persist, publish. `app` is the Faust shell, everything else runs without Kafka."""
