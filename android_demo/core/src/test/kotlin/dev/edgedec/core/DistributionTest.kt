package dev.edgedec.core

import kotlin.math.exp
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test

/** Sampled tokens follow the distribution; seeds are fixed, so that these tests never fail by chance. */
class DistributionTest {
    // Of a chi-square with 7 degrees of freedom, exceeded once in a million times.
    private val limit = 40.5

    private fun softmax(logits: FloatArray, temperature: Double): List<Double> {
        val weights = logits.map { exp(it / temperature) }
        return weights.map { it / weights.sum() }
    }

    private fun chiSquare(chances: List<Double>, counts: IntArray): Double {
        val total = counts.sum()
        return chances.indices.filter { chances[it] > 0 }.sumOf { token ->
            val expected = chances[token] * total
            (counts[token] - expected) * (counts[token] - expected) / expected
        }
    }

    /** Counts the second token of many texts: its chances are those of the first one's paths together. */
    private fun secondTokens(rule: AcceptanceRule): Double {
        val target = FakeModel(vocabSize = 8, sharpness = 1.0, seed = 3)
        val draft = FakeModel(vocabSize = 8, sharpness = 1.0, seed = 4, like = target to 0.5)
        val prompt = intArrayOf(1)
        val first = softmax(target.logits(prompt), 0.8)
        val chances = List(8) { token -> first.indices.sumOf { first[it] * softmax(target.logits(prompt + it), 0.8)[token] } }
        val drafter = ModelDrafter(draft.open(10))
        val engine = Engine(target.open(10), drafter, FixedLength(1), System::nanoTime, rule)
        val counts = IntArray(8)
        for (seed in 1L..8000L) {
            val ids = ArrayList<Int>()
            val sampler = Sampler(Sampling(temperature = 0.8, seed = seed), 8, prompt)
            engine.run(prompt, sampler, StopRule(maxNewTokens = 2)) { ids += it.map(Emission::token) }
            counts[ids[1]]++
        }
        return chiSquare(chances, counts)
    }

    @Test
    fun `tokens of drafted texts follow the target's distribution`() {
        val found = secondTokens(GumbelCoupling)
        assertTrue(found < limit) { "chi-square $found" }
    }

    @Test
    fun `a rule that keeps wrong tokens is caught`() {
        assertTrue(secondTokens(KeepsFirst) > limit)
    }

    @Test
    fun `draws follow the softmax of what filters have left, in small and large vocabularies`() {
        for (size in intArrayOf(8, 9000)) {
            val logits = FloatArray(size) { if (it < 8) it / 3f else -30f }
            val counts = IntArray(size)
            for (seed in 1L..20_000L) {
                counts[Sampler(Sampling(temperature = 0.9, topK = 5, seed = seed), size, intArrayOf(1)).draw(logits)]++
            }
            val left = FloatArray(8) { if (it < 3) Float.NEGATIVE_INFINITY else logits[it] }
            assertEquals(20_000, counts.copyOfRange(3, 8).sum())
            assertTrue(chiSquare(softmax(left, 0.9), counts) < limit)
            assertTrue(chiSquare(softmax(left, 1.0), counts) > limit) { "a wrong temperature is caught" }
        }
    }
}
