"""Text models: many requests write at the same time, a token each per step of the model.

A model gives scores (`generator.py`); what is drawn from them, and for whom, is decided here. Imports
`models`; of `serving`: `runtimes`.
"""
