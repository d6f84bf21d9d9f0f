package dev.edgedec.core

/**
 * A model without weights: its logits are a hash of everything that a token can attend to.
 *
 * Any mistake in a cache, such as an incomplete rollback, changes the context and so all logits that follow.
 *
 * @param sharpness standard deviation of the logits; larger is more predictable
 * @param like a model to resemble, and how much: `model to 0.8` makes a useful draft
 * @param forgetful the broken twin: a rollback forgets a token more than it should
 */
class FakeModel(
    val vocabSize: Int = 16,
    private val seed: Long = 0,
    private val sharpness: Double = 2.0,
    private val like: Pair<FakeModel, Double>? = null,
    val eosIds: Set<Int> = emptySet(),
    private val forgetful: Boolean = false,
) {
    /** Passes so far, those that were interrupted included. */
    var passes = 0

    /** Called inside each pass with its rows: takes time, interrupts or fails. */
    var onPass: (rows: Int) -> Unit = {}

    /** Returns the logits of the token after [tokens]. */
    fun logits(tokens: IntArray): FloatArray = exact(tokens).map { it.toFloat() }.toFloatArray()

    /** Returns a model of the same logits. */
    fun twin(forgetful: Boolean) = FakeModel(vocabSize, like = this to 1.0, eosIds = eosIds, forgetful = forgetful)

    private fun exact(tokens: IntArray): DoubleArray {
        val context = tokens.fold(mixed(seed)) { word, token -> mixed(word xor (token + 1L)) }
        val own = DoubleArray(vocabSize) { sharpness * normal(mixed(context + it * 0x61C8864680B583EBL)) }
        val (model, share) = like ?: return own
        val other = model.exact(tokens)
        return DoubleArray(vocabSize) { share * other[it] + (1 - share) * own[it] }
    }

    fun open(capacity: Int): Session = FakeSession(this, capacity, forgetful)

    /** About a standard normal number: the sum of three parts of a word. */
    private fun normal(word: Long): Double {
        val part = (1L shl 21) - 1
        return ((word and part) + (word shr 21 and part) + (word shr 42 and part)) / (part * 0.5) - 3.0
    }

    private fun mixed(word: Long): Long {
        val once = (word xor (word ushr 30)) * -0x40A7B892E31B1A47L
        val twice = (once xor (once ushr 27)) * -0x6B2FB644ECCEEE15L
        return twice xor (twice ushr 31)
    }
}

/** A session whose cache is the tokens themselves. */
private class FakeSession(
    private val model: FakeModel,
    override val capacity: Int,
    private val forgetful: Boolean,
) : Session {
    private val committed = Tokens()
    private var pending = IntArray(0)
    private var open = true

    @Volatile
    private var interrupted = false

    override var length = 0
        private set

    override fun prefill(tokens: IntArray, ended: () -> Boolean) {
        check(open && pending.isEmpty())
        check(length + tokens.size <= capacity)
        for (start in tokens.indices step CHUNK) {
            if (ended()) return
            val chunk = tokens.copyOfRange(start, minOf(start + CHUNK, tokens.size))
            pass(chunk.size)
            keep(chunk)
        }
    }

    override fun forward(chain: IntArray): Pass {
        check(open && pending.isEmpty() && chain.isNotEmpty())
        check(length + chain.size <= capacity)
        pass(chain.size)
        pending = chain
        val seen = committed.slice()
        return FakePass(List(chain.size) { model.logits(seen + chain.copyOf(it + 1)) })
    }

    override fun commit(count: Int) {
        check(open && count in 0..pending.size)
        keep(pending.copyOf(count))
        pending = IntArray(0)
    }

    override fun rollback(length: Int) {
        check(open && length in 0..this.length)
        val forgotten = forgetful && length in 1 until this.length
        committed.cut(if (forgotten) length - 1 else length)
        this.length = length
        pending = IntArray(0)
    }

    override fun interrupt() {
        interrupted = true
    }

    override fun resume() {
        interrupted = false
    }

    override fun close() {
        open = false
    }

    private fun keep(tokens: IntArray) {
        committed.add(tokens)
        length += tokens.size
    }

    private fun pass(rows: Int) {
        model.passes++
        model.onPass(rows)
        if (interrupted) {
            interrupted = false
            throw InterruptedPass()
        }
    }

    private companion object {
        const val CHUNK = 4
    }
}

private class FakePass(private val logits: List<FloatArray>) : Pass {
    override val rows get() = logits.size

    override fun logits(row: Int, into: FloatArray) {
        logits[row].copyInto(into)
    }

    override fun best(row: Int): Int = mostLikely(logits[row]) ?: throw noNumbers("target")
}
