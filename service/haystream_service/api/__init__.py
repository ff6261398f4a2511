"""`haystream api`: queries, items, claims, verdicts and rankings over HTTP, by replicas that keep nothing.

What is written is a fact on Kafka, in the wire's format; what is read comes from the store. From outside to inside:

| file | holds |
|---|---|
| `serve` | the composition root of a replica |
| `app` | the FastAPI application, made of what it is given |
| `edge` | what every request passes: sizes, origins, correlation ids, metrics, the last resort for a bug |
| `access`, `tokens`, `rates` | who may do what (a table), who that is, how often |
| `guards` | what a route asks for before it begins: the caller, and the query that the path names |
| `problems` | what can be wrong with a request, as RFC 9457 has it |
| `openapi` | the document that describes the routes, and a page of it |
| `messages` | what is sent and answered, as values that the client uses, too |
| `queries`, `claims`, `verdicts`, `items`, `rankings`, `beliefs`, `exports` | the routes |
| `desk` | what the routes work with: the store, the facts, the clock |
| `outbox` | how Kafka is told what happened to leases |
| `facts` | how facts get to Kafka, and are read from there once more |
| `graphs`, `priors`, `watching` | what requests share: a graph, the prior on it, a query's newest ranking |
| `on_demand` | `graphs` and all that computes, loaded when they are first needed |
"""
