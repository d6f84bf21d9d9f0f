package dev.edgedec.core

/**
 * What happened in a round.
 *
 * @property accepted drafted tokens that the target drew as well
 * @property emitted tokens that the text grew by
 */
class Round(val drafted: Int, val accepted: Int, val emitted: Int, val draftNs: Long, val targetNs: Long)

/** Decides how many tokens to draft. The text does not depend on it. */
interface Lengths {
    /** Most drafted tokens of a round. */
    val most: Int

    /** Begins a text of at most [remaining] tokens. */
    fun begin(remaining: Int) {}

    /** Returns whether a drafter that has a next token to draft should do so, after [drafted] others. */
    fun goOn(source: DraftSource, drafted: Int): Boolean

    /** Returns whether it should prefill [tokens], without which it cannot draft. */
    fun catchUp(source: DraftSource, tokens: Int): Boolean = true

    /** Returns whether [source] should be asked before [other]. */
    fun prefers(source: DraftSource, other: DraftSource): Boolean = false

    fun observe(round: Round) {}
}

/**
 * The same length in every round; 0 is plain decoding.
 *
 * @throws InputException if it is negative
 */
class FixedLength(override val most: Int) : Lengths {
    init {
        if (most < 0) throw InputException("draft length $most: expected 0 or more")
    }

    override fun goOn(source: DraftSource, drafted: Int): Boolean = true
}

/** How often a drafter's tokens are accepted, by position in the draft, given that those before are. */
internal class AcceptanceByPosition(most: Int) {
    private val tried = DoubleArray(most)
    private val accepted = DoubleArray(most)

    /** What the chance of the position before still counts for. */
    private val trust = DoubleArray(most) { TRUST }

    /** Whether enough is known to compare drafters. */
    val known: Boolean get() = tried[0] >= KNOWN

    /** Returns the expected tokens of a round that drafts [length], with the target's own. */
    fun tokens(length: Int): Double {
        var chance = PRIOR
        var reach = 1.0
        var tokens = 1.0
        for (position in 0 until length) {
            chance = (accepted[position] + trust[position] * chance) / (tried[position] + trust[position])
            reach *= chance
            tokens += reach
        }
        return tokens
    }

    fun observe(drafted: Int, kept: Int) {
        for (position in 0 until minOf(drafted, kept + 1)) {
            tried[position] = KEPT * tried[position] + 1
            accepted[position] = KEPT * accepted[position] + (if (position < kept) 1 else 0)
            trust[position] *= KEPT
        }
    }

    private companion object {
        /** Chance of a first token about which nothing is known. */
        const val PRIOR = 0.6

        /** Observations that the position before counts for, at first. */
        const val TRUST = 2.0

        /** Share of the evidence that stays at each observation. */
        const val KEPT = 0.96
        const val KNOWN = 4.0
    }
}
