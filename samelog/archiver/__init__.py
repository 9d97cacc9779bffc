"""Archiving: what goes and why (`policy`, `plan`: pure), what drives it on every node (`rounds`,
`truncation`, `history`), and copies outside the cluster (`copies/`).
"""
