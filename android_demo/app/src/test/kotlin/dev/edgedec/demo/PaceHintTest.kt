package dev.edgedec.demo

import dev.edgedec.core.Emission
import dev.edgedec.core.Figures
import dev.edgedec.core.Listener
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Test

class PaceHintTest {
    private val told = mutableListOf<String>()
    private val heard = mutableListOf<String>()
    private var now = 0L

    private val listener = object : Listener {
        override fun onTokens(tokens: List<Emission>) {
            heard += "${tokens.size}"
        }

        override fun onEnd(figures: Figures) {
            heard += figures.reason
        }

        override fun onError(message: String) {
            heard += message
        }
    }

    private inner class Recorded(first: Long) : HintSession {
        init {
            told += "begin $first"
        }

        override fun target(tokenNs: Long) {
            told += "target $tokenNs"
        }

        override fun report(tokenNs: Long) {
            told += "report $tokenNs"
        }

        override fun close() {
            told += "close"
        }
    }

    @Test
    fun `the target is the least time of a token after the first round`() {
        val following = PaceHint({ now }, ::Recorded).follow(listener)
        round(following, after = 900, tokens = 1)
        round(following, after = 300, tokens = 3)
        round(following, after = 80, tokens = 1)
        round(following, after = 120, tokens = 1)
        following.onEnd(figures())
        assertEquals(listOf("begin 100", "report 100", "target 80", "report 80", "report 120", "close"), told)
        assertEquals(listOf("1", "3", "1", "1", "length"), heard)
    }

    @Test
    fun `a text that fails closes its session`() {
        val following = PaceHint({ now }, ::Recorded).follow(listener)
        round(following, after = 1, tokens = 1)
        round(following, after = 1, tokens = 1)
        following.onError("no")
        assertEquals("close", told.last())
        assertEquals("no", heard.last())
    }

    @Test
    fun `a phone that takes no hints is asked once a text`() {
        var asked = 0
        val following = PaceHint({ now }, { asked++; null }).follow(listener)
        repeat(5) { round(following, after = 10, tokens = 1) }
        following.onEnd(figures())
        assertEquals(1, asked)
        assertEquals(6, heard.size)
    }

    private fun round(following: Listener, after: Long, tokens: Int) {
        now += after
        following.onTokens(List(tokens) { Emission(it, "a", drafted = it > 0) })
    }

    private fun figures() = Figures("length", 1, 0, 1, 1, 0, 0, 0.1, null, 0)
}
