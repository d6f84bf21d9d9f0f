package dev.edgedec.core

import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test

class SplitTest {
    private val all = KNOWN_SPLITS + ("Digits" to WholeNumbers)

    private fun joinsAgain(words: Words) = draws(300) { random ->
        val text = random.text(random.nextInt(60))
        val found = words.of(text)
        if (found.joinToString("") != text || found.any { it.isEmpty() || isUnpaired(it) }) throw AssertionError(text)
    }

    @Test
    fun `words joined are the text, and no word ends inside a character`() = all.values.forEach(::joinsAgain)

    @Test
    fun `words that end inside a character are flagged`() = mustFlag { joinsAgain { _, from -> from + 1 } }

    /** The same expressions run by Java, on characters whose classes are the same there. */
    @Test
    fun `words are those of the expressions`() {
        for ((expression, words) in KNOWN_SPLITS) {
            val regex = Regex(expression)
            draws(300) { random ->
                val text = String(CharArray(random.nextInt(40)) { CHARS[random.nextInt(CHARS.length)] })
                // What is between two matches is a word, too.
                val expected = ArrayList<String>()
                var at = 0
                for (match in regex.findAll(text)) {
                    if (match.range.first > at) expected += text.substring(at, match.range.first)
                    expected += match.value
                    at = match.range.last + 1
                }
                if (at < text.length) expected += text.substring(at)
                assertEquals(expected, words.of(text), text)
            }
        }
    }

    @Test
    fun `each of the expressions is told from the others`() {
        val texts = listOf("it's IT'S a'\u017fb 12345 x!y\n\n  z 1", "'Reilly", " 1", "\n a", "!\n!")
        val kinds = KNOWN_SPLITS.values.map { words -> texts.map { words.of(it) } }
        // GPT-2's is written in two ways.
        assertEquals(KNOWN_SPLITS.size - 1, kinds.distinct().size)
    }

    @Test
    fun `letters and numbers are this platform's, except newer ones`() {
        var newer = 0
        for (char in 0..Character.MAX_CODE_POINT) {
            val type = Character.getType(char).toByte()
            if (type == Character.UNASSIGNED) {
                if (isLetter(char) || isNumber(char)) newer++
                continue
            }
            val number = type in listOf(Character.DECIMAL_DIGIT_NUMBER, Character.LETTER_NUMBER, Character.OTHER_NUMBER)
            val found = isLetter(char) to isNumber(char)
            if (found != Character.isLetter(char) to number) throw AssertionError("U+%04X".format(char))
        }
        assertTrue(newer < 20_000, "$newer")
    }

    @Test
    fun `long texts take time in proportion`() {
        val runs = listOf("a", " ", "1", "!", "'", "'l", "\n", " \n", "\n ", "a ", " a", "!\n", "\ud83d\ude42")
        for (words in all.values) for (run in runs) {
            val text = run.repeat(300_000 / run.length)
            val found = soon { words.of(text) }
            assertEquals(text.length, found.sumOf { it.length })
        }
    }

    private companion object {
        const val CHARS = "aab1  2'''sSTtLlreVEdm!.?\n\r\t\u00e9\u6f22\u0663_"
    }
}
