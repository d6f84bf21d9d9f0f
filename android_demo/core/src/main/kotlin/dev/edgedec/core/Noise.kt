package dev.edgedec.core

/** Random numbers have 52 bits. */
internal const val UNUSED_BITS = 12

/** 2^-52. */
internal const val UNIFORM_STEP = 1.0 / (1L shl 52)

/** Up to this vocabulary, making all noise is as fast as finding the tokens that can win. */
internal const val SMALL_VOCABULARY = 8192

// Splitmix64.
private val GOLDEN = 0x9E3779B97F4A7C15uL.toLong()
private val FIRST_FACTOR = 0xBF58476D1CE4E5B9uL.toLong()
private val SECOND_FACTOR = 0x94D049BB133111EBuL.toLong()

// A token's noise is among the large ones with this probability.
private const val LARGE = 1.0 / 256
private const val SMALL_STEP = UNIFORM_STEP * (1 - LARGE)
private const val LARGE_STEP = -UNIFORM_STEP * LARGE

/** Large noise is this or more, all other noise less. */
internal val LARGE_FROM = -StrictMath.log(-StrictMath.log1p(-LARGE))
private val STEPS_PER_LOG = 1 / StrictMath.log1p(-LARGE)

// The counters of the gaps, beyond those of any token.
private const val GAPS = 1L shl 40

/**
 * Standard Gumbel noise for every token at one position; a port of `edgedec/decoding/noise.py`, which says how it
 * is made and why.
 *
 * Logarithms are taken in float64 and rounded to float32, so that the values are those of numpy, bit for bit.
 * `StrictMath` gives the same on every virtual machine and on Android; `Math.log` may be an intrinsic.
 *
 * @param key of the position
 */
class Noise internal constructor(private val key: Long, private val vocabSize: Int) {
    /** The tokens whose noise is [LARGE_FROM] or more, ascending. */
    val largeIds: IntArray by lazy(LazyThreadSafetyMode.NONE) { findLarge() }

    /** The noise of [largeIds]. */
    val large: FloatArray by lazy(LazyThreadSafetyMode.NONE) {
        FloatArray(largeIds.size) { gumbel(StrictMath.log1p(uniform(largeIds[it].toLong(), LARGE_STEP))) }
    }

    private var all: FloatArray? = null

    /** Returns the noise of one token. */
    fun of(token: Int): Float {
        all?.let { return it[token] }
        val index = largeIds.binarySearch(token)
        return if (index >= 0) large[index] else small(token)
    }

    /** Returns the noise of every token; it is kept and must not be changed. */
    fun all(): FloatArray = all ?: FloatArray(vocabSize, ::small).also { noise ->
        for ((index, token) in largeIds.withIndex()) noise[token] = large[index]
        all = noise
    }

    private fun small(token: Int): Float = gumbel(StrictMath.log(uniform(token.toLong(), SMALL_STEP)))

    /** Each large one is a geometric step after the one before. */
    private fun findLarge(): IntArray {
        val found = Tokens()
        var token = -1L
        var gap = GAPS
        while (true) {
            token += (StrictMath.log(uniform(gap++, UNIFORM_STEP)) * STEPS_PER_LOG).toLong() + 1
            if (token >= vocabSize) return found.slice()
            found.add(token.toInt())
        }
    }

    /** Returns [step] times a whole number and a half: never 0, and as fine at the one end as at the other. */
    private fun uniform(counter: Long, step: Double): Double {
        var word = key + (counter + 1) * GOLDEN
        word = (word xor (word ushr 30)) * FIRST_FACTOR
        word = (word xor (word ushr 27)) * SECOND_FACTOR
        word = word xor (word ushr 31)
        return ((word ushr UNUSED_BITS) + 0.5) * step
    }

    private fun gumbel(log: Double): Float = (-StrictMath.log(-log)).toFloat()
}
