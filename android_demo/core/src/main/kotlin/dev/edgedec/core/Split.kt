package dev.edgedec.core

/** Cuts a text into words, as a pre-tokenizer's regular expression does; every character belongs to a word. */
internal fun interface Words {
    /** Where the word ends that begins at [from]. */
    fun end(text: String, from: Int): Int
}

internal fun Words.of(text: String): List<String> {
    val found = ArrayList<String>()
    var from = 0
    while (from < text.length) {
        val end = end(text, from)
        found += text.substring(from, end)
        from = end
    }
    return found
}

/** Which endings as in "it's" are a word of their own: in lower case, in both cases, or also with U+017F for s. */
internal enum class Shortened { LOWER, ASCII, FOLDED }

/**
 * The words of GPT-2 and what followed it: shortened forms, letters, numbers, other signs, and white space, whose last
 * character is left to the word behind it.
 *
 * Written by hand, since `\p{L}` of an expression is another set on each version of Android, and for linear time.
 *
 * @param anyLead whether any sign or space may stand before letters, not a space only
 * @param digits the most digits of a word; 0 is any number, with a space before them
 * @param lineEnds whether signs and white space take the line ends after them
 */
internal class WordSplit(
    private val shortened: Shortened,
    private val anyLead: Boolean,
    private val digits: Int,
    private val lineEnds: Boolean,
) : Words {
    override fun end(text: String, from: Int): Int {
        val short = shortenedEnd(text, from)
        if (short > from) return short
        val char = text.codePointAt(from)
        val next = from + Character.charCount(char)
        val space = char == ' '.code
        // What may stand before letters, or before signs and in some before numbers, is taken only if they follow.
        val lead = if (anyLead) !isLineEnd(char) && !isLetter(char) && !isNumber(char) else space
        val letters = if (lead) next else from
        run(text, letters, ::isLetter).let { if (it > letters) return it }
        val numbers = if (space && digits == 0) next else from
        numbersEnd(text, numbers).let { if (it > numbers) return it }
        val signs = if (space) next else from
        run(text, signs, ::isSign).let { if (it > signs) return if (lineEnds) run(text, it, ::isLineEnd) else it }
        return spacesEnd(text, from)
    }

    private fun shortenedEnd(text: String, from: Int): Int {
        if (text[from] != '\'') return from
        val first = if (from + 1 < text.length) folded(text[from + 1]) else return from
        if (first in "stmd") return from + 2
        val second = if (from + 2 < text.length) folded(text[from + 2]) else return from
        val two = (first == 'r' && second == 'e') || (first == 'v' && second == 'e') || (first == 'l' && second == 'l')
        return if (two) from + 3 else from
    }

    private fun folded(char: Char): Char = when {
        shortened != Shortened.LOWER && char in 'A'..'Z' -> char + ('a' - 'A')
        shortened == Shortened.FOLDED && char == LONG_S -> 's'
        else -> char
    }

    private fun numbersEnd(text: String, from: Int): Int {
        if (digits == 0) return run(text, from, ::isNumber)
        var at = from
        var left = digits
        while (at < text.length && left-- > 0) {
            val char = text.codePointAt(at)
            if (!isNumber(char)) break
            at += Character.charCount(char)
        }
        return at
    }

    /** The end of white space: its last line end, or before the last character that another word may begin with. */
    private fun spacesEnd(text: String, from: Int): Int {
        val end = run(text, from, ::isSpace)
        if (lineEnds) {
            for (at in end - 1 downTo from) if (isLineEnd(text[at].code)) return at + 1
        }
        return if (end == text.length || end == from + 1) end else end - 1
    }

    private companion object {
        const val LONG_S = '\u017f'
    }
}

/** Each number alone, and what is between them. */
internal object EachNumber : Words {
    override fun end(text: String, from: Int): Int {
        val char = text.codePointAt(from)
        return if (isNumber(char)) from + Character.charCount(char) else run(text, from) { !isNumber(it) }
    }
}

/** Numbers as a whole, and what is between them. */
internal object WholeNumbers : Words {
    override fun end(text: String, from: Int): Int =
        if (isNumber(text.codePointAt(from))) run(text, from, ::isNumber) else run(text, from) { !isNumber(it) }
}

/** Where characters end that are of a kind. */
private inline fun run(text: String, from: Int, kind: (Int) -> Boolean): Int {
    var at = from
    while (at < text.length) {
        val char = text.codePointAt(at)
        if (!kind(char)) break
        at += Character.charCount(char)
    }
    return at
}

private fun isLineEnd(char: Int): Boolean = char == '\n'.code || char == '\r'.code

private fun isSign(char: Int): Boolean = !isSpace(char) && !isLetter(char) && !isNumber(char)

private const val GPT2 = "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)"
private const val ANY_CASE = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
private const val BOTH_CASES = "'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]"
private const val WORD = "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
private const val REST = " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/** GPT-2's words, also those of a ByteLevel pre-tokenizer. */
internal val GPT2_WORDS = WordSplit(Shortened.LOWER, anyLead = false, digits = 0, lineEnds = false)

/** The expressions that are known, by their exact text: GPT-2's, Llama 3's, Qwen's, and a number by itself. */
internal val KNOWN_SPLITS: Map<String, Words> = mapOf(
    GPT2 to GPT2_WORDS,
    "$GPT2|\\s+" to GPT2_WORDS,
    "$ANY_CASE|$WORD|\\p{N}{1,3}|$REST" to modern(Shortened.FOLDED, 3),
    "$BOTH_CASES|$WORD|\\p{N}{1,3}|$REST" to modern(Shortened.ASCII, 3),
    "$ANY_CASE|$WORD|\\p{N}|$REST" to modern(Shortened.FOLDED, 1),
    "$BOTH_CASES|$WORD|\\p{N}|$REST" to modern(Shortened.ASCII, 1),
    "\\p{N}" to EachNumber,
)

private fun modern(shortened: Shortened, digits: Int) =
    WordSplit(shortened, anyLead = true, digits = digits, lineEnds = true)
