package dev.edgedec.core

import org.junit.jupiter.api.Assertions.assertArrayEquals
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertNull
import org.junit.jupiter.api.Test

class PaddingTest {
    @Test
    fun `rows and slack are those of Python`() {
        val rows = Padding.ALL.associate { padding -> padding.name to listOf(1, 2, 3, 8, 16, 17, 33).map(padding::rows) }
        assertEquals(
            mapOf(
                "none" to listOf(1, 2, 3, 8, 16, 17, 33),
                "no lone row in attention" to listOf(2, 2, 3, 8, 16, 18, 34),
                "no lone row" to listOf(2, 2, 3, 8, 16, 18, 34),
                "even" to listOf(2, 2, 4, 8, 16, 18, 34),
                "multiple of 4" to listOf(4, 4, 4, 8, 16, 20, 36),
            ),
            rows,
        )
        assertEquals(listOf(0, 1, 1, 1, 3), Padding.ALL.map { it.slack })
    }

    @Test
    fun `padding repeats the last token`() {
        assertArrayEquals(intArrayOf(4, 5, 5, 5), Padding("4", multiple = 4).pad(intArrayOf(4, 5)))
        assertArrayEquals(intArrayOf(7), Padding.ALL[1].pad(intArrayOf(7)))
    }

    @Test
    fun `the cheapest padding that holds is found`() {
        assertEquals("none", found { _ -> 0 })
        assertEquals("no lone row", found { rows -> if (rows % 16 == 1) 1 else 0 })
        assertEquals("even", found { rows -> rows % 2 })
        assertEquals("multiple of 4", found { rows -> rows % 4 })
        assertNull(found { rows -> rows })
    }

    @Test
    fun `a difference in the cache alone counts`() {
        assertNull(findPadding(100, listOf(Padding.NONE)) { _, tokens, _ ->
            tokens.map { ComputedRow(floatArrayOf(0f), byteArrayOf(tokens.size.toByte())) }
        })
    }

    @Test
    fun `zero rows only where the runtime computes them`() {
        val versions = listOf("1.29.0", "1.30.2", "1.31.0", "1.32.0-dev", "2.0", "0.40", "unknown")
        assertEquals(listOf(1, 1, 0, 0, 0, 1, 1), versions.map(Passes::leastRows))
    }

    /** Returns the padding for kernels whose bits depend on the number of rows as [noise] says. */
    private fun found(noise: (Int) -> Int): String? = findPadding(100, Padding.ALL.filterNot { it.attentionOnly }) {
            padding, tokens, past ->
        val rows = padding.pad(tokens).size
        List(tokens.size) { ComputedRow(floatArrayOf(tokens[it] + past + it + noise(rows) / 8f), byteArrayOf(1)) }
    }?.name
}
