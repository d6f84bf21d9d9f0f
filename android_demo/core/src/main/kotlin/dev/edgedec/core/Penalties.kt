package dev.edgedec.core

/** Number of occurrences of each token. */
private class Occurrences(vocabSize: Int) {
    private val counts = IntArray(vocabSize)
    private val distinct = Tokens()

    fun add(tokens: IntArray) {
        for (token in tokens) if (counts[token]++ == 0) distinct.add(token)
    }

    /** Undoes `add(tokens)`; last added, first removed, so that a token that is gone is the last distinct one. */
    fun remove(tokens: IntArray) {
        for (index in tokens.indices.reversed()) {
            if (--counts[tokens[index]] == 0) distinct.cut(distinct.size - 1)
        }
    }

    inline fun forEach(action: (token: Int, count: Int) -> Unit) {
        for (index in 0 until distinct.size) action(distinct[index], counts[distinct[index]])
    }
}

/**
 * Logit bias and penalties of one text: bias first, penalties on the sum.
 *
 * All numbers are float32, and in the order of `edgedec/decoding/sampling/state.py`, so that rows are equal.
 */
internal class Penalties(params: Sampling, vocabSize: Int, prompt: IntArray) {
    private val bias = params.logitBias.mapValues { it.value.toFloat() }
    private val repetition = params.repetitionPenalty.toFloat()
    private val presence = params.presencePenalty.toFloat()
    private val frequency = params.frequencyPenalty.toFloat()
    private val active = params.penalised
    private val size = if (active) vocabSize else 0
    private val all = Occurrences(size)
    private val generated = Occurrences(size)

    init {
        if (active) all.add(prompt)
    }

    /** Adds these tokens to the generated text. */
    fun push(tokens: IntArray) {
        if (!active) return
        all.add(tokens)
        generated.add(tokens)
    }

    /** Changes a row in place, as if [path] were already generated. */
    fun apply(row: FloatArray, path: IntArray) {
        for ((token, added) in bias) row[token] += added
        if (!active) return
        push(path)
        if (repetition != 1f) {
            all.forEach { token, _ ->
                row[token] = if (row[token] > 0) row[token] / repetition else row[token] * repetition
            }
        }
        generated.forEach { token, count -> row[token] -= presence + frequency * count }
        all.remove(path)
        generated.remove(path)
    }
}
