"""The log format: Kafka v2 record batches, and the directories and files that hold them.

Lowest layer of the package; imports nothing above it. Import what is needed from the modules
themselves.
"""
