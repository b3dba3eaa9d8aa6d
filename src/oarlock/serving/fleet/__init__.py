"""What the supervisor is made of: the replicas it forks, the versions it chooses, what it says.

Imports `settings` and `counters` of `serving`, and `models`. No framework.
"""
