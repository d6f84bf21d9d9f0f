package dev.edgedec.core

// Share by which a round corrects the speed of all passes.
private const val SLOWDOWN_RATE = 0.05

// A pass that took longer by more than this was disturbed by something else.
private const val DISTURBED = 1.3

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

    /** Whether it is not known well what a plain round takes. */
    val doubtful: Boolean get() = target.doubt(1) > DOUBTFUL

    /** Returns what a round of [length] drafted tokens costs; the less is known of it, the more. */
    fun round(length: Int, usesModel: Boolean): Double {
        if (length == 0) return 1.0
        val doubt = CAUTION * target.doubt(length + 1) * target.of(length + 1)
        return (expected(length, usesModel) + doubt) / plain
    }

    /** Returns what it costs the draft model to prefill [tokens]. */
    fun prefill(tokens: Int): Double {
        val draft = draft ?: return 0.0
        return tokens * draft.of(WIDE) / WIDE / plain
    }

    /**
     * Returns what a round has cost, and learns from it.
     *
     * @param caughtUp the time for drafting includes a prefill, which was paid for before
     */
    internal fun observe(round: Round, usesModel: Boolean, caughtUp: Boolean): Double {
        val expected = expected(round.drafted, usesModel) * slowdown
        val draftNs = if (caughtUp) slowdown * drafting(round.drafted, usesModel) else round.draftNs.toDouble()
        val cost = (round.targetNs + draftNs).coerceAtMost(DISTURBED * expected) / (plain * slowdown)
        val rows = round.drafted + 1
        val ratio = ratio(round.targetNs, target.of(rows))
        if (usesModel && draft != null && round.drafted > 0 && !caughtUp) {
            draft.correct(1, ratio(round.draftNs, drafting(round.drafted, usesModel)))
        }
        target.correct(rows, ratio)
        slowdown *= 1 + SLOWDOWN_RATE * (ratio - 1)
        return cost
    }

    /** Time of a plain round; the less is known of it, the less. */
    private val plain: Double get() = target.of(1) * (1 - CAUTION * target.doubt(1)).coerceAtLeast(0.5)

    private fun expected(length: Int, usesModel: Boolean): Double = target.of(length + 1) + drafting(length, usesModel)

    private fun drafting(length: Int, usesModel: Boolean): Double =
        if (usesModel && draft != null) length * draft.of(1) else 0.0

    private fun ratio(took: Long, expected: Double): Double =
        (took / (expected * slowdown)).coerceIn(1 / DISTURBED, DISTURBED)

    private companion object {
        /** Standard errors by which costs are overestimated, and one of a plain round that is too large. */
        const val CAUTION = 1.5
        const val DOUBTFUL = 0.04

        // Rows of a measured pass that stands for prefilling.
        const val WIDE = 8
    }
}
