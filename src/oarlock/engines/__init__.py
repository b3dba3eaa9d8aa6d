"""Where tasks run: `local` is this machine."""
