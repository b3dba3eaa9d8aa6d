"""What an HTTP request meets before and after a dialect: connections, limits, routes, errors, the log.

`app.application` is the entry. Imports `dialects` and `page` of `serving`; imported by replicas.
"""
