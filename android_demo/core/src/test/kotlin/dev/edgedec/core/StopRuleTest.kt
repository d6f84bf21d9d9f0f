package dev.edgedec.core

import kotlin.random.Random
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test

class StopRuleTest {
    private class Example(random: Random) {
        val tokens = random.tokens(random.nextInt(1, 30), 16)
        val stops = List(random.nextInt(3)) { random.letters(random.nextInt(1, 5)) }
        val limit = random.nextInt(1, 30)
        val eos = setOf(random.nextInt(40))
        val parts = List(30) { random.nextInt(1, 5) }
    }

    private val any = examples(::Example)

    private fun rule(one: Example, stream: TextStream = FakeStream()) = StopRule(one.eos, one.limit, one.stops, stream)

    /** The whole text by looking at all of it at once. */
    private fun expected(one: Example): String {
        val end = one.tokens.indexOfFirst { it in one.eos }.let { if (it < 0) one.tokens.size else it }
        val text = FakeStream.text(one.tokens.copyOf(minOf(end, one.limit)))
        val found = one.stops.filter { it in text }.map { text.indexOf(it) to it.length }
        val first = found.minWithOrNull(compareBy({ it.first + it.second }, { it.first })) ?: return text
        return text.substring(0, first.first)
    }

    private fun check(rest: (StopRule) -> String = StopRule::end, make: (Example) -> StopRule) = { one: Example ->
        val rule = make(one)
        val shown = StringBuilder()
        var at = 0
        for (part in one.parts) {
            if (rule.reason != null || at == one.tokens.size) break
            val tokens = one.tokens.copyOfRange(at, minOf(at + part, one.tokens.size))
            val cut = rule.cut(tokens)
            at += cut.tokens.size
            cut.texts.forEach(shown::append)
            assertTrue(expected(one).startsWith(shown)) { "showed '$shown' of '${expected(one)}'" }
        }
        if (rule.reason != null) assertEquals(expected(one), shown.toString())
        assertEquals(expected(one), shown.toString() + rest(rule))
        assertEquals(expected(one), rule.finish())
    }

    @Test
    fun `pieces are the text up to its end, however it is cut into tokens and rounds`() {
        holds(any, 2000, check { rule(it) })
    }

    @Test
    fun `a rule that keeps what it holds back is caught`() {
        assertTrue(isBroken(any, 2000, check(rest = { "" }) { rule(it) }))
    }

    @Test
    fun `a stream that does not hold back is caught`() {
        assertTrue(
            isBroken(any, 2000, check { one ->
                val eager = object : TextStream by FakeStream() {
                    override fun push(token: Int) = FakeStream.letter(token).toString()
                    override fun flush() = "?"
                }
                rule(one, eager)
            }),
        )
    }

    @Test
    fun `a rule that forgets the second stop string is caught`() {
        assertTrue(isBroken(any, 2000, check { StopRule(it.eos, it.limit, it.stops.take(1), FakeStream()) }))
    }

    @Test
    fun `a stop string completed by the end of the text cuts it`() {
        // Token 2 is held back until the text ends.
        val rule = StopRule(emptySet(), 2, listOf("bc"), FakeStream())
        assertEquals(listOf("", ""), rule.cut(intArrayOf(1, 2)).texts)
        assertEquals("stop" to "", rule.reason to rule.finish())
    }

    @Test
    fun `limits and strings that make no sense are refused`() {
        assertThrows(InputException::class.java) { StopRule(maxNewTokens = 0) }
        assertThrows(InputException::class.java) { StopRule(emptySet(), 1, listOf(""), FakeStream()) }
        assertThrows(InputException::class.java) { StopRule(emptySet(), 1, listOf("a")) }
    }
}
