# cython: language_level=3, embedsignature=True
"""The body of a thread that waits for the disk without ever holding the interpreter's lock.

Why: a sync in one of Python's own threads waits for the interpreter before and after the disk; with a busy event loop
that took milliseconds, where the disk took a tenth of one. Here requests come out of one pipe and answers go into
another, so the event loop only writes and reads a few bytes. disk_threads.py is the other end.

Invariant: every request that was read is answered, with the errno of exactly that call; end of file ends the thread.
"""

from libc.errno cimport EINTR, EINVAL, errno
from libc.stdint cimport int32_t, int64_t
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
    """
    int syncfs(int descriptor)

cdef struct Request:
    int64_t number
    int32_t operation
    int32_t descriptor

cdef struct Answer:
    int64_t number
    int64_t error
    int64_t nanoseconds


def serve(int requests, int answers):
    """Carry out requests (int64 number, int32 operation, int32 descriptor) until their pipe is closed.

    Operations: 0 fdatasync, 1 fsync, 2 syncfs. Each answer is (int64 number, int64 errno, int64 nanoseconds that
    the call took). Both are written and read whole, so several threads may share the same two pipes.
    """
    with nogil:
        _serve(requests, answers)


cdef void _serve(int requests, int answers) noexcept nogil:
    cdef Request request
    cdef Answer answer
    cdef ssize_t count
    cdef int64_t began
    while True:
        count = read(requests, &request, sizeof(request))
        if count < 0 and errno == EINTR:
            continue
        if count != sizeof(request):
            return
        began = _now()
        answer.number = request.number
        answer.error = errno if _carry_out(&request) != 0 else 0
        answer.nanoseconds = _now() - began
        while write(answers, &answer, sizeof(answer)) < 0:
            if errno != EINTR:
                return


cdef int64_t _now() noexcept nogil:
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t>now.tv_sec * 1000000000 + now.tv_nsec


cdef int _carry_out(Request *request) noexcept nogil:
    if request.operation == 0:
        return fdatasync(request.descriptor)
    if request.operation == 1:
        return fsync(request.descriptor)
    if request.operation == 2:
        return syncfs(request.descriptor)
    return _invalid()


cdef int _invalid() noexcept nogil:
    global errno
    errno = EINVAL
    return -1
