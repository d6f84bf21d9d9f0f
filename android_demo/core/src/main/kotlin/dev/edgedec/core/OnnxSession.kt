package dev.edgedec.core

/**
 * One sequence on ONNX Runtime; made by [OnnxModel.open].
 *
 * Slots 0 to [length] of the cache are committed; a pending chain follows in place, so committing is
 * a change of the length.
 *
 * @param padding rule for the rows of a pass; padding rows repeat the last token and are overwritten
 */
internal class OnnxSession(
    private val graph: Graph,
    override val capacity: Int,
    private val padding: Padding,
    memory: Memory,
) : Session {
    // A padded pass writes slots after the last token.
    private val cache = KvCache(graph, capacity + padding.slack, memory)
    private val passes = Passes(graph, cache, memory)
    private var pending = 0
    private var open = true

    override var length = 0
        private set

    override fun prefill(tokens: IntArray, ended: () -> Boolean) {
        checkOpen()
        checkNothingPending("prefill")
        checkFits(tokens)
        for (start in tokens.indices step PREFILL_CHUNK) {
            if (ended()) return
            val chunk = tokens.copyOfRange(start, minOf(start + PREFILL_CHUNK, tokens.size))
            compute(chunk, length, head = false)
            length += chunk.size
        }
    }

    override fun forward(chain: IntArray): Pass {
        checkOpen()
        checkNothingPending("forward")
        checkFits(chain)
        if (chain.isEmpty()) throw StateException("forward(): expected at least a root, got no token")
        val pass = if (length == 0 && chain.size > 1) first(chain) else following(chain, length, null)
        pending = chain.size
        return pass
    }

    override fun commit(count: Int) {
        checkOpen()
        if (count !in 0..pending) {
            throw StateException("commit(): expected at most the $pending pending tokens, got $count")
        }
        length += count
        pending = 0
    }

    override fun rollback(length: Int) {
        checkOpen()
        if (length !in 0..this.length) {
            throw StateException("rollback(): expected a length of 0..${this.length}, got $length")
        }
        this.length = length
        pending = 0
    }

    override fun interrupt() = passes.interrupt()

    override fun resume() = passes.resume()

    override fun close() {
        if (!open) return
        open = false
        passes.close()
        cache.close()
        graph.close()
    }

    /** Computes the root alone: with an empty cache the kernel reads the first position only. */
    private fun first(chain: IntArray): Pass {
        val root = following(chain.copyOf(1), 0, null)
        val logits = FloatArray(graph.facts.vocabSize).also { root.logits(0, it) }
        return following(chain.copyOfRange(1, chain.size), 1, FirstRow(logits, root.best(0)))
    }

    private fun following(tokens: IntArray, past: Int, first: FirstRow?): Pass {
        compute(tokens, past, head = true)
        return OnnxPass(passes, passes.count, tokens.size, first)
    }

    private fun compute(tokens: IntArray, past: Int, head: Boolean) =
        passes.run(padding.pad(tokens, past), past, head, padding.rows(tokens.size, past))

    private fun checkOpen() {
        if (!open) throw closed()
    }

    private fun checkNothingPending(call: String) {
        if (pending > 0) {
            throw StateException("$call(): $pending tokens are pending: call commit() or rollback() first")
        }
    }

    private fun checkFits(tokens: IntArray) {
        if (tokens.size > capacity - length) {
            throw InputException(
                "expected at most ${capacity - length} tokens after the $length committed ones, " +
                    "got ${tokens.size}: open a session for more than $capacity",
            )
        }
        val outside = tokens.firstOrNull { it !in 0 until graph.facts.vocabSize } ?: return
        throw InputException(
            "expected token ids 0..${graph.facts.vocabSize - 1}, got $outside: use this model's tokenizer",
        )
    }

    private companion object {
        /** Tokens of a prompt that one pass computes. */
        const val PREFILL_CHUNK = 128
    }
}

internal fun closed() = StateException("the session is closed: open a new one")

/** A row that was computed by a pass of its own. */
private class FirstRow(val logits: FloatArray, val best: Int)

/** The rows of pass [number], after [first] if the root was computed alone. */
private class OnnxPass(
    private val passes: Passes,
    private val number: Long,
    private val computed: Int,
    private val first: FirstRow?,
) : Pass {
    private val before = if (first == null) 0 else 1
    override val rows = before + computed

    override fun logits(row: Int, into: FloatArray) {
        check(row)
        if (first != null && row == 0) first.logits.copyInto(into) else passes.logits(number, row - before, into)
    }

    override fun best(row: Int): Int {
        check(row)
        return if (first != null && row == 0) first.best else passes.best(number, row - before)
    }

    private fun check(row: Int) {
        if (row !in 0 until rows) throw StateException("expected a row of 0..${rows - 1}, got $row")
    }
}
