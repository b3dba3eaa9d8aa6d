"""What `oarlock predict` is made of: examples from what the user gives, a server that answers, the printing.

Imports the engines and `serving_session`.
"""
