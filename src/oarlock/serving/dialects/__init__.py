"""How requests and answers are written: TensorFlow Serving REST, Open Inference Protocol v2, OpenAI.

A dialect turns a body into arrays that fit the manifest, asks a `Served`, and writes what comes back. It
knows nothing of sockets. Imports `models`; of `serving`: `generation`, `runtimes` and `served`.
"""
