package dev.edgedec.core

/** For callers that want token ids only. */
internal object NoText : TextStream {
    override fun push(token: Int): String = ""
    override fun flush(): String = ""
}

/** Tokens that belong to the text, and the text that each of them completes. */
class Cut(val tokens: IntArray, val texts: List<String>)

/**
 * Ends one text at a token, a length or a string; a port of `edgedec/decoding/stopping.py`.
 *
 * The token that ends a text is part of it: an EOS token is kept and counted but has no text; the token that
 * completes a stop string is kept, and the text is cut right before the string. Of several stop strings the one
 * completed first counts, and of those the longest, so the text does not depend on how it is cut into tokens. Only the
 * new text is searched, not the prompt.
 *
 * @param stream turns tokens into text; needed for stop strings
 * @throws InputException for a limit below 1, an empty stop string, or stop strings without a stream
 */
class StopRule(
    private val eosIds: Set<Int> = emptySet(),
    maxNewTokens: Int,
    stopStrings: List<String> = emptyList(),
    private val stream: TextStream = NoText,
) {
    init {
        if (maxNewTokens < 1) throw InputException("max_new_tokens $maxNewTokens: expected 1 or more")
        if ("" in stopStrings) throw InputException("an empty stop string: expected at least one character")
        if (stopStrings.isNotEmpty() && stream == NoText) {
            throw InputException("stop strings need the text: give a tokenizer's stream as well")
        }
    }

    private val stops = stopStrings.distinct()
    private val text = StringBuilder()
    private var held = ""
    private var left = maxNewTokens

    /** Null while the text goes on, then `eos`, `stop`, `length` or `cancelled`. */
    var reason: String? = null
        private set

    /** Tokens left before the limit; 0 once the text has ended. */
    val remaining: Int get() = if (reason == null) left else 0

    /** Lowers the limit to what a session has room for. */
    fun limit(tokens: Int) {
        left = minOf(left, tokens)
    }

    /**
     * Returns the tokens up to the end of the text, and sets [reason] if it ends among them.
     *
     * Text that may begin a stop string is held back until that is decided.
     */
    fun cut(tokens: IntArray): Cut {
        val texts = ArrayList<String>(tokens.size)
        for (token in tokens) {
            if (reason != null) break
            texts += take(token)
        }
        texts.forEach(text::append)
        return Cut(tokens.copyOf(texts.size), texts)
    }

    /** Ends the text, as `cancelled` unless it has ended; returns what was held back, once. */
    fun end(): String {
        if (reason == null) reason = "cancelled"
        return flush().also(text::append)
    }

    /** Ends the text likewise, and returns all of it. */
    fun finish(): String {
        end()
        return text.toString()
    }

    private fun take(token: Int): String {
        left--
        if (token in eosIds) {
            reason = "eos"
            return flush()
        }
        val shown = release(stream.push(token))
        if (reason != null || left > 0) return shown
        reason = "length"
        return shown + flush()
    }

    /** Returns the end of the text; empty after a stop string, and the second time. */
    private fun flush(): String {
        if (reason == "stop") return ""
        val shown = release(stream.flush())
        if (reason == "stop") return shown
        return (shown + held).also { held = "" }
    }

    /** Appends [more] to what is held, and returns what is safe to show. */
    private fun release(more: String): String {
        if (stops.isEmpty()) return more
        val known = held + more
        val match = firstMatch(known)
        if (match >= 0) {
            reason = "stop"
            held = ""
            return known.substring(0, match)
        }
        val safe = known.length - undecided(known)
        held = known.substring(safe)
        return known.substring(0, safe)
    }

    /** Returns where the stop string completed first begins, the longest of equals; -1 if none is complete. */
    private fun firstMatch(known: String): Int {
        var start = -1
        var end = Int.MAX_VALUE
        for (stop in stops) {
            val found = known.indexOf(stop)
            if (found < 0 || found + stop.length > end || (found + stop.length == end && found > start)) continue
            start = found
            end = found + stop.length
        }
        return start
    }

    /** Returns the length of the longest end of [known] that begins a stop string. */
    private fun undecided(known: String): Int {
        val longest = stops.maxOf { it.length } - 1
        return (minOf(longest, known.length) downTo 1).firstOrNull { size ->
            stops.any { it.regionMatches(0, known, known.length - size, size) }
        } ?: 0
    }
}
