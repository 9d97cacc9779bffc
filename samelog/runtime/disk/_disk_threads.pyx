# cython: language_level=3, embedsignature=True
"""The body of a thread that waits for the disk without ever holding the interpreter's lock.

Why: a sync in one of Python's own threads waits for the interpreter before and after the disk; with a busy event loop
that took milliseconds, where the disk took a tenth of one. Requests come out of one pipe and answers go into
another, so the event loop only writes and reads a few bytes. The calls of one round are one write, and the thread that
ends last answers all of them with one write: the event loop wakes once. disk/threads.py is the other end.

Invariant: every request that was read is answered, with the errno of exactly that call; end of file ends the thread.
"""

from libc.errno cimport EINTR, EINVAL, errno
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

cdef extern from "<unistd.h>" nogil:
    ssize_t read(int descriptor, void *buffer, size_t count)
    ssize_t write(int descriptor, const void *buffer, size_t count)
    int fsync(int descriptor)
    int fdatasync(int descriptor)

cdef extern from * nogil:
    """
    #include <unistd.h>
    #ifdef __linux__
    extern int syncfs(int descriptor);
    #else
    #define fdatasync fsync
    static int syncfs(int descriptor) { (void)descriptor; sync(); return 0; }
    #endif
    static int one_less(int *count) { return __atomic_sub_fetch(count, 1, __ATOMIC_ACQ_REL); }
    """
    int syncfs(int descriptor)
    int one_less(int *count)

cdef enum:
    MOST = 64  # calls of a round: their answers fit into an atomic write

cdef struct Answer:
    int64_t number
    int64_t error
    int64_t nanoseconds

cdef struct SyncRound:
    int left
    int count
    Answer answers[MOST]

cdef struct Request:
    SyncRound *round
    int32_t index
    int32_t operation
    int64_t descriptor


def submit(int requests, calls):
    """Have threads make the calls of a round, (int number, int operation, int descriptor) each, at most 64.

    Operations: 0 fdatasync, 1 fsync, 2 syncfs. Raises OSError; none of the calls is made then.
    """
    cdef Request requested[MOST]
    cdef SyncRound *made
    cdef int index = 0, error = 0
    cdef size_t size
    if not 0 < len(calls) <= MOST:
        raise ValueError("a round has 1 to 64 calls")
    made = <SyncRound *>malloc(sizeof(SyncRound))
    if made is NULL:
        raise MemoryError
    made.left = made.count = <int>len(calls)
    try:
        for number, operation, descriptor in calls:
            made.answers[index].number = number
            requested[index].round = made
            requested[index].index = index
            requested[index].operation = operation
            requested[index].descriptor = descriptor
            index += 1
    except BaseException:
        free(made)
        raise
    size = index * sizeof(Request)
    with nogil:
        while write(requests, requested, size) < 0:
            error = errno
            if error != EINTR:
                break
            error = 0
    if error:
        free(made)
        raise OSError(error, "cannot submit a sync")


def serve(int requests, int answers):
    """Carry out what is submitted until the pipe is closed. Each answer is (int64 number, int64 errno, int64
    nanoseconds that the call took). Requests and the answers of a round are written and read whole, so several threads
    may share the same two pipes.
    """
    with nogil:
        _serve(requests, answers)


cdef void _serve(int requests, int answers) noexcept nogil:
    cdef Request request
    cdef Answer *answer
    cdef ssize_t count
    cdef int64_t began
    while True:
        count = read(requests, &request, sizeof(request))
        if count < 0 and errno == EINTR:
            continue
        if count != sizeof(request):
            return
        began = _now()
        answer = &request.round.answers[request.index]
        answer.error = errno if _carry_out(&request) != 0 else 0
        answer.nanoseconds = _now() - began
        if one_less(&request.round.left) == 0 and not _answered(answers, request.round):
            return


cdef bint _answered(int answers, SyncRound *made) noexcept nogil:
    cdef ssize_t count = -1
    while count < 0:
        count = write(answers, made.answers, made.count * sizeof(Answer))
        if count < 0 and errno != EINTR:
            break
    free(made)
    return count >= 0


cdef int64_t _now() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t>now.tv_sec * 1000000000 + now.tv_nsec


cdef int _carry_out(Request *request) noexcept nogil:
    if request.operation == 0:
        return fdatasync(<int>request.descriptor)
    if request.operation == 1:
        return fsync(<int>request.descriptor)
    if request.operation == 2:
        return syncfs(<int>request.descriptor)
    return _invalid()


cdef int _invalid() noexcept nogil:
    global errno
    errno = EINVAL
    return -1
