package dev.edgedec.demo

import dev.edgedec.core.Emission
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertNull
import org.junit.jupiter.api.Assertions.assertSame
import org.junit.jupiter.api.Test

class PassageTest {
    @Test
    fun `neighbours of one kind are one piece`() {
        val passage = Passage() + listOf(plain("a"), plain("b"), drafted("c")) + listOf(drafted("d"), plain("e"))
        assertEquals(listOf(Piece("ab", false), Piece("cd", true), Piece("e", false)), passage.pieces)
        assertEquals("abcde", passage.text)
        assertEquals(5 to 2, passage.tokens to passage.draftedTokens)
    }

    @Test
    fun `a token without characters counts and shows nothing`() {
        val passage = Passage() + listOf(plain("a"), drafted(""), plain("b"))
        assertEquals(listOf(Piece("ab", false)), passage.pieces)
        assertEquals(3 to 1, passage.tokens to passage.draftedTokens)
    }

    @Test
    fun `nothing new is the same passage`() {
        val passage = Passage() + listOf(plain("a"))
        assertSame(passage, passage + emptyList())
    }

    @Test
    fun `the pace leaves out the first round, whose time is the prompt's`() {
        val begun = Pace(beganNs = 0).after(4, 2_000_000_000)
        assertNull(begun.tokensPerSecond)
        assertEquals(2.0, begun.firstTokenS)
        assertEquals(6.0, begun.after(3, 2_500_000_000).after(3, 3_000_000_000).tokensPerSecond)
    }

    private fun plain(text: String) = Emission(0, text, drafted = false)

    private fun drafted(text: String) = Emission(0, text, drafted = true)
}
