package dev.edgedec.core

import java.util.Random
import org.junit.jupiter.api.Assertions.assertArrayEquals
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test

class BpeTest {
    /** A random vocabulary over few letters. */
    private class Drawn(random: Random) {
        val tokens = arrayListOf("a", "b", "c", "d")
        val pairs = ArrayList<Pair<String, String>>()

        init {
            repeat(5 + random.nextInt(25)) {
                val left = tokens[random.nextInt(tokens.size)]
                val right = tokens[random.nextInt(tokens.size)]
                if (left to right !in pairs) {
                    pairs += left to right
                    if (left + right !in tokens) tokens += left + right
                }
            }
        }

        val ids = tokens.withIndex().associate { (id, token) -> token to id }

        fun model() = Bpe(
            ids,
            Merges().also { merges ->
                for ((left, right) in pairs) {
                    merges.add(ids.getValue(left), ids.getValue(right), ids.getValue(left + right))
                }
            },
        )

        /** One merge after the other, each found by looking at all pairs. */
        fun slowly(word: String): List<String> {
            val found = word.map { "$it" }.toMutableList()
            while (true) {
                val at = (0 until found.size - 1).filter { found[it] to found[it + 1] in pairs }
                    .minByOrNull { pairs.indexOf(found[it] to found[it + 1]) } ?: return found
                found[at] += found.removeAt(at + 1)
            }
        }
    }

    private fun equalsSlow(model: (Drawn) -> Bpe) = draws(300) { random ->
        val drawn = Drawn(random)
        // Where two pairs make the same token the library may take the earlier rank, which this does not look for.
        if (drawn.pairs.distinctBy { it.first + it.second }.size < drawn.pairs.size) return@draws
        val bpe = model(drawn)
        repeat(20) {
            val word = String(CharArray(1 + random.nextInt(20)) { 'a' + random.nextInt(4) })
            val found = bpe.encode(word).map { drawn.tokens[it] }
            val slow = drawn.slowly(word)
            if (found != slow) throw AssertionError("$word: $found, $slow by ${drawn.pairs}")
        }
    }

    @Test
    fun `merges are those of looking at all pairs`() = equalsSlow { it.model() }

    @Test
    fun `merges of another order are flagged`() = mustFlag {
        equalsSlow { drawn -> drawn.also { it.pairs.reverse() }.model().also { drawn.pairs.reverse() } }
    }

    @Test
    fun `a long word takes time in proportion`() {
        val tokens = (0..16).map { "a".repeat(1 shl it) } + "b"
        val ids = tokens.withIndex().associate { (id, token) -> token to id }
        val bpe = Bpe(ids, Merges().also { for (id in 0 until 16) it.add(id, id, id + 1) })
        for (run in listOf("a", "ab", "b", "\ud83d\ude42")) {
            val word = run.repeat(100_000)
            val found = soon { bpe.encode(word) }
            val plain = word.replace("\ud83d\ude42", "")
            assertEquals(plain, found.joinToString("") { tokens[it] })
        }
    }

    @Test
    fun `unknown characters`() {
        val ids = mapOf("a" to 0, "?" to 1, "<0xC3>" to 2, "<0xA9>" to 3)
        val bytes = (0..255).map { ids["<0x%02X>".format(it)] }
        fun model(unknown: Int?, fuse: Boolean, spelled: Boolean) =
            Bpe(ids, Merges(), unknown, fuse, if (spelled) bytes else null).encode("a\u4e16\u4e16\u00e9a").toList()
        assertEquals(listOf(0, 0), model(null, fuse = false, spelled = false))
        assertEquals(listOf(0, 1, 1, 1, 0), model(1, fuse = false, spelled = false))
        assertEquals(listOf(0, 1, 0), model(1, fuse = true, spelled = false))
        assertEquals(listOf(0, 2, 3, 0), model(null, fuse = false, spelled = true))
        assertEquals(listOf(0, 2, 3, 1, 0), model(1, fuse = true, spelled = true))
    }

    @Test
    fun `the cache is bounded and changes nothing`() {
        val ids = ('a'..'z').withIndex().associate { (id, char) -> "$char" to id }
        val bpe = Bpe(ids, Merges())
        draws(1) { random ->
            repeat(50_000) {
                val word = String(CharArray(6) { 'a' + random.nextInt(26) })
                assertArrayEquals(word.map { it - 'a' }.toIntArray(), bpe.encode(word))
            }
        }
        assertTrue(bpe.cached <= 8192)
    }
}
