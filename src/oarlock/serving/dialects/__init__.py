"""How requests and answers are written: TensorFlow Serving REST, Open Inference Protocol v2, OpenAI.

A dialect turns a body into arrays that fit the manifest, calls a `Served`, and writes the result. It knows
nothing about sockets. Imports `models`; of `serving`: `generation`, `runtimes` and `served`.
"""
