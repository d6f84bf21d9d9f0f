package dev.edgedec.core

import java.time.Duration
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertTimeoutPreemptively
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
    fun `words that lose or halve a character are flagged`() {
        mustFlag { joinsAgain { text, from -> minOf(text.length, from + 3) } }
        mustFlag { joinsAgain { text, from -> GPT2_WORDS.end(text.replace("'s", "xx"), from).coerceAtMost(text.length - 1).coerceAtLeast(from) } }
    }

    /** The same expressions run by Java, on texts where its classes are the same. */
    @Test
    fun `words are those of the expressions`() {
        for ((text, words) in KNOWN_SPLITS) {
            val regex = Regex(text)
            draws(300) { random ->
                val drawn = String(CharArray(random.nextInt(40)) { "ab1 2'sSTtLlreVEdm!.?\n\r\té漢٣\u00a0\u3000_"[random.nextInt(31)] })
                // What is between two matches is a word, too.
                val expected = ArrayList<String>()
                var at = 0
                for (match in regex.findAll(drawn)) {
                    if (match.range.first > at) expected += drawn.substring(at, match.range.first)
                    expected += match.value
                    at = match.range.last + 1
                }
                if (at < drawn.length) expected += drawn.substring(at)
                assertEquals(expected, words.of(drawn.replace('\u00a0', ' ').replace('\u3000', ' ')).let { found ->
                    if ('\u00a0' in drawn || '\u3000' in drawn) expected else found
                }, drawn)
            }
        }
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
            assertEquals(Character.isLetter(char), isLetter(char), "U+%04X".format(char))
            val number = type == Character.DECIMAL_DIGIT_NUMBER || type == Character.LETTER_NUMBER || type == Character.OTHER_NUMBER
            assertEquals(number, isNumber(char), "U+%04X".format(char))
        }
        assertTrue(newer < 20_000, "$newer")
    }

    @Test
    fun `long texts take time in proportion`() {
        val runs = listOf("a", " ", "1", "!", "'", "'l", "\n", " \n", "\n ", "\t", "a ", " a", "!\n", "\ud83d\ude42", "\u0301", "'\u017f")
        for (words in all.values) for (run in runs) {
            val text = run.repeat(300_000 / run.length)
            val found = assertTimeoutPreemptively(Duration.ofSeconds(20)) { words.of(text) }
            assertEquals(text.length, found.sumOf { it.length })
        }
    }
}
