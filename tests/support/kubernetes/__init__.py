"""What tests on a cluster share; nothing here is a test."""
