package dev.edgedec.core

import kotlin.math.abs

// Bounds the relative difference between float32 sums and exact ones, with room to spare.
private const val ROUNDING = 1e-5

/**
 * Returns the token of the largest score plus noise, of equal sums the lowest id; null if there is none because a
 * score is NaN or all are -inf.
 *
 * For a large vocabulary only the noise is made that can decide (`edgedec/decoding/sampling/exponential_clocks.py`): a
 * token wins by large noise, and those are listed, or with a score at most [LARGE_FROM] below the best sum so far.
 */
internal fun winner(scores: FloatArray, noise: Noise): Int? {
    val first = mostLikely(scores) ?: return null
    return if (scores.size <= SMALL_VOCABULARY) winnerOfAll(scores, noise) else winnerOfContenders(scores, noise, first)
}

/** Returns the token of the largest score, of equal ones the lowest id; null if a score is NaN or all are -inf. */
internal fun mostLikely(scores: FloatArray): Int? {
    var token = -1
    var most = Float.NEGATIVE_INFINITY
    for (id in scores.indices) {
        val score = scores[id]
        if (score > most) {
            most = score
            token = id
        } else if (score.isNaN()) {
            return null
        }
    }
    return token.takeIf { it >= 0 }
}

/** Finds the winner with every token's noise. */
internal fun winnerOfAll(scores: FloatArray, noise: Noise): Int {
    val all = noise.all()
    var token = 0
    var most = Float.NEGATIVE_INFINITY
    for (id in scores.indices) {
        val sum = scores[id] + all[id]
        if (sum > most) {
            most = sum
            token = id
        }
    }
    return token
}

/**
 * Finds the same winner with the noise of the tokens that can win.
 *
 * @param first the token of the largest score
 * @param reach how far below the best sum a score may win without large noise
 */
internal fun winnerOfContenders(scores: FloatArray, noise: Noise, first: Int, reach: Double = LARGE_FROM): Int {
    var token = first
    var most = scores[first] + noise.of(first)
    val largeIds = noise.largeIds
    val large = noise.large
    for (index in largeIds.indices) {
        val id = largeIds[index]
        val sum = scores[id] + large[index]
        if (sum > most || (sum == most && id < token)) {
            most = sum
            token = id
        }
    }
    var bar = leastContender(most, reach)
    for (id in scores.indices) {
        if (scores[id] < bar) continue // false for a bar that is NaN, below an infinite score
        val sum = scores[id] + noise.of(id)
        if (sum > most || (sum == most && id < token)) {
            most = sum
            token = id
            bar = leastContender(most, reach)
        }
    }
    return token
}

/** Returns the least score that may win against a sum without large noise. */
private fun leastContender(sum: Float, reach: Double): Double = sum - reach - ROUNDING * (abs(sum) + reach + 1)
