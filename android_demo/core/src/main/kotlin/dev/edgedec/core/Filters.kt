package dev.edgedec.core

import java.util.PriorityQueue
import kotlin.math.exp
import kotlin.math.ln

/**
 * Sets the scores of the tokens that top-k, top-p and min-p drop to -inf; a port of
 * `edgedec/decoding/sampling/filters.py`.
 *
 * Each filter takes what the filters before it have left; of equal tokens the lower ids are kept.
 *
 * @param scores logits over temperature, none of them NaN
 */
internal fun filter(scores: FloatArray, params: Sampling) {
    var left = scores.size
    if (params.topK in 1 until scores.size) {
        keepLargest(scores, params.topK)
        left = params.topK
    }
    if (params.topP < 1) keepNucleus(scores, params.topP, left)
    if (params.minP > 0) keepFrom(scores, scores.best() + ln(params.minP).toFloat())
}

private fun FloatArray.best(): Float = fold(Float.NEGATIVE_INFINITY) { most, score -> if (score > most) score else most }

private fun keepLargest(scores: FloatArray, count: Int) {
    val largest = PriorityQueue<Float>(count)
    var least = Float.NEGATIVE_INFINITY
    for (score in scores) {
        if (largest.size == count) {
            if (score <= least) continue
            largest.poll()
        }
        largest.add(score)
        if (largest.size == count) least = largest.element()
    }
    if (least > Float.NEGATIVE_INFINITY) keepDownTo(scores, scores, least, count)
}

/**
 * Keeps the smallest set of most likely tokens that holds [topP].
 *
 * numpy's float32 `exp` and sum may differ from these in the last bit, so that one token at the edge is in the one
 * set and not in the other; only a text that draws this very token differs then.
 *
 * @param left how many tokens the filters before have left
 */
private fun keepNucleus(scores: FloatArray, topP: Double, left: Int) {
    val best = scores.best()
    val weights = FloatArray(scores.size) { exp((scores[it] - best).toDouble()).toFloat() }
    val total = weights.fold(0.0) { sum, weight -> sum + weight }
    // All tokens below this together hold less than 1 - topP. Few tokens of a language model's row remain to be
    // sorted; the factor keeps rounding on the safe side.
    val negligible = (0.999 * (1 - topP) * total / left).toFloat()
    val ordered = FloatArray(weights.size)
    var size = 0
    for (weight in weights) if (weight >= negligible) ordered[size++] = weight
    if (size == 0) return scores.fill(Float.NEGATIVE_INFINITY) // an infinite score makes all weights NaN or 0
    ordered.sort(0, size)
    var needed = 0
    var reached = 0.0
    do reached += ordered[size - ++needed] while (needed < size && reached < topP * total)
    keepDownTo(scores, weights, ordered[size - needed], needed)
}

private fun keepFrom(scores: FloatArray, least: Float) {
    for (id in scores.indices) if (scores[id] < least) scores[id] = Float.NEGATIVE_INFINITY
}

/** Keeps the [count] tokens of largest values, given the smallest of these; of equal ones the lower ids. */
private fun keepDownTo(scores: FloatArray, values: FloatArray, least: Float, count: Int) {
    var equal = count - values.count { it > least }
    for (id in scores.indices) {
        val value = values[id]
        val kept = value > least || (value == least && equal-- > 0)
        if (!kept) scores[id] = Float.NEGATIVE_INFINITY
    }
}
