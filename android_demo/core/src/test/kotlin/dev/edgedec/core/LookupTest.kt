package dev.edgedec.core

import org.junit.jupiter.api.Assertions.assertArrayEquals
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertNull
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test

class LookupTest {
    private val texts = examples { random -> random.tokens(random.nextInt(1, 60), random.nextInt(1, 5)) }

    /** Where the longest earlier copy of the tail continues, of equals the newest. */
    private fun search(text: IntArray): Int? {
        fun matched(follower: Int) =
            (0 until minOf(8, follower)).takeWhile { text[follower - 1 - it] == text[text.size - 1 - it] }.size
        return (1 until text.size).filter { matched(it) >= 2 }.maxWithOrNull(compareBy(::matched) { it })
    }

    private fun check(find: (NgramIndex, Tokens) -> Int?) = { text: IntArray ->
        val index = NgramIndex()
        val grown = Tokens()
        index.follow(grown)
        for (length in text.indices) {
            grown.add(text[length])
            assertEquals(search(text.copyOf(length + 1)), find(index, grown))
        }
    }

    @Test
    fun `the index finds what searching finds`() {
        holds(texts, property = check { index, _ -> index.find() })
    }

    @Test
    fun `an older copy is caught`() {
        assertTrue(isBroken(texts, property = check { index, text -> index.find()?.let { minOf(it, text.size / 2) } }))
    }

    @Test
    fun `another text is indexed anew, one that goes on is not`() {
        holds(examples { random -> List(3) { random.tokens(random.nextInt(1, 30), 3) } }) { (first, second, third) ->
            val index = NgramIndex()
            for (text in listOf(first, first + second, first + third, second)) {
                index.follow(Tokens(text))
                assertEquals(search(text), index.find())
            }
        }
    }

    @Test
    fun `a copy that reaches the tail repeats itself`() {
        val drafter = LookupDrafter()
        drafter.begin(Sampler(Sampling(), 16, intArrayOf(9, 1, 2, 3, 1, 2, 3)))
        assertArrayEquals(intArrayOf(1, 2, 3, 1, 2, 3, 1), drafter.propose(7, FixedLength(7)))
    }

    @Test
    fun `nothing is found in a text that is new`() {
        assertNull(NgramIndex().apply { follow(Tokens(intArrayOf(1, 2, 3, 4))) }.find())
    }
}
