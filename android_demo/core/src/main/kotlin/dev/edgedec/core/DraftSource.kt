package dev.edgedec.core

/**
 * Proposes tokens that the target may draw next. It may be wrong but must be quick.
 *
 * It belongs to the engine's thread; only [interrupt] may be called from another.
 */
interface DraftSource : AutoCloseable {
    val name: String

    /** Whether each drafted token takes a pass of a draft model. */
    val usesModel: Boolean get() = false

    /** Begins a text: `sampler.history` is its prompt now, and the text so far from then on. */
    fun begin(sampler: Sampler)

    /** Returns up to [length] tokens to follow the text; [lengths] is asked before each of them. */
    fun propose(length: Int, lengths: Lengths): IntArray

    /** Ends the running pass of a draft model, or the next one, with [InterruptedPass]; from any thread. */
    fun interrupt() {}

    /** Forgets an interrupt that no pass has answered. */
    fun resume() {}

    override fun close() {}
}
