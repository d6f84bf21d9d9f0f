package dev.edgedec.core

// Up to so many missing tokens are computed in the next pass; more are prefilled, which needs no logits.
private const val RIDE_ALONG = 8

// Tokens prefilled in one round: neither the first token nor a stop waits for a second model's whole prompt.
private const val PREFILL_AT_ONCE = 512

/**
 * A small model drafts a chain (speculative sampling, 2211.17192), drawn with the target's noise.
 *
 * Its session lags behind the text: it computes neither the last token of a draft nor what another drafter proposed
 * until it drafts again. It rests while a text is longer than its session.
 *
 * @param session of a model with the target's vocabulary; closed with the drafter
 */
class ModelDrafter(private val session: Session) : DraftSource {
    /** What the session has committed: a prefix of the text, and while drafting some of the draft. */
    private val held = Tokens()
    private var sampler: Sampler? = null

    override val name get() = "model"
    override val usesModel get() = true

    override fun begin(sampler: Sampler) {
        this.sampler = sampler
        settle(sampler.history)
    }

    override fun propose(length: Int, lengths: Lengths): IntArray {
        val sampler = sampler ?: return IntArray(0)
        val history = sampler.history
        settle(history)
        // The root is computed as well, the last drafted token is not.
        val most = minOf(length, session.capacity - history.size + 1)
        if (most < 1 || !catchUp(history, lengths)) return IntArray(0)
        val drafted = IntArray(most)
        var count = 0
        var chain = history.slice(held.size)
        while (count < most && lengths.goOn(this, count)) {
            val pass = session.forward(chain)
            val token = sampler.draw(pass, chain.size - 1, drafted.copyOf(count), Purpose.DRAFT)
            session.commit(chain.size)
            held.add(chain)
            drafted[count++] = token
            chain = intArrayOf(token)
        }
        return drafted.copyOf(count)
    }

    override fun interrupt() = session.interrupt()

    override fun resume() = session.resume()

    override fun close() = session.close()

    /** Rolls back to what the session shares with the text before its root, also after a pass that failed. */
    private fun settle(history: Tokens) {
        held.cut(minOf(session.length, held.shared(history), history.size - 1))
        session.rollback(held.size)
    }

    /** Prefills what the next pass cannot include; returns whether all is done. */
    private fun catchUp(history: Tokens, lengths: Lengths): Boolean {
        val missing = history.size - 1 - held.size
        if (missing <= RIDE_ALONG) return true
        if (!lengths.catchUp(this, missing)) return false
        val tokens = history.slice(held.size, held.size + minOf(missing, PREFILL_AT_ONCE))
        try {
            session.prefill(tokens)
        } finally {
            // If it was interrupted between chunks, those computed stay.
            held.add(tokens.copyOf(session.length - held.size))
        }
        return missing <= PREFILL_AT_ONCE
    }
}
