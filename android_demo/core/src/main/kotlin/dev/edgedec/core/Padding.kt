package dev.edgedec.core

import java.util.Random

/**
 * A rule for the number of rows of a pass, so that a row's bits do not depend on the others; see
 * edgedec/runtimes/onnx/padding.py.
 *
 * Matrix kernels have a variant for a single remaining row that adds in another order. Which padding
 * suffices depends on this machine's kernels and the weights' format, so it is tested, not assumed.
 *
 * @property multiple rows are a multiple of this
 * @property neverOneOver and never one more than a multiple of this; 0: no such rule
 * @property attentionOnly rows are added for attention, and for nothing else
 */
internal data class Padding(
    val name: String,
    val multiple: Int = 1,
    val neverOneOver: Int = 0,
    val attentionOnly: Boolean = false,
) {
    /** Most rows added. */
    val slack: Int get() = maxOf(multiple - 1, if (neverOneOver > 0) 1 else 0)

    /** Returns the rows of a pass over [count] tokens, including padding. */
    fun rows(count: Int): Int = when {
        neverOneOver > 0 && count % neverOneOver == 1 -> count + 1
        else -> (count + multiple - 1) / multiple * multiple
    }

    /** Returns [tokens] with the last one repeated as padding. */
    fun pad(tokens: IntArray): IntArray {
        val rows = if (attentionOnly) tokens.size else rows(tokens.size)
        if (rows == tokens.size) return tokens
        return IntArray(rows) { tokens[minOf(it, tokens.size - 1)] }
    }

    companion object {
        val NONE = Padding("none")

        /** Cheapest first. */
        val ALL = listOf(
            NONE,
            Padding("no lone row in attention", neverOneOver = 16, attentionOnly = true),
            Padding("no lone row", neverOneOver = 16),
            Padding("even", multiple = 2),
            Padding("multiple of 4", multiple = 4),
        )

        /** Those used without being asked for on a model of fewer bytes than [LARGE_BYTES]. */
        val CHEAP = ALL.take(2)
        const val LARGE_BYTES = 200_000_000L
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
