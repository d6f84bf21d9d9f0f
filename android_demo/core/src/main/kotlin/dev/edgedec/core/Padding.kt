package dev.edgedec.core

import java.util.Random

/**
 * A rule for a number of rows, so that a row's bits do not depend on the others of its pass; see
 * edgedec/runtimes/onnx/padding.py.
 *
 * Matrix kernels have a variant for a single remaining row that adds in another order. Which padding
 * suffices depends on this machine's kernels and the weights' format, so it is tested, not assumed.
 *
 * @property multiple rows are a multiple of this
 * @property keys rows and the slots before them are a multiple of this together: the keys that
 *     attention reads
 * @property neverOneOver rows are never one more than a multiple of this; 0: no such rule
 */
internal data class Rule(val multiple: Int = 1, val keys: Int = 1, val neverOneOver: Int = 0) {
    /** Most rows added. */
    val slack: Int get() = multiple + keys - 2 + if (neverOneOver > 0) keys else 0

    /** Returns the rows of a pass over [count] tokens behind [past] slots. */
    fun rows(count: Int, past: Int): Int {
        val whole = (count + multiple - 1) / multiple * multiple
        val rows = whole + Math.floorMod(-(past + whole), keys)
        return if (neverOneOver > 0 && rows % neverOneOver == 1) rows + keys else rows
    }
}

/**
 * Rules for the rows of a pass.
 *
 * @property all for all of it
 * @property attention for attention, where the graph has rows of its own for it; null is as [all]
 */
internal data class Padding(val name: String, val all: Rule = Rule(), val attention: Rule? = null) {
    /** Most rows added. */
    val slack: Int get() = maxOf(all.slack, attention?.slack ?: 0)

    /** Returns the rows that attention computes for [count] tokens behind [past] slots. */
    fun rows(count: Int, past: Int): Int = (attention ?: all).rows(count, past)

    /** Returns [tokens] with the last one repeated as padding. */
    fun pad(tokens: IntArray, past: Int): IntArray {
        val rows = all.rows(tokens.size, past)
        if (rows == tokens.size) return tokens
        return IntArray(rows) { tokens[minOf(it, tokens.size - 1)] }
    }

    companion object {
        val NONE = Padding("none")
        const val LARGE_BYTES = 200_000_000L
    }
}

/**
 * Those that a kind of processor may need, cheapest first.
 *
 * @property free used without being asked for on a model of fewer bytes than [Padding.LARGE_BYTES]
 * @property usual on a larger one
 * @property asked where a text must not depend on its drafts, as in graphs exported for that
 */
internal data class Paddings(val free: List<Padding>, val usual: List<Padding>, val asked: List<Padding>) {
    companion object {
        private val noLoneRow = Rule(neverOneOver = 16)

        // Kernels for ARM compute the last columns of a product, up to three of them, in another
        // order: a key's score depends on how many keys follow, unless they are always a multiple of
        // four. Few rows of a small model show it, too few for a trial: nothing less is tried there.
        private val fours = Rule(keys = 4, neverOneOver = 16)
        private val others = listOf(
            Padding.NONE,
            Padding("no lone row in attention", attention = noLoneRow),
            Padding("no lone row", noLoneRow),
            Padding("even", Rule(multiple = 2)),
            Padding("multiple of 4", Rule(multiple = 4)),
        )
        private val arm = listOf(
            Padding("keys by fours in attention", attention = fours),
            Padding("no lone row, keys by fours in attention", noLoneRow, fours),
            Padding("keys by fours", fours),
        )
        val ELSEWHERE = Paddings(others.take(1), others, others)
        val ON_ARM = Paddings(emptyList(), emptyList(), arm)

        /** Those of this processor. */
        val HERE = if (System.getProperty("os.arch") in listOf("aarch64", "arm64")) ON_ARM else ELSEWHERE
    }
}

/** What a pass computed for one token: its logits, and its slot of the cache. */
internal class ComputedRow(private val logits: FloatArray, private val slot: ByteArray) {
    fun sameBits(other: ComputedRow) =
        logits.contentEquals(other.logits) && slot.contentEquals(other.slot)
}

/** Computes `tokens` after `past` ones of a cache with a padding, and returns a row for each. */
internal typealias PaddedPass = (padding: Padding, tokens: IntArray, past: Int) -> List<ComputedRow>

/** Tokens that [findPadding] needs slots for, padding included. */
internal const val PROBE_SLOTS = 32
private const val PROMPT = 11
private const val TEXT = 9

// Parts of the text, start to width. A part overwrites the cache from its start on, so they come
// from the end; a lone row, the likeliest failure, comes first.
private val PARTS = listOf(
    8 to 1, 6 to 3, 5 to 1, 4 to 1, 4 to 5, 3 to 1, 2 to 1, 2 to 7, 1 to 1, 0 to 1, 0 to 2, 0 to 4, 0 to 8,
)

/** Returns the first of [paddings] under which the same tokens give the same bits, however cut. */
internal fun findPadding(vocabSize: Int, paddings: List<Padding>, run: PaddedPass): Padding? {
    val random = Random(0)
    val prompt = IntArray(PROMPT) { random.nextInt(vocabSize) }
    val text = IntArray(TEXT) { random.nextInt(vocabSize) }
    run(Padding.NONE, prompt, 0)
    return paddings.firstOrNull { padding ->
        val whole = run(padding, text, PROMPT)
        PARTS.all { (start, width) ->
            val rows = run(padding, text.copyOfRange(start, start + width), PROMPT + start)
            rows.indices.all { rows[it].sameBits(whole[start + it]) }
        }
    }
}
