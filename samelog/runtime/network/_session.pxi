# TLS of one connection: a TLS object of Python's `ssl`, which makes the handshake and knows the peer, and whose
# records are then read and written by calling OpenSSL directly.
#
# Python hands out no pointer to what it has made, but OpenSSL tells whoever asks of every SSL that is made: `wrap` asks.
# What comes is read from where the socket has put it, what goes is written into the bytes object that is sent.

cdef extern from "_openssl.h" nogil:
    ctypedef struct Functions:
        int (*SSL_read_ex)(void *ssl, void *to, size_t size, size_t *count) noexcept nogil
        int (*SSL_write_ex)(void *ssl, const void *data, size_t size, size_t *count) noexcept nogil
        int (*SSL_pending)(const void *ssl) noexcept nogil
        int (*SSL_get_error)(const void *ssl, int outcome) noexcept nogil
        void (*SSL_set_bio)(void *ssl, void *incoming, void *outgoing) noexcept nogil
        int (*CRYPTO_get_ex_new_index)(int kind, long, void *, void *made, void *copied, void *freed) noexcept nogil
        void (*ERR_clear_error)() noexcept nogil
        unsigned long (*ERR_peek_last_error)() noexcept nogil
        const char *(*ERR_reason_error_string)(unsigned long error) noexcept nogil
        int (*BIO_get_new_index)() noexcept nogil
        void *(*BIO_meth_new)(int kind, const char *name) noexcept nogil
        int (*BIO_meth_set_read)(void *method, int (*read)(void *, char *, int) noexcept nogil) noexcept nogil
        int (*BIO_meth_set_write)(void *method, int (*write)(void *, const char *, int) noexcept nogil) noexcept nogil
        int (*BIO_meth_set_ctrl)(void *method, long (*control)(void *, int, long, void *) noexcept nogil) noexcept nogil
        void *(*BIO_new)(const void *method) noexcept nogil
        int (*BIO_up_ref)(void *bio) noexcept nogil
        int (*BIO_free)(void *bio) noexcept nogil
        void (*BIO_set_data)(void *bio, void *data) noexcept nogil
        void *(*BIO_get_data)(void *bio) noexcept nogil
        void (*BIO_set_init)(void *bio, int is_ready) noexcept nogil
        void (*BIO_set_flags)(void *bio, int flags) noexcept nogil
        void (*BIO_clear_flags)(void *bio, int flags) noexcept nogil
    Functions openssl
    int openssl_resolve(const char *path)
    void openssl_note(void *, void *, void *, int, long, void *)
    void *openssl_made
    enum:
        OPENSSL_WANT_READ
        OPENSSL_ZERO_RETURN
        OPENSSL_INDEX_SSL
        OPENSSL_SOURCE_SINK
        OPENSSL_FLUSH
        OPENSSL_RETRY_READ
        OPENSSL_RETRIES

cdef extern from "Python.h":
    PyObject *new_bytes "PyBytes_FromStringAndSize"(const char *data, Py_ssize_t size)
    int resize_bytes "_PyBytes_Resize"(PyObject **bytes, Py_ssize_t size)
    char *bytes_at "PyBytes_AS_STRING"(PyObject *bytes) nogil
    void PyErr_Clear()
    void Py_XDECREF(PyObject *)

cdef enum:
    RECORD_BYTES = 16384
    OVERHEAD_BYTES = 64  # of a record; of TLS 1.3 it is 22
    JOIN_BYTES = 8192    # payloads up to this size share a record with their header: one is cheaper than two
    UNLOCK_BYTES = 8192  # from here on others may run meanwhile

cdef struct Ends:
    # What the TLS object reads from, and writes to.
    const char *given
    size_t given_bytes
    PyObject *out
    Py_ssize_t out_bytes
    Py_ssize_t out_capacity

cdef void *bio_method = NULL


cdef int _read(void *bio, char *to, int size) noexcept nogil:
    cdef Ends *ends = <Ends *>openssl.BIO_get_data(bio)
    openssl.BIO_clear_flags(bio, OPENSSL_RETRIES)
    if ends == NULL or ends.given_bytes == 0:
        openssl.BIO_set_flags(bio, OPENSSL_RETRY_READ)
        return -1
    if <size_t>size > ends.given_bytes:
        size = <int>ends.given_bytes
    memcpy(to, ends.given, size)
    ends.given += size
    ends.given_bytes -= size
    return size


