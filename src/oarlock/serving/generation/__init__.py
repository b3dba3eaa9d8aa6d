"""Text models: many requests write at the same time, one token each per step of the model.

A model returns scores (`generator.py`); this package draws the tokens and assigns them to requests. Imports
`models`; of `serving`: `runtimes`.
"""
