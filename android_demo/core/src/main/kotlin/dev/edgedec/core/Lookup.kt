package dev.edgedec.core

private const val SHORTEST = 2
private const val LONGEST = 8

// An odd factor: multiplying by it loses no digit of an n-gram.
private const val BASE = 0x5851F42D4C957F2DL

/**
 * Index of where each n-gram of a growing text last occurred with a continuation; a port of
 * `edgedec/decoding/drafting/lookup.py`.
 *
 * An n-gram's key is a number of 64 bits, from its last token to its first. A longer n-gram is entered once its
 * shorter tail has occurred twice, so that a token of a text that does not repeat itself costs one entry. What a key
 * finds is compared with the text, so that equal keys of different n-grams do no harm.
 */
internal class NgramIndex(private val shortest: Int = SHORTEST, private val longest: Int = LONGEST) {
    private val after = HashMap<Long, Int>()
    private var text = Tokens()
    private var done = 0

    /** Indexes another text, and only what is new if it continues the last one. */
    fun follow(text: Tokens) {
        if (text.shared(this.text) <= done) {
            after.clear()
            done = 0
        }
        this.text = text
    }

    /** Returns where the longest earlier copy of the text's tail continues, of equals the newest; null without one. */
    fun find(): Int? {
        val last = text.size - 1
        for (end in done until last) add(end)
        done = maxOf(done, last)
        return match(last)
    }

    private fun add(end: Int) {
        // Only n-grams with a continuation are entered, so the tail never finds itself.
        val follower = end + 1
        var key = 0L
        for (length in 1..minOf(longest, follower)) {
            key = longer(key, text[follower - length])
            if (length < shortest) continue
            // The only one of its kind ends here: what is longer is read in the text.
            val before = after.put(key, follower) ?: return
            if (before > length && length < longest) {
                val older = longer(key, text[before - length - 1])
                if (older !in after) after[older] = before
            }
        }
    }

    private fun match(end: Int): Int? {
        var key = 0L
        var found: Int? = null
        for (length in 1..minOf(longest, end + 1)) {
            key = longer(key, text[end + 1 - length])
            if (length < shortest) continue
            val follower = after[key] ?: break // no longer n-gram is entered
            if ((1..length).any { text[follower - it] != text[end + 1 - it] }) break
            found = follower
        }
        return found
    }

    private fun longer(key: Long, token: Int): Long = key * BASE + token + 1
}

/** Proposes what followed the longest earlier copy of the text's tail. */
class LookupDrafter : DraftSource {
    private val index = NgramIndex()
    private var text = Tokens()

    override val name get() = "lookup"

    override fun begin(sampler: Sampler) {
        text = sampler.history
        index.follow(text)
    }

    override fun propose(length: Int, lengths: Lengths): IntArray {
        val start = index.find() ?: return IntArray(0)
        val drafted = IntArray(length)
        var count = 0
        while (count < length && lengths.goOn(this, count)) {
            // A copy that reaches the tail repeats itself, as in LZ77.
            val here = start + count
            drafted[count++] = if (here < text.size) text[here] else drafted[here - text.size]
        }
        return drafted.copyOf(count)
    }
}
