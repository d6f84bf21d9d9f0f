package dev.edgedec.core

import java.util.PriorityQueue

/** The pairs of tokens that merge: the earlier ones in the file go first. */
internal class Merges(count: Int) {
    private val keys = LongArray(Integer.highestOneBit(maxOf(count, 4)) * 4) { NONE.toLong() }
    private val ranks = IntArray(keys.size)
    private val made = IntArray(count)
    private var size = 0

    /** Appends a pair and what it becomes; of equal pairs the last counts. */
    fun add(left: Int, right: Int, becomes: Int) {
        val at = place(key(left, right))
        keys[at] = key(left, right)
        ranks[at] = size
        made[size++] = becomes
    }

    /** The rank of a pair, or [NONE]. */
    fun rank(left: Int, right: Int): Int {
        val at = place(key(left, right))
        return if (keys[at] == NONE.toLong()) NONE else ranks[at]
    }

    /** What the pair of this rank becomes. */
    fun made(rank: Int): Int = made[rank]

    private fun key(left: Int, right: Int): Long = (left.toLong() shl 32) or right.toLong()

    private fun place(key: Long): Int {
        val mask = keys.size - 1
        var at = (key * MIX ushr 32).toInt() and mask
        while (keys[at] != key && keys[at] != NONE.toLong()) at = (at + 1) and mask
        return at
    }

    companion object {
        const val NONE = -1
        private const val MIX = -0x61c8864680b583ebL
    }
}

/**
 * Byte pair encoding of words, as the `BPE` model of a tokenizer.json.
 *
 * @property ids of all tokens
 * @property unknown stands for a character without a token; null leaves it out
 * @property fuseUnknown one token for a run of unknown characters
 * @property bytes ids of the tokens of single bytes, for characters without a token; null if they are not used
 * @property wholeWords a word that is a token stays one, whatever the merges would give
 */
internal class Bpe(
    private val ids: Map<String, Int>,
    private val merges: Merges,
    private val unknown: Int? = null,
    private val fuseUnknown: Boolean = false,
    private val bytes: List<Int?>? = null,
    private val wholeWords: Boolean = false,
) {
    private val cache = object : LinkedHashMap<String, IntArray>(16, 0.75f, true) {
        override fun removeEldestEntry(eldest: Map.Entry<String, IntArray>): Boolean = size > CACHED_WORDS
    }

    /** Words that are kept. */
    val cached: Int get() = cache.size

    fun encode(word: String): IntArray {
        if (wholeWords) ids[word]?.let { return intArrayOf(it) }
        if (word.length > LONGEST_CACHED) return merged(word)
        return cache[word] ?: merged(word).also { cache[word] = it }
    }

    private fun merged(word: String): IntArray {
        val tokens = characters(word)
        return if (tokens.size < 2) tokens else Merging(tokens).run()
    }

    /** The tokens of a word's characters. */
    private fun characters(word: String): IntArray {
        val found = ArrayList<Int>(word.length)
        var pending: Int? = null
        var at = 0
        while (at < word.length) {
            val end = at + Character.charCount(word.codePointAt(at))
            val char = word.substring(at, end)
            at = end
            val id = ids[char]
            if (id != null) {
                pending?.let(found::add)
                pending = null
                found.add(id)
                continue
            }
            // The library does not end a run of unknown characters here, and so puts it behind the bytes.
            val spelled = bytes?.let { spell(char, it) }
            if (spelled != null) {
                found.addAll(spelled)
            } else if (unknown != null) {
                if (!fuseUnknown) pending?.let(found::add)
                pending = unknown
            }
        }
        pending?.let(found::add)
        return found.toIntArray()
    }

    private fun spell(char: String, bytes: List<Int?>): List<Int>? {
        val found = char.toByteArray().map { bytes[it.toInt() and 0xff] }
        return found.filterNotNull().takeIf { it.size == found.size }
    }

    /** Merges neighbours, the lowest rank first and of equal ones the leftmost, in n log n steps. */
    private inner class Merging(private val tokens: IntArray) {
        private val before = IntArray(tokens.size) { it - 1 }
        private val after = IntArray(tokens.size) { if (it + 1 < tokens.size) it + 1 else Merges.NONE }
        private val queue = PriorityQueue<Long>()

        fun run(): IntArray {
            for (at in tokens.indices) offer(at)
            while (true) {
                val first = queue.poll() ?: break
                merge(first.toInt(), (first ushr 32).toInt())
            }
            return tokens.filter { it != GONE }.toIntArray()
        }

        /** Merges the token at a place with the next one, unless one of them has changed since. */
        private fun merge(at: Int, rank: Int) {
            val right = after[at]
            if (tokens[at] == GONE || right == Merges.NONE) return
            val now = merges.rank(tokens[at], tokens[right])
            // By what is made, as the library does: another pair may make the same token.
            if (now == Merges.NONE || merges.made(now) != merges.made(rank)) return
            tokens[at] = merges.made(rank)
            tokens[right] = GONE
            after[at] = after[right]
            if (after[at] != Merges.NONE) before[after[at]] = at
            if (before[at] != Merges.NONE) offer(before[at])
            offer(at)
        }

        private fun offer(at: Int) {
            val right = after[at]
            if (right == Merges.NONE) return
            val rank = merges.rank(tokens[at], tokens[right])
            if (rank != Merges.NONE) queue.add((rank.toLong() shl 32) or at.toLong())
        }
    }

    private companion object {
        const val CACHED_WORDS = 8192
        const val LONGEST_CACHED = 64
        const val GONE = -2
    }
}
