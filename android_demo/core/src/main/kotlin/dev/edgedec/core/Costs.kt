package dev.edgedec.core

// Shares by which a round corrects the speed of all passes, and the times of its own rows.
private const val SLOWDOWN_RATE = 0.1
private const val TIMES_RATE = 0.02

// A pass that took longer by more than this was disturbed by something else.
private const val DISTURBED = 1.5

/**
 * What a round costs in plain rounds, which add one token each.
 *
 * Passes of all widths become slower together, by heat and by a longer context; that is followed quickly. How widths
 * compare is corrected slowly.
 *
 * @param target times of the target's passes
 * @param draft of the draft model's; null without one
 */
class Costs(private val target: PassTimes, private val draft: PassTimes? = null) {
    private var slowdown = 1.0

    /** Returns what a round of [length] drafted tokens costs. */
    fun round(length: Int, usesModel: Boolean): Double = expected(length, usesModel) / target.of(1)

    /** Returns what it costs the draft model to prefill [tokens]. */
    fun prefill(tokens: Int): Double {
        val draft = draft ?: return 0.0
        return tokens * draft.of(WIDE) / WIDE / target.of(1)
    }

    /** Returns what a round has cost, and learns from it. */
    internal fun observe(round: Round, usesModel: Boolean): Double {
        val expected = expected(round.drafted, usesModel) * slowdown
        val spent = (round.targetNs + round.draftNs).toDouble().coerceAtMost(DISTURBED * expected)
        val cost = spent / (target.of(1) * slowdown)
        val rows = round.drafted + 1
        val ratio = ratio(round.targetNs, target.of(rows))
        if (usesModel && draft != null && round.drafted > 0) {
            draft.correct(1, 1 + TIMES_RATE * (ratio(round.draftNs, round.drafted * draft.of(1)) - 1))
        }
        target.correct(rows, 1 + TIMES_RATE * (ratio - 1))
        slowdown *= 1 + SLOWDOWN_RATE * (ratio - 1)
        return cost
    }

    private fun expected(length: Int, usesModel: Boolean): Double {
        val drafting = if (usesModel && draft != null) length * draft.of(1) else 0.0
        return target.of(length + 1) + drafting
    }

    private fun ratio(took: Long, expected: Double): Double =
        (took / (expected * slowdown)).coerceIn(1 / DISTURBED, DISTURBED)

    private companion object {
        // Rows of a measured pass that stands for prefilling.
        const val WIDE = 8
    }
}
