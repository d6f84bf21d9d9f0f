package dev.edgedec.demo

import dev.edgedec.core.Emission
import dev.edgedec.core.Figures
import dev.edgedec.core.Listener

/** When the tokens of a text came, in nanoseconds of the phone's clock. */
data class Pace(
    val beganNs: Long,
    val firstNs: Long? = null,
    val firstTokens: Int = 0,
    val lastNs: Long = 0,
    val tokens: Int = 0,
) {
    val firstTokenS: Double? get() = firstNs?.let { (it - beganNs) / NS }

    /** Tokens a second after the first round, whose time is mostly the prompt's. */
    val tokensPerSecond: Double?
        get() = firstNs?.takeIf { lastNs > it }?.let { (tokens - firstTokens) * NS / (lastNs - it) }

    /** Returns the pace after a round of [count] tokens. */
    fun after(count: Int, nowNs: Long): Pace =
        if (firstNs == null) copy(firstNs = nowNs, firstTokens = count, lastNs = nowNs, tokens = count)
        else copy(lastNs = nowNs, tokens = tokens + count)

    private companion object {
        const val NS = 1e9
    }
}

/** What the decoder has said since it was last asked. */
class News(val tokens: List<Emission>, val pace: Pace, val figures: Figures?, val error: String?)

/** Keeps what the decoder says on its own thread until the screen's thread takes it. */
class Feed(private val clock: () -> Long) : Listener {
    private val lock = Any()
    private val waiting = ArrayList<Emission>()
    private var pace = Pace(beganNs = clock())
    private var figures: Figures? = null
    private var error: String? = null

    override fun onTokens(tokens: List<Emission>) = synchronized(lock) {
        waiting += tokens
        pace = pace.after(tokens.size, clock())
    }

    override fun onEnd(figures: Figures) = synchronized(lock) { this.figures = figures }

    override fun onError(message: String) = synchronized(lock) { error = message }

    /** Returns what is new. */
    fun take(): News = synchronized(lock) {
        News(waiting.toList(), pace, figures, error).also { waiting.clear() }
    }
}
