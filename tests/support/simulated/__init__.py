"""Workers, their store and their transport in one event loop with a time and a chance of its own.

`loop` has the time, `servers` the broker and the store that all share, `process` a worker that can be frozen and
cut off between any two effects, `group` the consumer group, `story` what is produced, `schedule` one run of it all.
"""
