"""Plans what a query reads: offsets, starts and ends, limits, filters. No I/O."""
