package dev.edgedec.core

import java.io.File
import java.util.concurrent.Executors
import java.util.concurrent.TimeUnit

/**
 * How a decoder opens bundles.
 *
 * @property threads of each model's passes; null is one for each core, fewer for a model of a few megabytes
 * @property maxContext most tokens of a prompt and its text, which the caches have room for
 * @property memory where caches lie
 * @property batchInvariant see [OnnxModel.load]; true refuses where a draft might change a text
 * @property loadDraft whether to load the bundle's draft model
 */
data class DecoderOptions(
    val threads: Int? = null,
    val maxContext: Int = 2048,
    val memory: Memory = Memory.direct,
    val batchInvariant: Boolean? = null,
    val loadDraft: Boolean = true,
)

/**
 * Decodes with one bundle at a time, on a thread of its own, which owns all sessions.
 *
 * All functions may be called from any thread and return at once; what was asked for is done in order. A text
 * continues from what it has in common with the last one, as the next turn of a conversation does.
 *
 * ```
 * val decoder = Decoder()
 * decoder.open(folder)
 * decoder.generate(Request(prompt = "def fibonacci(n):"), listener)
 * ```
 */
class Decoder(private val options: DecoderOptions = DecoderOptions()) : AutoCloseable {
    /** What it is doing; written by its own thread only. */
    @Volatile
    var state: State = State.Closed
        private set

    private val worker = Executors.newSingleThreadExecutor { task -> Thread(task, "edgedec") }

    /** Texts that wait or are decoded; guards [closing] as well. */
    private val texts = LinkedHashSet<Cancellation>()
    private var closing = false

    /** Belongs to the worker. */
    private var opened: Opened? = null

    /**
     * Opens a bundle in place of the one before, whose texts are cancelled; [state] becomes [State.Ready] or
     * [State.Failed].
     *
     * @throws StateException after [close]
     */
    fun open(folder: File) = synchronized(texts) {
        if (closing) throw StateException(CLOSED)
        cancel()
        worker.execute { replace(folder) }
    }

    /** Decodes a text and tells [listener], on the decoder's thread; texts wait for each other. */
    fun generate(request: Request, listener: Listener) {
        val text = Cancellation()
        val accepted = synchronized(texts) {
            if (!closing) {
                texts += text
                worker.execute { decode(request, listener, text) }
            }
            !closing
        }
        if (!accepted) listener.onError(CLOSED)
    }

    /** Ends all texts asked for so far, also inside a pass; each listener is told the end of its text. */
    fun cancel() = synchronized(texts) { texts.forEach { it.cancel() } }

    /** Cancels all texts and frees models and caches, on the decoder's thread, which then ends. */
    override fun close() = synchronized(texts) {
        if (!closing) {
            closing = true
            cancel()
            worker.execute { release() }
            worker.shutdown()
        }
    }

    /** Waits until the decoder's thread has ended, after [close]. */
    fun join() {
        do {
            val ended = worker.awaitTermination(1, TimeUnit.MINUTES)
        } while (!ended)
    }

    private fun replace(folder: File) {
        release()
        if (synchronized(texts) { closing }) return
        state = State.Opening(folder)
        state = try {
            val found = Opened.open(folder, options)
            opened = found
            State.Ready(found.about)
        } catch (error: Throwable) {
            State.Failed(sentence(error))
        }
    }

    private fun release() {
        opened?.close()
        opened = null
        state = State.Closed
    }

    private fun decode(request: Request, listener: Listener, text: Cancellation) {
        val opened = opened
        if (opened == null) {
            synchronized(texts) { texts -= text }
            return listener.onError((state as? State.Failed)?.message ?: "no bundle is open: open one first")
        }
        state = State.Decoding(opened.about)
        val outcome = runCatching { opened.generate(request, text, listener::onRest, listener::onTokens) }
        synchronized(texts) { texts -= text }
        state = State.Ready(opened.about)
        outcome.fold(listener::onEnd) { listener.onError(sentence(it)) }
    }

    private companion object {
        const val CLOSED = "the decoder is closed: make another one"

        fun sentence(error: Throwable): String = when (error) {
            is EdgedecException -> error.message.orEmpty()
            is OutOfMemoryError -> "there is not enough memory: use a shorter context or a smaller model"
            is LinkageError -> "ONNX Runtime's library cannot be loaded on this machine: ${error.message}"
            else -> "unexpected, please report it: $error"
        }
    }
}
