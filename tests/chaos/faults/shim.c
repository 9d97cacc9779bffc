/* Preloaded into a node: makes its disk fail, slow or kill it, and its wall clock wrong, as a control file says.

   Only files below CHAOS_PREFIX are touched. The control file is shared memory: an array of 64-bit numbers, in the
   order of shim.py. Every write, sync, rename, link, unlink and truncate is one numbered call: a crash point. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { OPERATIONS, ERROR, SKIP, TIMES, SHORT, SYNC_DELAY_US, CLOCK_OFFSET_NS, CRASH_IN, CRASH_WHEN, CALLS, FAULTS, FIELDS };
enum { WRITE = 1, SYNC = 2, NAMES = 4 }; /* names: also sizes */
enum { BEFORE, AFTER, HALFWAY };

static volatile int64_t *control;
static const char *prefix;
static size_t prefix_length;

__attribute__((constructor)) static void attach(void)
{
    const char *path = getenv("CHAOS_CONTROL");
    prefix = getenv("CHAOS_PREFIX");
    int file = path && prefix ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    prefix_length = strlen(prefix);
    void *memory = mmap(NULL, FIELDS * sizeof(int64_t), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (memory != MAP_FAILED)
        control = memory;
}

static int is_ours(int descriptor)
{
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t length = readlink(link, path, sizeof path - 1);
    return length >= (ssize_t)prefix_length && strncmp(path, prefix, prefix_length) == 0;
}

static void die(void) { kill(getpid(), SIGKILL); for (;;) pause(); }

/* Counts a call; how it is to crash, or -1. */
static int count(void)
{
    __atomic_add_fetch(&control[CALLS], 1, __ATOMIC_SEQ_CST);
    if (control[CRASH_IN] <= 0 || __atomic_sub_fetch(&control[CRASH_IN], 1, __ATOMIC_SEQ_CST) != 0)
        return -1;
    if (control[CRASH_WHEN] == BEFORE)
        die();
    return (int)control[CRASH_WHEN];
}

/* Whether this call is to fail. */
static int fails(int operation)
{
    if (!(control[OPERATIONS] & operation) || control[TIMES] == 0)
        return 0;
    if (control[SKIP] > 0 && __atomic_sub_fetch(&control[SKIP], 1, __ATOMIC_SEQ_CST) >= 0)
        return 0;
    if (control[TIMES] > 0)
        __atomic_sub_fetch(&control[TIMES], 1, __ATOMIC_SEQ_CST);
    __atomic_add_fetch(&control[FAULTS], 1, __ATOMIC_SEQ_CST);
    errno = (int)control[ERROR];
    return 1;
}

static void *find(void **place, const char *name)
{
    if (!*place)
        *place = dlsym(RTLD_NEXT, name);
    return *place;
}

#define REAL(name) ((__typeof__(&name))find(&real_##name, #name))

#define WRITER(name, arguments, names, length)                                                                       \
    static void *real_##name;                                                                                        \
    ssize_t name arguments                                                                                           \
    {                                                                                                                \
        if (!control || !is_ours(file))                                                                              \
            return REAL(name) names;                                                                                 \
        int crash = count();                                                                                         \
        int is_short = control[SHORT] && size > 1 && fails(WRITE);                                                   \
        if (!control[SHORT] && fails(WRITE))                                                                         \
            return -1;                                                                                               \
        if (is_short || crash == HALFWAY)                                                                            \
            size = length;                                                                                           \
        ssize_t done = REAL(name) names;                                                                             \
        if (crash >= 0)                                                                                              \
            die();                                                                                                   \
        return done;                                                                                                 \
    }

WRITER(write, (int file, const void *data, size_t size), (file, data, size), size / 2)
WRITER(pwrite, (int file, const void *data, size_t size, off_t at), (file, data, size, at), size / 2)
WRITER(pwrite64, (int file, const void *data, size_t size, off64_t at), (file, data, size, at), size / 2)
WRITER(writev, (int file, const struct iovec *data, int size), (file, data, size), 1)
WRITER(pwritev, (int file, const struct iovec *data, int size, off_t at), (file, data, size, at), 1)
WRITER(pwritev64, (int file, const struct iovec *data, int size, off64_t at), (file, data, size, at), 1)
WRITER(pwritev2, (int file, const struct iovec *data, int size, off_t at, int flags), (file, data, size, at, flags), 1)
WRITER(pwritev64v2, (int file, const struct iovec *data, int size, off64_t at, int flags), (file, data, size, at, flags), 1)

#define CALL(name, operation, condition, arguments, names)                                                           \
    static void *real_##name;                                                                                        \
    int name arguments                                                                                               \
    {                                                                                                                \
        if (!control || !(condition))                                                                                \
            return REAL(name) names;                                                                                 \
        int crash = count();                                                                                         \
        if (fails(operation))                                                                                        \
            return -1;                                                                                               \
        if (operation == SYNC && control[SYNC_DELAY_US])                                                             \
            usleep((useconds_t)control[SYNC_DELAY_US]);                                                              \
        int result = REAL(name) names;                                                                               \
        if (crash >= 0)                                                                                              \
            die();                                                                                                   \
        return result;                                                                                               \
    }

static int is_path_ours(const char *path) { return strncmp(path, prefix, prefix_length) == 0; }

CALL(fsync, SYNC, is_ours(file), (int file), (file))
CALL(fdatasync, SYNC, is_ours(file), (int file), (file))
CALL(syncfs, SYNC, is_ours(file), (int file), (file))
CALL(ftruncate, NAMES, is_ours(file), (int file, off_t size), (file, size))
CALL(ftruncate64, NAMES, is_ours(file), (int file, off64_t size), (file, size))
CALL(rename, NAMES, is_path_ours(to), (const char *from, const char *to), (from, to))
CALL(link, NAMES, is_path_ours(to), (const char *from, const char *to), (from, to))
CALL(unlink, NAMES, is_path_ours(path), (const char *path), (path))

static void *real_clock_gettime, *real_gettimeofday, *real_time;

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int result = REAL(clock_gettime)(clock, now);
    if (result == 0 && control && control[CLOCK_OFFSET_NS] && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) {
        int64_t wrong = now->tv_sec * INT64_C(1000000000) + now->tv_nsec + control[CLOCK_OFFSET_NS];
        now->tv_sec = wrong / 1000000000;
        now->tv_nsec = wrong % 1000000000;
    }
    return result;
}

int gettimeofday(struct timeval *now, void *zone)
{
    int result = REAL(gettimeofday)(now, zone);
    if (result == 0 && control)
        now->tv_sec += control[CLOCK_OFFSET_NS] / 1000000000;
    return result;
}

time_t time(time_t *place)
{
    time_t now = REAL(time)(NULL) + (control ? control[CLOCK_OFFSET_NS] / 1000000000 : 0);
    if (place)
        *place = now;
    return now;
}
