package dev.edgedec.core

/** BLAKE2b (RFC 7693) without a key: digests of eight bytes, of messages that fit in one block. */
internal object Blake2b {
    private const val BLOCK_BYTES = 128
    private const val ROUNDS = 12

    // Digest of eight bytes, no key, one leaf.
    private const val PARAMETERS = 0x01010008L

    private val START = longArrayOf(
        0x6a09e667f3bcc908uL.toLong(), 0xbb67ae8584caa73buL.toLong(), 0x3c6ef372fe94f82buL.toLong(),
        0xa54ff53a5f1d36f1uL.toLong(), 0x510e527fade682d1uL.toLong(), 0x9b05688c2b3e6c1fuL.toLong(),
        0x1f83d9abfb41bd6buL.toLong(), 0x5be0cd19137e2179uL.toLong(),
    )

    // The order of the message's words in each round, as hexadecimal digits.
    private val ORDERS = arrayOf(
        "0123456789abcdef", "ea489fd61c02b753", "b8c052fdae367194", "7931dcbe265a40f8", "905724afe1bc683d",
        "2c6a0b834d75fe19", "c51fed4a0763928b", "db7ec13950f4862a", "6fe9b308c2d714a5", "a2847615fb9e3cd0",
    ).map { order -> IntArray(order.length) { Character.digit(order[it], 16) } }

    /** Returns the digest as a number, its first byte the lowest. */
    fun digest8(message: ByteArray): Long {
        require(message.size <= BLOCK_BYTES) { "expected at most $BLOCK_BYTES bytes, got ${message.size}" }
        val words = LongArray(16)
        for ((index, byte) in message.withIndex()) {
            words[index / 8] = words[index / 8] or ((byte.toLong() and 0xff) shl (8 * (index % 8)))
        }
        val state = START + START
        state[0] = state[0] xor PARAMETERS
        state[12] = state[12] xor message.size.toLong()
        state[14] = state[14].inv() // the last block
        for (round in 0 until ROUNDS) mixRound(state, words, ORDERS[round % ORDERS.size])
        return START[0] xor PARAMETERS xor state[0] xor state[8]
    }

    private fun mixRound(state: LongArray, words: LongArray, order: IntArray) {
        for (column in 0 until 4) {
            mix(state, column, column + 4, column + 8, column + 12, words[order[2 * column]], words[order[2 * column + 1]])
        }
        for (row in 0 until 4) {
            val (b, c, d) = Triple(4 + (row + 1) % 4, 8 + (row + 2) % 4, 12 + (row + 3) % 4)
            mix(state, row, b, c, d, words[order[8 + 2 * row]], words[order[9 + 2 * row]])
        }
    }

    private fun mix(state: LongArray, a: Int, b: Int, c: Int, d: Int, first: Long, second: Long) {
        state[a] += state[b] + first
        state[d] = java.lang.Long.rotateRight(state[d] xor state[a], 32)
        state[c] += state[d]
        state[b] = java.lang.Long.rotateRight(state[b] xor state[c], 24)
        state[a] += state[b] + second
        state[d] = java.lang.Long.rotateRight(state[d] xor state[a], 16)
        state[c] += state[d]
        state[b] = java.lang.Long.rotateRight(state[b] xor state[c], 63)
    }
}
