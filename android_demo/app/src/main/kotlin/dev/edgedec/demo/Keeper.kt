package dev.edgedec.demo

import dev.edgedec.core.Listener
import dev.edgedec.core.Request
import dev.edgedec.core.State
import java.io.File
import java.util.concurrent.ExecutorService
import java.util.concurrent.Executors
import java.util.concurrent.atomic.AtomicInteger

/**
 * Owns the decoder, and opens, replaces and closes it on a thread of its own, so that the screen
 * never waits and two bundles are never open at once.
 */
class Keeper(private val make: (threads: Int?) -> Engine) : AutoCloseable {
    private class Wish(val folder: File, val threads: Int?)

    private val worker: ExecutorService = Executors.newSingleThreadExecutor { Thread(it, "keeper") }
    private val unsettled = AtomicInteger()

    @Volatile private var wish: Wish? = null

    @Volatile private var engine: Engine? = null

    /** State of the decoder that was last asked for, whatever of an earlier one is still going on. */
    val state: State
        get() {
            val wanted = wish ?: return State.Closed
            return if (unsettled.get() > 0) State.Opening(wanted.folder) else engine?.state ?: State.Closed
        }

    fun open(folder: File, threads: Int?) = settle(Wish(folder, threads))

    fun release() = settle(null)

    fun generate(request: Request, listener: Listener) {
        val ready = engine.takeIf { state is State.Ready }
        if (ready == null) listener.onError("The bundle is not open; open it and decode again.")
        else ready.generate(request, listener)
    }

    fun cancel() {
        engine?.cancel()
    }

    override fun close() {
        release()
        worker.shutdown()
    }

    private fun settle(next: Wish?) {
        wish = next
        unsettled.incrementAndGet()
        cancel()
        worker.execute {
            try {
                engine?.close()
                engine = null
                if (next != null && next === wish) engine = make(next.threads).also { it.open(next.folder) }
            } finally {
                unsettled.decrementAndGet()
            }
        }
    }
}
