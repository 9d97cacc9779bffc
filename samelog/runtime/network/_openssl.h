/* The functions of OpenSSL that the compiled connection calls, looked up in the very library that Python's `ssl` uses.

   Why: no headers and no link against a second OpenSSL, which would be another one than made the TLS objects. These
   functions and numbers are the same in every OpenSSL from 1.1.1 on; where one is missing, none is used. */
#include <dlfcn.h>
#include <stddef.h>

#define OPENSSL_FUNCTIONS(F)                                                                                     \
    F(int, SSL_read_ex, (void *ssl, void *to, size_t size, size_t *count))                                       \
    F(int, SSL_write_ex, (void *ssl, const void *data, size_t size, size_t *count))                              \
    F(int, SSL_pending, (const void *ssl))                                                                       \
    F(int, SSL_get_error, (const void *ssl, int outcome))                                                        \
    F(void, SSL_set_bio, (void *ssl, void *incoming, void *outgoing))                                            \
    F(int, CRYPTO_get_ex_new_index, (int kind, long, void *, void *made, void *copied, void *freed))             \
    F(void, ERR_clear_error, (void))                                                                             \
    F(unsigned long, ERR_peek_last_error, (void))                                                                \
    F(const char *, ERR_reason_error_string, (unsigned long error))                                              \
    F(int, BIO_get_new_index, (void))                                                                            \
    F(void *, BIO_meth_new, (int kind, const char *name))                                                        \
    F(int, BIO_meth_set_read, (void *method, int (*read)(void *, char *, int)))                                  \
    F(int, BIO_meth_set_write, (void *method, int (*write)(void *, const char *, int)))                          \
    F(int, BIO_meth_set_ctrl, (void *method, long (*control)(void *, int, long, void *)))                        \
    F(void *, BIO_new, (const void *method))                                                                     \
    F(int, BIO_up_ref, (void *bio))                                                                              \
    F(int, BIO_free, (void *bio))                                                                                \
    F(void, BIO_set_data, (void *bio, void *data))                                                               \
    F(void *, BIO_get_data, (void *bio))                                                                         \
    F(void, BIO_set_init, (void *bio, int is_ready))                                                             \
    F(void, BIO_set_flags, (void *bio, int flags))                                                               \
    F(void, BIO_clear_flags, (void *bio, int flags))

#define DECLARE(result, name, arguments) result(*name) arguments;
#define RESOLVE(result, name, arguments) \
    if (!(openssl.name = (result(*) arguments)dlsym(library, #name))) return -1;

static struct { OPENSSL_FUNCTIONS(DECLARE) } openssl;

/* 0: every function was found in `path` or in a library that it depends on. */
static int openssl_resolve(const char *path)
{
    void *library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    if (!library) return -1;
    OPENSSL_FUNCTIONS(RESOLVE)
    return 0;
}

enum {
    OPENSSL_WANT_READ = 2,       /* SSL_ERROR_WANT_READ */
    OPENSSL_ZERO_RETURN = 6,     /* SSL_ERROR_ZERO_RETURN: the peer has said goodbye */
    OPENSSL_INDEX_SSL = 0,       /* CRYPTO_EX_INDEX_SSL */
    OPENSSL_SOURCE_SINK = 0x400, /* BIO_TYPE_SOURCE_SINK */
    OPENSSL_FLUSH = 11,          /* BIO_CTRL_FLUSH */
    OPENSSL_RETRY_READ = 0x9,    /* BIO_FLAGS_READ | BIO_FLAGS_SHOULD_RETRY */
    OPENSSL_RETRIES = 0xf,       /* all flags of this kind */
};

/* Called by OpenSSL for every SSL that is made, in the thread that makes it. */
static __thread void *openssl_made;

static void openssl_note(void *ssl, void *p, void *data, int index, long number, void *argument)
{
    (void)p, (void)data, (void)index, (void)number, (void)argument;
    openssl_made = ssl;
}
