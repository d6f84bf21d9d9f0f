package dev.edgedec.core

import kotlinx.serialization.json.jsonObject
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertThrows
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test

class SamplerTest {
    @Test
    fun `draws are Python's`() {
        val file = vectorFile("draws.json")
        val rows = file.list("rows").map { it.jsonObject }.map { row ->
            val noise = Noise(row.key(), row.int("vocab_size")).all()
            FloatArray(noise.size) { row.double("factor").toFloat() * noise[it] }
        }
        val wrong = file.list("cases").map { it.jsonObject }.filter { case ->
            val row = rows[case.int("row")]
            val params = sampling(case.getValue("params").jsonObject, case.long("seed"))
            val sampler = Sampler(params, row.size, case.ints("prompt"))
            sampler.push(case.ints("text"))
            val path = case.ints("path")
            assertEquals(case.int("position"), sampler.history.size + path.size)
            sampler.draw(row, path) != case.int("token")
        }
        assertEquals(emptyList<Any>(), wrong)
    }

    @Test
    fun `options out of range are refused with Python's words`() {
        val refused = mapOf(
            Sampling(temperature = -1.0) to "temperature -1.0: expected 0 (greedy) or 0.001 to 1e+06",
            Sampling(temperature = Double.NaN) to "temperature NaN: expected 0 (greedy) or 0.001 to 1e+06",
            Sampling(topK = -1) to "top_k -1: expected 1 or more, or 0 to keep all tokens",
            Sampling(topP = 0.0) to "top_p 0.0: expected more than 0, at most 1",
            Sampling(minP = 1.5) to "min_p 1.5: expected 0 to 1",
            Sampling(repetitionPenalty = 0.0) to "repetition_penalty 0.0: expected more than 0, to 1e+06",
            Sampling(presencePenalty = 2e6) to "presence_penalty 2000000.0: expected -1e+06 to 1e+06",
            Sampling(frequencyPenalty = -2e6) to "frequency_penalty -2000000.0: expected -1e+06 to 1e+06",
            Sampling(logitBias = mapOf(3 to 2e6)) to "logit_bias of token 3 2000000.0: expected -1e+06 to 1e+06",
            Sampling(logitBias = mapOf(9 to 1.0)) to "logit_bias: token 9: expected 0 to 7",
        )
        for ((params, message) in refused) {
            val error = assertThrows(InputException::class.java) { Sampler(params, 8, intArrayOf(1)) }
            assertTrue(error.message.orEmpty().replace("2.0E6", "2000000.0").startsWith(message), error.message)
        }
        assertThrows(InputException::class.java) { Sampler(Sampling(), 8, intArrayOf()) }
        assertThrows(InputException::class.java) { Sampler(Sampling(), 8, intArrayOf(8)) }
    }

    @Test
    fun `logits that cannot be drawn from are refused, whatever the options`() {
        val options = listOf(
            Sampling(), Sampling(logitBias = mapOf(0 to 1.0)), Sampling(temperature = 1.0),
            Sampling(temperature = 1.0, topK = 2), Sampling(temperature = 1.0, topP = 0.5),
            Sampling(temperature = 1.0, minP = 0.5), Sampling(temperature = 1.0, repetitionPenalty = 1.5),
        )
        for (size in intArrayOf(8, 9000)) {
            val bad = listOf(
                FloatArray(size) { Float.NEGATIVE_INFINITY },
                FloatArray(size) { if (it == 5) Float.NaN else 1f },
            )
            for (params in options) {
                for (row in bad) {
                    val error = assertThrows(EdgedecException::class.java) { Sampler(params, size, intArrayOf(1)).draw(row) }
                    assertTrue(error.message.orEmpty().startsWith("the target's logits are NaN or -inf:"))
                }
            }
        }
    }

    @Test
    fun `a path counts as text that was generated`() {
        val params = Sampling(temperature = 0.7, repetitionPenalty = 1.3, presencePenalty = 0.4, frequencyPenalty = 0.2, seed = 4)
        val equal = examples { random -> Triple(random.tokens(3, 12), random.tokens(4, 12), random.nextLong()) }
        holds(equal) { (prompt, path, seed) ->
            val row = FakeModel(12, seed).logits(prompt)
            val sampler = Sampler(params, 12, prompt)
            val ahead = List(path.size + 1) { sampler.draw(row, path.copyOf(it)) }
            val pushed = List(path.size + 1) {
                sampler.draw(row).also { _ -> if (it < path.size) sampler.push(path.copyOfRange(it, it + 1)) }
            }
            assertEquals(pushed, ahead)
        }
    }

    @Test
    fun `a seed that is not given is drawn and reported`() {
        val seeds = List(4) { Sampler(Sampling(temperature = 1.0), 8, intArrayOf(1)).seed }
        assertTrue(seeds.all { it in 0..0xffffffffL } && seeds.distinct().size > 1)
    }

    @Test
    fun `filters keep what sorting says`() {
        val rows = examples { random ->
            val scores = FloatArray(random.nextInt(1, 40)) { (random.nextInt(-20, 20) / 4.0).toFloat() }
            scores to Sampling(topK = random.nextInt(0, 12), topP = random.pick(1.0, 0.9, 0.5, 0.1), minP = random.pick(0.0, 0.05, 0.5))
        }
        fun keptBySorting(scores: FloatArray, params: Sampling): Set<Int> {
            var left = scores.indices.sortedWith(compareBy({ -scores[it] }, { it }))
            if (params.topK > 0) left = left.take(params.topK)
            val weights = left.map { Math.exp(scores[it].toDouble()) }
            if (params.topP < 1) {
                val sums = weights.runningReduce { sum, weight -> sum + weight }
                left = left.take(1 + sums.indexOfFirst { it >= params.topP * sums.last() * (1 - 1e-9) })
            }
            return left.filter { scores[it] >= scores[left[0]] + Math.log(params.minP) - 1e-6 }.toSet()
        }
        holds(rows, 1000) { (scores, params) ->
            val filtered = scores.copyOf().also { filter(it, params) }
            assertEquals(keptBySorting(scores, params), filtered.indices.filter { filtered[it] > Float.NEGATIVE_INFINITY }.toSet())
        }
        assertTrue(
            isBroken(rows, 1000) { (scores, params) ->
                assertEquals(keptBySorting(scores, params), keptBySorting(scores, params.copy(topK = params.topK + 1)))
            },
        )
    }

    @Test
    fun `equal scores are kept by id`() {
        val scores = FloatArray(6) { 1f }
        filter(scores, Sampling(topK = 2))
        assertEquals(listOf(0, 1), scores.indices.filter { scores[it] > Float.NEGATIVE_INFINITY })
        val nucleus = FloatArray(6) { 1f }
        filter(nucleus, Sampling(topP = 0.5))
        assertEquals(listOf(0, 1, 2), nucleus.indices.filter { nucleus[it] > Float.NEGATIVE_INFINITY })
    }
}
