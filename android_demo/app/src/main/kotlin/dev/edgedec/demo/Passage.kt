package dev.edgedec.demo

import dev.edgedec.core.Emission

/** Neighbouring characters that were all drafted, or all decoded plainly. */
data class Piece(val text: String, val drafted: Boolean)

/** A text as far as it has been decoded. */
data class Passage(val pieces: List<Piece> = emptyList(), val tokens: Int = 0, val draftedTokens: Int = 0) {
    val text: String get() = pieces.joinToString("") { it.text }

    /** Returns the text with [emissions] at its end. */
    operator fun plus(emissions: List<Emission>): Passage {
        if (emissions.isEmpty()) return this
        val grown = pieces.toMutableList()
        for (emission in emissions) {
            if (emission.text.isEmpty()) continue
            val last = grown.lastOrNull()
            if (last != null && last.drafted == emission.drafted) {
                grown[grown.lastIndex] = last.copy(text = last.text + emission.text)
            } else {
                grown += Piece(emission.text, emission.drafted)
            }
        }
        return Passage(grown, tokens + emissions.size, draftedTokens + emissions.count { it.drafted })
    }
}
