package dev.edgedec.demo

import dev.edgedec.core.About
import dev.edgedec.core.Emission
import dev.edgedec.core.Figures
import dev.edgedec.core.Listener
import dev.edgedec.core.Request
import dev.edgedec.core.State
import java.io.File

/** A decoder that says what a test tells it to. */
class ScriptedEngine(val threads: Int?, private val chat: Boolean = false, private val failure: String? = null) : Engine {
    @Volatile override var state: State = State.Closed
    val requests = mutableListOf<Request>()
    var cancelled = 0
        private set
    @Volatile var closed = false
        private set
    private var listener: Listener? = null
    private var tokens = 0

    override fun open(folder: File) {
        val about = About(folder, "llama 11.5M", "llama 2.2M", chat, 8192, threads ?: OWN_THREADS, openS = 0.03)
        state = failure?.let { State.Failed(it) } ?: State.Ready(about)
    }

    override fun generate(request: Request, listener: Listener) {
        requests += request
        this.listener = listener
        tokens = 0
        state = State.Decoding(about())
    }

    override fun cancel() {
        cancelled++
        if (state is State.Decoding) end("cancelled")
    }

    override fun close() {
        if (state is State.Decoding) end("cancelled")
        closed = true
        state = State.Closed
    }

    /** A round: a token of the target, and some that were drafted. */
    fun say(plain: String, vararg drafted: String) {
        val emissions = listOf(Emission(0, plain, drafted = false)) + drafted.map { Emission(1, it, drafted = true) }
        tokens += emissions.size
        checkNotNull(listener).onTokens(emissions)
    }

    fun end(reason: String = "length", tpotS: Double? = 0.01, drafted: Int = 0, accepted: Int = 0) {
        state = State.Ready(about())
        val figures = Figures(
            reason, promptTokens = 5, reusedTokens = 0, newTokens = tokens, rounds = maxOf(1, tokens - accepted),
            drafted = drafted, accepted = accepted, ttftS = 0.21, tpotS = tpotS, seed = 7,
        )
        checkNotNull(listener).onEnd(figures)
    }

    fun fail(message: String) {
        state = State.Ready(about())
        checkNotNull(listener).onError(message)
    }

    private fun about(): About = when (val now = state) {
        is State.Ready -> now.about
        is State.Decoding -> now.about
        else -> error("expected an open engine, found $now")
    }

    companion object {
        const val OWN_THREADS = 4
    }
}
