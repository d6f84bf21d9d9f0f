package dev.edgedec.core

private const val COLDEST = 1e-3
private const val LARGEST_LOGIT_CHANGE = 1e6

/** Whether nothing is drawn. */
internal val Sampling.greedy: Boolean get() = temperature == 0.0

/** Whether a row depends on the earlier text by more than the model's own logits. */
internal val Sampling.penalised: Boolean
    get() = repetitionPenalty != 1.0 || presencePenalty != 0.0 || frequencyPenalty != 0.0

/** Whether some tokens may lose all their probability. */
internal val Sampling.filtered: Boolean get() = topK > 0 || topP < 1 || minP > 0

/**
 * Checks the values, as `edgedec/decoding/sampling/params.py` does; messages have the names of Python's options.
 *
 * @throws InputException if one is outside its range
 */
fun Sampling.check() {
    val limit = LARGEST_LOGIT_CHANGE
    val change = -limit..limit
    if (temperature != 0.0) check("temperature", temperature, COLDEST..limit, "0 (greedy) or 0.001 to 1e+06")
    if (topK < 0) throw InputException("top_k $topK: expected 1 or more, or 0 to keep all tokens")
    check("top_p", topP, Double.MIN_VALUE..1.0, "more than 0, at most 1")
    check("min_p", minP, 0.0..1.0, "0 to 1")
    check("repetition_penalty", repetitionPenalty, 1 / limit..limit, "more than 0, to 1e+06")
    check("presence_penalty", presencePenalty, change, "-1e+06 to 1e+06")
    check("frequency_penalty", frequencyPenalty, change, "-1e+06 to 1e+06")
    for ((token, bias) in logitBias) check("logit_bias of token $token", bias, change, "-1e+06 to 1e+06")
}

private fun check(name: String, value: Double, range: ClosedFloatingPointRange<Double>, expected: String) {
    // False for NaN.
    if (!(value >= range.start && value <= range.endInclusive)) throw InputException("$name $value: expected $expected")
}