cdef int _write(void *bio, const char *data, int size) noexcept nogil:
    cdef Ends *ends = <Ends *>openssl.BIO_get_data(bio)
    openssl.BIO_clear_flags(bio, OPENSSL_RETRIES)
    if ends == NULL:
        return -1
    if ends.out_bytes + size > ends.out_capacity:
        with gil:
            if _reserve(ends, size) < 0:
                return -1
    memcpy(bytes_at(ends.out) + ends.out_bytes, data, size)
    ends.out_bytes += size
    return size


cdef long _control(void *bio, int command, long number, void *argument) noexcept nogil:
    return command == OPENSSL_FLUSH


cdef int _reserve(Ends *ends, Py_ssize_t size) noexcept:
    """Have room for so many more bytes in `out`. -1: there is no memory for them."""
    cdef Py_ssize_t wanted = ends.out_bytes + size
    if wanted <= ends.out_capacity:
        return 0
    wanted = max(wanted, 2 * ends.out_bytes)
    if ends.out == NULL:
        ends.out = new_bytes(NULL, wanted)
    else:
        resize_bytes(&ends.out, wanted)
    if ends.out == NULL:
        PyErr_Clear()
        ends.out_bytes = ends.out_capacity = 0
        return -1
    ends.out_capacity = wanted
    return 0


cdef int _decrypt(void *tls, const Ends *ends, char *to, size_t room, size_t *used) noexcept nogil:
    """Read records until all is read or there is no room left; 0, or what SSL_get_error says.

    A read that leaves room behind has emptied its TLS record: nothing of it is pending.
    """
    cdef size_t count
    openssl.ERR_clear_error()
    while used[0] < room and (ends.given_bytes or openssl.SSL_pending(tls)):
        if openssl.SSL_read_ex(tls, to + used[0], room - used[0], &count) != 1:
            return openssl.SSL_get_error(tls, 0)
        used[0] += count
    return 0


cdef int _encrypt(void *tls, const char *data, Py_ssize_t size) noexcept nogil:
    """Write records; 0: done."""
    cdef size_t count
    if size == 0:
        return 0
    openssl.ERR_clear_error()
    return 0 if openssl.SSL_write_ex(tls, data, size, &count) == 1 else -1


cdef _error():
    """What OpenSSL complains of, as Python's `ssl` would say it."""
    cdef const char *found = openssl.ERR_reason_error_string(openssl.ERR_peek_last_error())
    reason = "unknown" if found == NULL else found.decode()
    openssl.ERR_clear_error()
    error = ssl.SSLError(ssl.SSL_ERROR_SSL, f"[SSL] {reason}")
    error.reason = reason.upper().replace(" ", "_")
    return error


