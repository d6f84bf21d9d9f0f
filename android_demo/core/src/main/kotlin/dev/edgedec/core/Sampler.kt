package dev.edgedec.core

import java.security.SecureRandom

/**
 * Draws the tokens of one text from the logits of target and draft; a port of `edgedec/decoding/sampling`.
 *
 * Order: logit bias, penalties, temperature, top-k, top-p, min-p, and the token of the largest score plus noise.
 * All sums are float32, so that a seed gives the tokens of the Python runtime.
 *
 * @property vocabSize columns of a row of logits, of target and draft alike
 * @throws InputException for a value out of range, an empty prompt, or a token id outside the vocabulary
 */
class Sampler internal constructor(
    val params: Sampling,
    val vocabSize: Int,
    prompt: IntArray,
    private val streams: Streams,
) {
    /** @param prompt the tokens before the text; the last one is the first root */
    constructor(params: Sampling, vocabSize: Int, prompt: IntArray) :
        this(params, vocabSize, prompt, Streams(params.seed ?: drawnSeed()))

    init {
        params.check()
        if (prompt.isEmpty()) throw InputException("the prompt is empty: expected at least one token")
        checkIds("prompt", prompt.asIterable())
        checkIds("logit_bias", params.logitBias.keys)
    }

    /** All tokens, prompt and text; the last one is the current root. */
    val history = Tokens(prompt)

    /** Seed of all random choices. */
    val seed: Long get() = streams.seed

    private val penalties =
        if (params.penalised || params.logitBias.isNotEmpty()) Penalties(params, vocabSize, prompt) else null
    private val inverseTemperature = if (params.greedy) 1f else (1 / params.temperature).toFloat()
    private val scores by lazy(LazyThreadSafetyMode.NONE) { FloatArray(vocabSize) }

    /** Adds these tokens to the text. */
    fun push(tokens: IntArray) {
        history.add(tokens)
        penalties?.push(tokens)
    }

    /**
     * Returns the token that plain decoding emits after a row of a pass.
     *
     * @param path the drafted tokens between the text and the row; the token drawn is the next one
     * @throws EdgedecException if the logits are NaN or all -inf
     */
    fun draw(pass: Pass, row: Int, path: IntArray, purpose: Purpose = Purpose.TARGET): Int {
        if (params.greedy && penalties == null) return pass.best(row)
        pass.logits(row, scores)
        return draw(path, purpose)
    }

    /** Likewise from logits, which stay as they are. */
    fun draw(logits: FloatArray, path: IntArray = IntArray(0), purpose: Purpose = Purpose.TARGET): Int {
        logits.copyInto(scores)
        return draw(path, purpose)
    }

    private fun draw(path: IntArray, purpose: Purpose): Int {
        penalties?.apply(scores, path)
        if (params.greedy) return mostLikely(scores) ?: throw noNumbers(purpose)
        for (id in scores.indices) scores[id] *= inverseTemperature
        if (params.filtered) {
            mostLikely(scores) ?: throw noNumbers(purpose) // a filter would hide a NaN
            filter(scores, params)
        }
        val noise = streams.noise(history.size + path.size, vocabSize, purpose)
        return winner(scores, noise) ?: throw noNumbers(purpose)
    }

    private fun checkIds(what: String, ids: Iterable<Int>) {
        val outside = ids.firstOrNull { it !in 0 until vocabSize } ?: return
        throw InputException("$what: token $outside: expected 0 to ${vocabSize - 1}")
    }

    private fun noNumbers(purpose: Purpose) = noNumbers(if (purpose == Purpose.DRAFT) "draft" else "target")

    private companion object {
        fun drawnSeed(): Long = SecureRandom().nextInt().toLong() and 0xffffffffL
    }
}

/** Returns the error for logits that cannot be drawn from; [model] is `target` or `draft`. */
internal fun noNumbers(model: String) = EdgedecException(
    "the $model's logits are NaN or -inf: its file is damaged or its numbers overflow, download or export it again",
)
