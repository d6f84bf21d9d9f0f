package dev.edgedec.core

/** How a text is drawn; `SamplingParams` in edgedec/decoding/params.py. */
data class Sampling(
    val temperature: Double = 0.0,
    val topK: Int = 0,
    val topP: Double = 1.0,
    val minP: Double = 0.0,
    val repetitionPenalty: Double = 1.0,
    val presencePenalty: Double = 0.0,
    val frequencyPenalty: Double = 0.0,
    val logitBias: Map<Int, Double> = emptyMap(),
    /** Of all random choices; null draws one, which [Figures] reports. */
    val seed: Long? = null,
) {
    /** Whether nothing is drawn. */
    internal val greedy: Boolean get() = temperature == 0.0

    /** Whether a row depends on the earlier text by more than the model's own logits. */
    internal val penalised: Boolean get() = repetitionPenalty != 1.0 || presencePenalty != 0.0 || frequencyPenalty != 0.0

    /** Whether some tokens may lose all their probability. */
    internal val filtered: Boolean get() = topK > 0 || topP < 1 || minP > 0

    /**
     * Checks the values; messages have the names of Python's options.
     *
     * @throws InputException if one is outside its range
     */
    fun check() {
        if (!greedy) check("temperature", temperature, 1e-3..LARGEST, "0 (greedy) or 0.001 to 1e+06")
        if (topK < 0) throw InputException("top_k $topK: expected 1 or more, or 0 to keep all tokens")
        check("top_p", topP, Double.MIN_VALUE..1.0, "more than 0, at most 1")
        check("min_p", minP, 0.0..1.0, "0 to 1")
        check("repetition_penalty", repetitionPenalty, 1 / LARGEST..LARGEST, "more than 0, to 1e+06")
        val changes = mapOf("presence_penalty" to presencePenalty, "frequency_penalty" to frequencyPenalty) +
            logitBias.mapKeys { "logit_bias of token ${it.key}" }
        for ((name, change) in changes) check(name, change, -LARGEST..LARGEST, "-1e+06 to 1e+06")
    }

    private fun check(name: String, value: Double, range: ClosedFloatingPointRange<Double>, expected: String) {
        if (value !in range) throw InputException("$name $value: expected $expected") // NaN is in no range
    }

    private companion object {
        const val LARGEST = 1e6
    }
}
