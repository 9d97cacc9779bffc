"""The replicas of data groups that a member has, beside its replica of group 0 (docs/groups.md)."""
