"""Views in the replicated state: topics that store nothing (docs/typed.md, "Views")."""
