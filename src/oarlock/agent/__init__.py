"""The agent: it hosts the tasks of one machine. Standard library only; travels into pods."""
