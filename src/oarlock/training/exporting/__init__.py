"""`oarlock.export`: a trained model becomes a version in the model folder; a module for each framework.

The one framework of the model is imported inside functions. Travels into pods. Imports `models` and `run`; of
`training`: `task`.
"""
