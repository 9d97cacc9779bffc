/* CRC-32C (Castagnoli; RFC 3720, appendix B.4), as fast as the processor allows.
 *
 * Call crc32c_init() once before anything else. The way is chosen there: SSE4.2 where the processor has it, the ARMv8
 * instructions where the compiler was told that they exist, else tables (slicing by 8).
 *
 * The instructions have a latency of three cycles and a throughput of one, so big buffers are read in three lanes at
 * once. Lanes are joined by "the same register after n more zero bytes", a linear map kept as four tables.
 */
#ifndef SAMELOG_CRC32C_H
#define SAMELOG_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define SAMELOG_CRC32C_SSE42 1
#include <nmmintrin.h>
#elif defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
#define SAMELOG_CRC32C_ARM 1
#include <arm_acle.h>
#endif

#define CRC32C_POLYNOMIAL 0x82f63b78u /* bits reversed */
#define CRC32C_LONG 4096              /* bytes of a lane; multiples of 8 */
#define CRC32C_SHORT 256

typedef uint32_t (*crc32c_function)(uint32_t state, const unsigned char *data, size_t size);

static uint32_t crc32c_table[8][256];
static uint32_t crc32c_shift_long[4][256];
static uint32_t crc32c_shift_short[4][256];
static crc32c_function crc32c_best;

static inline uint64_t crc32c_load(const unsigned char *data) {
    return (uint64_t)data[0] | (uint64_t)data[1] << 8 | (uint64_t)data[2] << 16 | (uint64_t)data[3] << 24 |
           (uint64_t)data[4] << 32 | (uint64_t)data[5] << 40 | (uint64_t)data[6] << 48 | (uint64_t)data[7] << 56;
}

static uint32_t crc32c_tables(uint32_t state, const unsigned char *data, size_t size) {
    for (; size >= 8; data += 8, size -= 8) {
        uint64_t word = crc32c_load(data) ^ state;
        state = crc32c_table[7][word & 255] ^ crc32c_table[6][word >> 8 & 255] ^
                crc32c_table[5][word >> 16 & 255] ^ crc32c_table[4][word >> 24 & 255] ^
                crc32c_table[3][word >> 32 & 255] ^ crc32c_table[2][word >> 40 & 255] ^
                crc32c_table[1][word >> 48 & 255] ^ crc32c_table[0][word >> 56];
    }
    for (; size > 0; data++, size--) state = state >> 8 ^ crc32c_table[0][(state ^ *data) & 255];
    return state;
}

#if defined(SAMELOG_CRC32C_SSE42) || defined(SAMELOG_CRC32C_ARM)

#ifdef SAMELOG_CRC32C_SSE42
#define CRC32C_TARGET __attribute__((target("sse4.2")))
#define CRC32C_STEP8(state, word) ((uint32_t)_mm_crc32_u64((state), (word)))
#define CRC32C_STEP1(state, byte) _mm_crc32_u8((state), (byte))
#else
#define CRC32C_TARGET
#define CRC32C_STEP8(state, word) __crc32cd((state), (word))
#define CRC32C_STEP1(state, byte) __crc32cb((state), (byte))
#endif

static inline uint32_t crc32c_shift(uint32_t table[4][256], uint32_t state) {
    return table[0][state & 255] ^ table[1][state >> 8 & 255] ^ table[2][state >> 16 & 255] ^ table[3][state >> 24];
}

CRC32C_TARGET static uint32_t crc32c_lanes(
    uint32_t state, const unsigned char *data, size_t lane, uint32_t shift[4][256]) {
    uint32_t second = 0, third = 0;
    for (const unsigned char *end = data + lane; data < end; data += 8) {
        state = CRC32C_STEP8(state, crc32c_load(data));
        second = CRC32C_STEP8(second, crc32c_load(data + lane));
        third = CRC32C_STEP8(third, crc32c_load(data + 2 * lane));
    }
    return crc32c_shift(shift, crc32c_shift(shift, state) ^ second) ^ third;
}

CRC32C_TARGET static uint32_t crc32c_hardware(uint32_t state, const unsigned char *data, size_t size) {
    for (; size >= 3 * CRC32C_LONG; data += 3 * CRC32C_LONG, size -= 3 * CRC32C_LONG)
        state = crc32c_lanes(state, data, CRC32C_LONG, crc32c_shift_long);
    for (; size >= 3 * CRC32C_SHORT; data += 3 * CRC32C_SHORT, size -= 3 * CRC32C_SHORT)
        state = crc32c_lanes(state, data, CRC32C_SHORT, crc32c_shift_short);
    for (; size >= 8; data += 8, size -= 8) state = CRC32C_STEP8(state, crc32c_load(data));
    for (; size > 0; data++, size--) state = CRC32C_STEP1(state, *data);
    return state;
}

#endif

/* The product of two polynomials modulo the CRC's, bits reversed: bit 31 is x^0. */
static uint32_t crc32c_multiply(uint32_t a, uint32_t b) {
    uint32_t product = 0;
    for (uint32_t bit = 1u << 31; bit != 0; bit >>= 1) {
        if (a & bit) product ^= b;
        b = b & 1 ? b >> 1 ^ CRC32C_POLYNOMIAL : b >> 1;
    }
    return product;
}

static void crc32c_fill_shift(uint32_t table[4][256], size_t zero_bytes) {
    uint32_t power = 1u << 31, square = 1u << 23; /* x^0 and x^8 */
    for (; zero_bytes > 0; zero_bytes >>= 1, square = crc32c_multiply(square, square))
        if (zero_bytes & 1) power = crc32c_multiply(power, square);
    for (uint32_t byte = 0; byte < 4; byte++)
        for (uint32_t value = 0; value < 256; value++)
            table[byte][value] = crc32c_multiply(power, value << 8 * byte);
}

static void crc32c_init(void) {
    for (uint32_t value = 0; value < 256; value++) {
        uint32_t state = value;
        for (int bit = 0; bit < 8; bit++) state = state & 1 ? state >> 1 ^ CRC32C_POLYNOMIAL : state >> 1;
        crc32c_table[0][value] = state;
    }
    for (int slice = 1; slice < 8; slice++)
        for (uint32_t value = 0; value < 256; value++) {
            uint32_t state = crc32c_table[slice - 1][value];
            crc32c_table[slice][value] = state >> 8 ^ crc32c_table[0][state & 255];
        }
    crc32c_fill_shift(crc32c_shift_long, CRC32C_LONG);
    crc32c_fill_shift(crc32c_shift_short, CRC32C_SHORT);
    crc32c_best = crc32c_tables;
#ifdef SAMELOG_CRC32C_SSE42
    __builtin_cpu_init();
    if (__builtin_cpu_supports("sse4.2")) crc32c_best = crc32c_hardware;
#elif defined(SAMELOG_CRC32C_ARM)
    crc32c_best = crc32c_hardware;
#endif
}

/* The CRC of `data`, continuing from `value`, the CRC of what came before (0: nothing). */
static inline uint32_t crc32c_update(uint32_t value, const unsigned char *data, size_t size) {
    return ~crc32c_best(~value, data, size);
}

#endif
