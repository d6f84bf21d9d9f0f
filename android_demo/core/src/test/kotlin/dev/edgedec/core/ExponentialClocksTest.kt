package dev.edgedec.core

import kotlin.math.round
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertNull
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test

class ExponentialClocksTest {
    private class Example(val scores: FloatArray, private val key: Long) {
        /** New each time: noise that is made already would not be made lazily. */
        val noise: Noise get() = Noise(key, scores.size)
    }

    /** Rows of a large vocabulary: peaked and flat, with equal scores, with columns that are not tokens. */
    private val rows = examples { random ->
        val size = random.nextInt(SMALL_VOCABULARY + 1, 4 * SMALL_VOCABULARY)
        val spread = random.pick(0.0, 0.1, 1.0, 4.0, 30.0)
        val steps = random.pick(0.5, 4.0, 1e6)
        val missing = random.pick(0.0, 0.0, 0.5, 0.999)
        val scores = FloatArray(size) {
            val score = spread * (random.nextDouble() + random.nextDouble() + random.nextDouble() - 1.5)
            if (random.nextDouble() < missing) Float.NEGATIVE_INFINITY else (round(score * steps) / steps).toFloat()
        }
        scores[random.nextInt(size)] = (spread * random.nextDouble(0.0, 4.0)).toFloat()
        Example(scores, random.nextLong())
    }

    @Test
    fun `contenders have the winner of all noise`() {
        holds(rows, 400) { assertEquals(winnerOfAll(it.scores, it.noise), winner(it.scores, it.noise)) }
    }

    @Test
    fun `a reach that is too short is caught`() {
        assertTrue(
            isBroken(rows, 400) {
                val first = mostLikely(it.scores) ?: 0
                assertEquals(winnerOfAll(it.scores, it.noise), winnerOfContenders(it.scores, it.noise, first, reach = 3.0))
            },
        )
    }

    @Test
    fun `the first of equal sums wins`() {
        val noise = Noise(1, 20_000)
        val scores = FloatArray(20_000) { -noise.of(it) }
        assertEquals(winnerOfAll(scores, Noise(1, 20_000)), winner(scores, noise))
    }

    @Test
    fun `rows that cannot be drawn from have no winner, in a small vocabulary and in a large one`() {
        for (size in intArrayOf(10, 20_000)) {
            val noise = Noise(1, size)
            assertNull(winner(FloatArray(size) { Float.NEGATIVE_INFINITY }, noise))
            for (at in intArrayOf(0, size / 2, size - 1)) {
                assertNull(winner(FloatArray(size) { if (it == at) Float.NaN else 1f }, noise))
            }
            assertEquals(3, winner(FloatArray(size) { if (it == 3) Float.POSITIVE_INFINITY else 1f }, noise))
        }
    }
}
