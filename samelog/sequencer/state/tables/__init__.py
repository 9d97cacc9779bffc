"""What a group knows of the partitions that it has, one table per kind of fact."""
