package dev.edgedec.core

/**
 * One sequence: tokens that are committed, and the chain of the last pass that is pending.
 *
 * A session belongs to one thread; only [interrupt] may be called from another.
 */
interface Session : AutoCloseable {
    val capacity: Int
    /** Number of committed tokens. */
    val length: Int

    /**
     * Commits [tokens] without computing logits; [ended] is asked between chunks and ends it early.
     *
     * @throws InterruptedPass if [interrupt] was called meanwhile; chunks computed before stay committed
     */
    fun prefill(tokens: IntArray, ended: () -> Boolean = { false })

    /**
     * Computes [chain] after the committed tokens; its rows are valid until the next pass.
     *
     * The first token is the root, the last token of the text; drafted tokens follow.
     *
     * @throws InterruptedPass if [interrupt] was called meanwhile
     */
    fun forward(chain: IntArray): Pass

    /** Commits the first [count] tokens of the pending chain; what remains is rolled back. */
    fun commit(count: Int)

    /** Forgets all tokens after the first [length], committed and pending. */
    fun rollback(length: Int)

    /** Ends the running pass, or the next one, with [InterruptedPass]; from any thread. */
    fun interrupt()

    /** Forgets an interrupt that no pass has answered, so that it does not end the next text's first. */
    fun resume() = Unit
}

/** Logits after each token of a chain. */
interface Pass {
    val rows: Int

    /** Copies the logits of a row into [into], of the vocabulary's size. */
    fun logits(row: Int, into: FloatArray)

    /** Returns the most likely token of a row, of equals the lowest id, and checks that it is a number. */
    fun best(row: Int): Int
}
