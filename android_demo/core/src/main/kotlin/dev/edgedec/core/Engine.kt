package dev.edgedec.core

/**
 * Decodes with a target session and a drafter: the only loop, plain decoding runs it with nothing drafted.
 *
 * An engine decodes one text at a time, on one thread. A text that ends early, by [Cancellation] or an exception,
 * leaves session and drafter usable. The longest prefix of a prompt that the session still holds is not computed
 * again.
 *
 * @param target belongs to the engine while a text is decoded; closed by whoever opened it
 * @param drafter drafts unless [run] is given another one; null decodes plainly
 * @param lengths decides how much to draft, likewise
 * @param clock returns nanoseconds; a simulation passes its own
 */
class Engine internal constructor(
    private val target: Session,
    private val drafter: DraftSource?,
    private val lengths: Lengths,
    private val clock: () -> Long,
    private val rule: AcceptanceRule,
) {
    constructor(
        target: Session,
        drafter: DraftSource? = null,
        lengths: Lengths = FixedLength(0),
        clock: () -> Long = System::nanoTime,
    ) : this(target, drafter, lengths, clock, GumbelCoupling)

    /** What the session holds. */
    private var held = Tokens()
    private var running = false

    /**
     * Returns the number of tokens that can follow a prompt.
     *
     * @throws InputException for an empty prompt, or one that leaves no room for a token
     */
    fun room(prompt: IntArray): Int {
        if (prompt.isEmpty()) throw InputException("the prompt is empty: give some text")
        // The last token's keys and values are never needed.
        val room = target.capacity - prompt.size + 1
        if (room < 1) {
            throw InputException(
                "the prompt has ${prompt.size} tokens and the context holds ${target.capacity}: shorten it",
            )
        }
        return room
    }

    /**
     * Decodes a text, and hands on the tokens of each round until [stop] or [cancellation] ends it.
     *
     * A pass that fails throws after the tokens of the rounds before it were handed on; the next text then begins with
     * an empty session.
     *
     * @param sampler made with the same prompt
     * @param stop of this text; `stop.end()` returns afterwards what a cancelled text holds back, `stop.finish()` all
     */
    fun run(
        prompt: IntArray,
        sampler: Sampler,
        stop: StopRule,
        drafter: DraftSource? = this.drafter,
        lengths: Lengths = this.lengths,
        cancellation: Cancellation = Cancellation(),
        onTokens: (List<Emission>) -> Unit,
    ): Figures {
        if (running) throw StateException("another text is being decoded: wait for its end or cancel it first")
        stop.limit(room(prompt))
        running = true
        var whole = false
        try {
            target.resume()
            drafter?.resume()
            cancellation.attach {
                target.interrupt()
                drafter?.interrupt()
            }
            val text = Text(sampler, stop, drafter, lengths, cancellation, onTokens)
            return text.decode(reuse(sampler.history)).also { whole = true }
        } finally {
            cancellation.attach {}
            held = if (whole) Tokens(sampler.history.slice(0, target.length)) else Tokens()
            running = false
        }
    }

    /** Rolls back to what the session shares with a prompt; returns how many tokens these are. */
    private fun reuse(prompt: Tokens): Int {
        val shared = minOf(target.length, held.shared(prompt), prompt.size - 1)
        target.rollback(shared)
        return shared
    }

    /** One text while it is decoded. */
    private inner class Text(
        private val sampler: Sampler,
        private val stop: StopRule,
        private val drafter: DraftSource?,
        private val lengths: Lengths,
        private val cancellation: Cancellation,
        private val onTokens: (List<Emission>) -> Unit,
    ) {
        private val promptTokens = sampler.history.size
        private val began = clock()
        private val figures = RoundFigures()

        fun decode(reused: Int): Figures {
            try {
                drafter?.begin(sampler)
                target.prefill(sampler.history.slice(reused, promptTokens - 1)) { cancellation.requested }
                lengths.begin(stop.remaining)
                while (stop.reason == null && !cancellation.requested) round()
            } catch (interrupted: InterruptedPass) {
                if (!cancellation.requested) throw interrupted
            }
            return figures.of(stop.reason ?: "cancelled", promptTokens, reused, sampler.seed)
        }

        /** Decodes speculatively (2211.17192): propose, forward, accept, cut, commit. */
        private fun round() {
            val start = clock()
            val draft = propose()
            val drafted = clock()
            val pass = target.forward(intArrayOf(sampler.history.last()) + draft)
            val verified = clock()
            val tokens = rule.accept(draft, pass, sampler)
            val cut = stop.cut(tokens)
            sampler.push(cut.tokens)
            try {
                // The root and the accepted tokens that belong to the text; the last token is the next root.
                target.commit(cut.tokens.size)
            } finally {
                val accepted = tokens.size - 1
                val round = Round(draft.size, accepted, cut.tokens.size, drafted - start, verified - drafted)
                lengths.observe(round)
                val now = clock()
                figures.observe(round, now - start, now - began)
                onTokens(cut.tokens.mapIndexed { i, token -> Emission(token, cut.texts[i], drafted = i < accepted) })
            }
        }

        private fun propose(): IntArray {
            // A round always adds one token of the target's own, so drafts leave room for it.
            val most = minOf(lengths.most, stop.remaining - 1, target.capacity - target.length - 1)
            return if (drafter == null || most < 1) IntArray(0) else drafter.propose(most, lengths)
        }
    }
}

/** Sums of the rounds of a text. */
private class RoundFigures {
    private var rounds = 0
    private var drafted = 0
    private var accepted = 0
    private var emitted = 0
    private var firstRound = 0
    private var ttftNs = 0L
    private var laterNs = 0L

    fun observe(round: Round, roundNs: Long, sinceBeginNs: Long) {
        if (rounds++ == 0) {
            firstRound = round.emitted
            ttftNs = sinceBeginNs
        } else {
            laterNs += roundNs
        }
        drafted += round.drafted
        accepted += minOf(round.accepted, round.emitted) // those that the text did not end before
        emitted += round.emitted
    }

    /** The whole first round is left out of TPOT: its tokens arrive with the first one, after prefill. */
    fun of(reason: String, promptTokens: Int, reused: Int, seed: Long): Figures {
        val later = emitted - firstRound
        val tpotS = if (later == 0) null else laterNs / 1e9 / later
        return Figures(reason, promptTokens, reused, emitted, rounds, drafted, accepted, ttftNs / 1e9, tpotS, seed)
    }
}
