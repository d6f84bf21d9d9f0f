package dev.edgedec.core

/** Decides which drafted tokens the target keeps. */
internal fun interface AcceptanceRule {
    /** Returns the accepted tokens of [draft] and one more, from [pass] over the root and the draft. */
    fun accept(draft: IntArray, pass: Pass, sampler: Sampler): IntArray
}

/**
 * Draws what plain decoding would draw, and continues while the draft contains it.
 *
 * The draft draws with the same noise, so that both often draw the same token (drafter-invariant speculative decoding,
 * 2408.07978); greedy decoding is the case without noise. Whatever is drafted, the text is plain decoding's, provided
 * that logits do not depend on how many tokens a pass computes.
 */
internal object GumbelCoupling : AcceptanceRule {
    override fun accept(draft: IntArray, pass: Pass, sampler: Sampler): IntArray {
        val tokens = IntArray(draft.size + 1)
        for (row in tokens.indices) {
            tokens[row] = sampler.draw(pass, row, draft.copyOf(row))
            if (row == draft.size || tokens[row] != draft[row]) return tokens.copyOf(row + 1)
        }
        return tokens
    }
}
