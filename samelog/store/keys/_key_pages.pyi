def look_up(
    descriptor: int,
    root: int,
    layout: tuple[int, int, int],
    keys: list[bytes],
    waits: bool,
    patience: int,
) -> list[int]: ...
