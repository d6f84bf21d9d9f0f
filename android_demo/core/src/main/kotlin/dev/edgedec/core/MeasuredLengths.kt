package dev.edgedec.core

/**
 * Drafts as many tokens as give most tokens per time by measured costs and measured acceptance, none if that is best.
 *
 * A round may only lose what an allowance holds: a text begins with at most [FIRST] tokens' time, which grows by a share
 * of the text and by what drafts have gained, and pays for drafts that were wrong. So decoding is never slower than
 * plainly by more than these, whatever is drafted. A drafter that does not pay is tried again now and then, within the allowance.
 *
 * The draft model's prefill of a long prompt is paid by the allowance, by a drafter's known gain over the rest of the
 * text, or once for a drafter of which nothing is known.
 */
class MeasuredLengths internal constructor(private val costs: Costs, private val first: Double) : Lengths {
    constructor(costs: Costs) : this(costs, FIRST)

    private val drafters = HashMap<String, Drafting>()
    private var allowance = first
    private var remaining = 0
    private var rounds = 0
    private var plainRounds = 0
    private var nextPlain = 0
    private var planned = 0
    private var drafting: Drafting? = null

    override val most get() = MOST

    override fun begin(remaining: Int) {
        this.remaining = remaining
        allowance = minOf(allowance, first)
        drafters.values.forEach { it.catchingUp = false }
        reset()
    }

    override fun goOn(source: DraftSource, drafted: Int): Boolean {
        if (drafted == 0) {
            val one = drafting(source)
            drafting = one
            planned = length(one)
        }
        return drafted < planned
    }

    override fun catchUp(source: DraftSource, tokens: Int): Boolean {
        val one = drafting(source)
        if (one.catchingUp) return true // the rest of it
        val price = costs.prefill(tokens)
        val gained = remaining * (1 - 1 / best(one).rate)
        val surely = gained > SURELY * price && (one.acceptance.known || !one.triedUnknown)
        if (!surely) {
            // What is left must still pay for a draft.
            if (length(one, allowance - price) == 0) return false
            allowance -= price
        }
        one.triedUnknown = true
        one.catchingUp = true
        return true
    }

    override fun prefers(source: DraftSource, other: DraftSource): Boolean {
        val ours = drafting(source)
        val theirs = drafting(other)
        // Unless the other one has not been seen for long.
        val seen = rounds - theirs.lastRound < UNSEEN
        return ours.acceptance.known && theirs.acceptance.known && seen && best(ours).rate > CLEARLY * best(theirs).rate
    }

    override fun observe(round: Round) {
        rounds++
        remaining -= round.emitted
        val one = drafting
        val cost = costs.observe(round, one?.usesModel == true, one?.catchingUp == true)
        if (round.drafted == 0) {
            plainRounds++
            nextPlain = rounds + when {
                plainRounds < SETTLING -> 0
                costs.doubtful -> OFTEN
                else -> SELDOM
            }
        }
        if (one != null && round.drafted > 0) {
            one.observe(round, rounds)
            allowance += round.accepted + 1 - cost
        }
        allowance = minOf(MOST_ALLOWED, allowance + SHARE * round.emitted)
        reset()
    }

    private fun reset() {
        planned = 0
        drafting = null
    }

    private fun drafting(source: DraftSource): Drafting =
        drafters.getOrPut(source.name) { Drafting(source.usesModel) }

    /** Returns how many tokens to draft now. */
    private fun length(one: Drafting, allowance: Double = this.allowance): Int {
        if (rounds >= nextPlain) return 0
        val best = best(one, RISK * allowance)
        if (best.length > 0) return best.length
        val affordable = costs.round(1, one.usesModel) - 1 <= RISK * allowance
        return if (affordable && rounds >= one.nextTry) 1 else 0
    }

    /** Returns the best length that loses no more than [allowed] if all of it is wrong; 0 if none is worth its time. */
    private fun best(one: Drafting, allowed: Double = Double.POSITIVE_INFINITY): Choice {
        var best = Choice(0, 1.0)
        var least = WORTHWHILE
        for (length in 1..MOST) {
            val cost = costs.round(length, one.usesModel)
            if (cost - 1 > allowed) break
            val rate = one.acceptance.tokens(length) / cost
            if (rate > least) {
                least = rate
                best = Choice(length, rate)
            }
        }
        return best
    }

    /** A draft length and its tokens per time, relative to plain decoding. */
    private class Choice(val length: Int, val rate: Double)

    /** What is known of a drafter. */
    private class Drafting(val usesModel: Boolean) {
        val acceptance = AcceptanceByPosition(MOST)

        /** Whether a prompt was prefilled for it in advance, and whether that goes on. */
        var triedUnknown = false
        var catchingUp = false
        var lastRound = 0

        /** The round from which on it is tried although it does not pay. */
        var nextTry = 0
        private var gap = SHORTEST_GAP

        fun observe(round: Round, now: Int) {
            acceptance.observe(round.drafted, round.accepted)
            catchingUp = false
            lastRound = now
            gap = if (round.accepted > 0) SHORTEST_GAP else minOf(2 * gap, LONGEST_GAP)
            // A draft that was right is followed up at once: that costs nothing while it goes on.
            nextTry = if (round.accepted > 0) now else now + gap
        }
    }

    private companion object {
        const val MOST = 8

        /** The allowance, in tokens: at first, at most, and by which share of a text it grows. */
        const val FIRST = 2.0
        const val MOST_ALLOWED = 6.0
        const val SHARE = 0.008

        /** Share of the allowance that a round may lose. */
        const val RISK = 0.6

        /** Plain rounds at first, and rounds between later ones: they show what a plain round takes. */
        const val SETTLING = 3
        const val OFTEN = 8
        const val SELDOM = 32

        /** Least gain for which to draft, and to ask one drafter before another. */
        const val WORTHWHILE = 1.03
        const val CLEARLY = 1.05

        /** Times that a known gain must exceed a prefill's price. */
        const val SURELY = 2.0

        /** Rounds between tries of a drafter that does not pay, and without a draft of another one. */
        const val SHORTEST_GAP = 8
        const val LONGEST_GAP = 64
        const val UNSEEN = 64
    }
}
