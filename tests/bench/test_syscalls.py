"""What is counted in the output of strace."""

from __future__ import annotations

from bench.syscalls import parse

OUTPUT = """\
11 read(38<TCP:[127.0.0.1:1->127.0.0.1:2]>, ""..., 262144) = 1124
11 pread64(39</d/sessions/p/t-0/log.0.0>, ""..., 1070, 6420) = 1000
11 epoll_pwait(3<anon_inode:[eventpoll]>,  <unfinished ...>
12 read(25<pipe:[4]>,  <unfinished ...>
11 <... epoll_pwait resumed>[...], 1024, 6, NULL, 8) = 1
12 <... read resumed>""..., 16) = 16
12 fdatasync(18</d/raft/wal.1> <unfinished ...>
11 read(40</d/merged/t-0/0.log>, ""..., 10) = -1 EAGAIN (Resource temporarily unavailable)
12 <... fdatasync resumed>) = 0
11 getpid() = 11
11 read(40</d/merged/t-0/0.log>, ""..., 10) = 7
11 --- SIGINT {si_signo=SIGINT} ---
"""


def test_a_call_that_another_thread_interrupts_counts_once() -> None:
    found = parse(OUTPUT)
    assert found.calls == {
        "read": 4,
        "pread64": 1,
        "epoll_pwait": 1,
        "fdatasync": 1,
        "getpid": 1,
    }


def test_bytes_of_files_are_told_from_those_of_sockets_and_pipes() -> None:
    found = parse(OUTPUT)
    assert found.read.total() == 1124 + 1000 + 16 + 7
    assert found.from_files == 1000 + 7
