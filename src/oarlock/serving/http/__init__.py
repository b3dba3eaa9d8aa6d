"""What an HTTP request passes before and after a dialect: connections, limits, routes, errors, the log.

`app.application` is the entry; replicas call it. Imports `models`; of `serving`: `dialects`, `page`,
`runtimes`, `served` and `settings`.
"""
