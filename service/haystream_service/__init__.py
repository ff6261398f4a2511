"""haystream's shell: wire format, stores, the Faust worker, metrics and the command line."""
