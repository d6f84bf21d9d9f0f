package dev.edgedec.core

import org.junit.jupiter.api.Assertions.assertArrayEquals
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertNull
import org.junit.jupiter.api.Test

class PaddingTest {
    @Test
    fun `rows and slack are those of Python`() {
        val counts = listOf(1, 2, 3, 8, 16, 17, 33)
        val rows = Paddings.ELSEWHERE.asked.associate { it.name to counts.map { count -> it.rows(count, 5) } }
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
        val fours = Paddings.ON_ARM.asked.last()
        assertEquals(listOf(4, 3, 2, 5), (8..11).map { fours.rows(1, it) })
        assertEquals(listOf(5, 5, 21, 21), listOf(2, 5, 14, 17).map { fours.rows(it, 3) })
        for (padding in Paddings.ELSEWHERE.asked + Paddings.ON_ARM.asked) {
            val added = (1..99).flatMap { count -> (0..7).map { past -> padding.rows(count, past) - count } }
            assertEquals(added.max(), padding.slack, padding.name)
        }
    }

    @Test
    fun `padding repeats the last token`() {
        assertArrayEquals(intArrayOf(4, 5, 5, 5), Padding("4", Rule(multiple = 4)).pad(intArrayOf(4, 5), 3))
        assertArrayEquals(intArrayOf(7), Paddings.ON_ARM.asked[0].pad(intArrayOf(7), 3))
        assertArrayEquals(intArrayOf(7, 7), Paddings.ON_ARM.asked[1].pad(intArrayOf(7), 3))
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
    fun `keys are padded to fours where the last columns differ`() {
        val run: PaddedPass = { padding, tokens, past ->
            val rows = padding.rows(tokens.size, past)
            val regular = (past + rows) / 4 * 4
            List(tokens.size) { row ->
                val off = (if (past + row >= regular) 1 else 0) + (if (rows == 1) 2 else 0)
                ComputedRow(floatArrayOf(tokens[row] + past + row + off / 8f), byteArrayOf(1))
            }
        }
        assertEquals("keys by fours in attention", findPadding(100, Paddings.ON_ARM.asked, run)?.name)
        assertNull(findPadding(100, Paddings.ELSEWHERE.asked, run))
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
    private fun found(noise: (Int) -> Int): String? = findPadding(100, Paddings.ELSEWHERE.asked.filter { it.attention == null }) {
            padding, tokens, past ->
        val rows = padding.pad(tokens, past).size
        List(tokens.size) { ComputedRow(floatArrayOf(tokens[it] + past + it + noise(rows) / 8f), byteArrayOf(1)) }
    }?.name
}
