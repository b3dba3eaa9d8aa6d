"""What programs import, and what travels into the pod beside them:
standard library and the one framework in use, nothing else."""