@cython.final
@cython.no_gc
cdef class Session:
    """One side of one TLS connection, without a socket. For an `ssl.SSLContext`, and only if `is_usable`."""

    cdef readonly object ssl_object
    cdef void *_tls
    cdef void *_bio
    cdef Ends _ends
    cdef bint _has_read

    def __cinit__(self, context, *, bint server_side):
        global openssl_made
        openssl_made = NULL
        self.ssl_object = context.wrap_bio(ssl.MemoryBIO(), ssl.MemoryBIO(), server_side=server_side)
        self._tls = openssl_made
        if self._tls == NULL or bio_method == NULL:
            raise RuntimeError("OpenSSL has told of no new TLS object")
        self._bio = openssl.BIO_new(bio_method)
        if self._bio == NULL:
            raise MemoryError
        openssl.BIO_set_data(self._bio, &self._ends)
        openssl.BIO_set_init(self._bio, 1)
        openssl.BIO_up_ref(self._bio)  # this object's, besides the TLS object's: either may go first
        openssl.SSL_set_bio(self._tls, self._bio, self._bio)

    def __dealloc__(self):
        if self._bio != NULL:
            openssl.BIO_set_data(self._bio, NULL)
            openssl.BIO_free(self._bio)
        Py_XDECREF(self._ends.out)

    @property
    def to_send(self) -> int:
        """How many bytes `take` would give."""
        return self._ends.out_bytes

    def feed(self, data) -> None:
        """What has come; it must stay where it is until `let_go`."""
        cdef Py_buffer view
        PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
        self._ends.given = <const char *>view.buf
        self._ends.given_bytes = view.len
        PyBuffer_Release(&view)

    def let_go(self) -> None:
        """The memory that was fed is used again from now on; what was not read of it is lost."""
        self._ends.given_bytes = 0

    def handshake(self) -> bool:
        """Go on with the handshake; True: done. Raises ssl.SSLError (its alert is to be sent)."""
        try:
            self.ssl_object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def read_into(self, ReceiveBuffer buffer not None) -> bool:
        """Decrypt all that was fed; False when the peer has ended its side. Raises ssl.SSLError."""
        cdef size_t used
        cdef int outcome = 0
        if not self._has_read and not self._read_first(buffer):
            return False
        while self._ends.given_bytes or openssl.SSL_pending(self._tls):
            buffer._want(self._ends.given_bytes)
            used = 0
            if self._ends.given_bytes < UNLOCK_BYTES:
                outcome = self._read(buffer, &used)
            else:
                with nogil:
                    outcome = self._read(buffer, &used)
            buffer.stop += used
            if outcome:
                break
        if outcome == 0 or outcome == OPENSSL_WANT_READ:
            return True
        if outcome == OPENSSL_ZERO_RETURN:
            return False
        raise _error()

    def write(self, bytes header not None, payload) -> None:
        """Encrypt; `payload` is free again on return. Raises ssl.SSLError."""
        cdef Py_buffer view
        cdef Py_ssize_t size = len(header)
        cdef const char *head = PyBytes_AS_STRING(header)
        PyObject_GetBuffer(payload, &view, PyBUF_SIMPLE)
        try:
            if _reserve(&self._ends, size + view.len + (view.len // RECORD_BYTES + 2) * OVERHEAD_BYTES) < 0:
                raise MemoryError
            if self._encrypt_both(head, size, <const char *>view.buf, view.len):
                raise _error()
        finally:
            PyBuffer_Release(&view)

    def take(self) -> bytes:
        """What is to be sent."""
        cdef PyObject *out = self._ends.out
        if self._ends.out_bytes == 0:
            return b""
        if self._ends.out_bytes < self._ends.out_capacity and resize_bytes(&out, self._ends.out_bytes) < 0:
            self._ends.out = NULL
        self._ends.out = NULL
        self._ends.out_bytes = self._ends.out_capacity = 0
        if out == NULL:
            raise MemoryError
        data = <bytes>out
        Py_XDECREF(out)
        return data

    def say_goodbye(self) -> None:
        """Tell the peer that this side sends no more."""
        try:
            self.ssl_object.unwrap()
        except ssl.SSLError:
            pass  # the peer's own goodbye is not waited for, and a broken session needs none

    cdef int _read(self, ReceiveBuffer buffer, size_t *used) noexcept nogil:
        return _decrypt(self._tls, &self._ends, buffer._bytes + buffer.stop, buffer._capacity - buffer.stop, used)

    cdef bint _read_first(self, ReceiveBuffer buffer) except -1:
        """By Python: what a peer complains of comes before its first byte, and `ssl` knows the names of complaints."""
        room = buffer.room(self._ends.given_bytes)
        try:
            count = self.ssl_object.read(len(room), room)
        except ssl.SSLWantReadError:
            return True
        except ssl.SSLZeroReturnError:
            return False
        buffer.stop += count
        self._has_read = count > 0
        return self._has_read

    cdef int _encrypt_both(self, const char *head, Py_ssize_t size, const char *data, Py_ssize_t length) except -2:
        cdef char joined[JOIN_BYTES + 64]
        cdef int outcome = 0
        if size <= 64 and length <= JOIN_BYTES:
            memcpy(joined, head, size)
            memcpy(joined + size, data, length)
            return _encrypt(self._tls, joined, size + length)
        with nogil:
            outcome = _encrypt(self._tls, head, size)
            if outcome == 0:
                outcome = _encrypt(self._tls, data, length)
        return outcome


def _prepare():
    """Find OpenSSL, and see whether it tells of what Python makes."""
    global bio_method, is_usable
    path = getattr(_ssl, "__file__", None)
    if path is None or openssl_resolve(os.fsencode(path)) < 0:
        return
    if openssl.CRYPTO_get_ex_new_index(OPENSSL_INDEX_SSL, 0, NULL, <void *>openssl_note, NULL, NULL) < 0:
        return
    method = openssl.BIO_meth_new(openssl.BIO_get_new_index() | OPENSSL_SOURCE_SINK, "samelog")
    if method == NULL:
        return
    openssl.BIO_meth_set_read(method, _read)
    openssl.BIO_meth_set_write(method, _write)
    openssl.BIO_meth_set_ctrl(method, _control)
    bio_method = method
    try:
        Session(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), server_side=False)
    except (RuntimeError, ssl.SSLError):
        return
    is_usable = True


is_usable = False
_prepare()
