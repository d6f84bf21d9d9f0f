package dev.edgedec.demo

import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertFalse
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test

class HeatTest {
    private val heat = Heat()

    @Test
    fun `from severe on it is hot, and cool only when it is light`() {
        val changes = listOf(0, 2, 3, 6, 2, 3, 1, 2).map { heat.update(it) }
        assertEquals(listOf(false, false, true, false, false, false, true, false), changes)
        assertFalse(heat.hot)
    }

    @Test
    fun `a phone that does not tell is never hot`() {
        assertFalse(heat.update(null))
        assertEquals(4, heat.threads(4, null))
    }

    @Test
    fun `a thread fewer than chosen, or than the decoder took, but one at least`() {
        assertEquals(null, heat.threads(null, 4))
        assertTrue(heat.update(4))
        assertEquals(3, heat.threads(4, 2))
        assertEquals(1, heat.threads(null, 2))
        assertEquals(1, heat.threads(1, null))
        assertEquals(null, heat.threads(null, null))
    }
}
