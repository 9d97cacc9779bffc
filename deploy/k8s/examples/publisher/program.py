"""A program that publishes: it appends to local files, and waits for nobody."""

import itertools
import os
import time

from samelog import Publisher

directory = os.environ["SESSIONS"]
with Publisher("ticks", session="example", directory=directory) as publisher:
    for number in itertools.count():
        publisher.append(b"tick %d" % number)
        time.sleep(0.1)
