package dev.edgedec.core

/** Purpose of a random number; different purposes are independent streams. */
enum class Purpose { TARGET, DRAFT, ACCEPT, RECOVER }

/**
 * All random numbers of one text, keyed by seed, absolute position, purpose and token, never by call order.
 *
 * A port of `edgedec/decoding/randomness.py`.
 *
 * @param seed equal seeds give equal numbers on every machine
 * @param coupled whether the draft draws with the target's own noise
 */
open class Streams(val seed: Long, val coupled: Boolean = true) {
    private val kept = object : LinkedHashMap<Place, Noise>() {
        override fun removeEldestEntry(eldest: MutableMap.MutableEntry<Place, Noise>?): Boolean = size > KEPT_POSITIONS
    }

    /**
     * Returns the noise of a position's tokens.
     *
     * It is kept for the last positions, since draft and target ask for the same; [index] tells several draws at
     * one position apart.
     */
    fun noise(position: Int, vocabSize: Int, purpose: Purpose, index: Long = 0): Noise {
        val stream = if (coupled && purpose == Purpose.DRAFT) Purpose.TARGET else purpose
        return kept.getOrPut(Place(position, vocabSize, stream, index)) { Noise(key(position, stream, index), vocabSize) }
    }

    /** Returns a number between 0 and 1, both excluded. */
    fun uniform(position: Int, purpose: Purpose, index: Long = 0): Double =
        ((key(position, purpose, index) ushr UNUSED_BITS) + 0.5) * UNIFORM_STEP

    internal open fun key(position: Int, purpose: Purpose, index: Long): Long =
        Blake2b.digest8("$seed/$position/${purpose.ordinal}/$index".toByteArray(Charsets.US_ASCII))

    private data class Place(val position: Int, val vocabSize: Int, val purpose: Purpose, val index: Long)

    private companion object {
        const val KEPT_POSITIONS = 32
    }
}
