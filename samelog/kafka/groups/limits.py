"""Bounds of groups that no configuration changes; those it does are GroupLimits."""

from __future__ import annotations

GROUP_ID_MAX = 1024
NEW_MEMBER_TIMEOUT_S = 300.0
"""How long a member that waits for its first generation is kept (Kafka's NewMemberJoinTimeoutMs)"""
